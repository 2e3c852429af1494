// Carillon · BatchQueueTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Core

@Suite("Batch queue", .timeLimit(.minutes(10)))
struct BatchQueueTests {
    @Test("collected elements are taken together, in order and up to the limit")
    func gathers() async {
        let queue = BatchQueue<Int>(capacity: 10)
        for number in 0..<5 { #expect(queue.offer(number)) }
        #expect(queue.count == 5)
        #expect(await queue.next(limit: 3) == [0, 1, 2])
        #expect(await queue.next(limit: 3) == [3, 4])
        #expect(queue.count == 0)
    }

    @Test("the consumer waits for the first element")
    func waits() async {
        let queue = BatchQueue<Int>(capacity: 10)
        let consumer = Waiter { #expect(await queue.next(limit: 3) == [1]) }
        #expect(await consumer.staysWaiting())
        #expect(queue.offer(1))
        await consumer.finish()
    }

    @Test("a full queue refuses an offer and blocks a sender")
    func bounds() async throws {
        let queue = BatchQueue<Int>(capacity: 2)
        #expect(queue.offer(1))
        #expect(queue.offer(2))
        #expect(!queue.offer(3))
        let senders = [4, 5, 6].map { number in Waiter { await queue.send(number) } }
        for sender in senders { #expect(await sender.staysWaiting()) }
        #expect(queue.count == 2)
        #expect(await queue.next(limit: 1) == [1])
        try await eventually("a sender got the room") { queue.count == 2 }
        let consumer = Waiter {
            #expect(await queue.next(limit: 1) == [2])
            var rest: [Int] = []
            while rest.count < 3 { rest += await queue.next(limit: 1) ?? [] }
            #expect(rest.sorted() == [4, 5, 6])
        }
        await consumer.finish()
        for sender in senders { await sender.finish() }
    }

    @Test("several elements are added as far as there is room, and wake the consumer")
    func offersSeveral() async {
        let queue = BatchQueue<Int>(capacity: 4)
        let consumer = Waiter { #expect(await queue.next(limit: 2) == [1, 2]) }
        #expect(await consumer.staysWaiting())
        #expect(queue.offer(contentsOf: [1, 2, 3]) == 3)
        await consumer.finish()
        #expect(queue.offer(contentsOf: [4, 5, 6, 7]) == 3)
        #expect(await queue.next(limit: 9) == [3, 4, 5, 6])
        queue.finish()
        #expect(queue.offer(contentsOf: [8]) == 0)
    }

    @Test("a finished queue takes no more and hands out the rest")
    func finishes() async {
        let queue = BatchQueue<Int>(capacity: 1)
        #expect(queue.offer(1))
        let sender = Waiter { await queue.send(2) }
        #expect(await sender.staysWaiting())
        queue.finish()
        await sender.finish()
        #expect(queue.isFinished)
        #expect(!queue.offer(3))
        await queue.send(4)
        #expect(await queue.next(limit: 9) == [1])
        #expect(await queue.next(limit: 9) == nil)
        #expect(await queue.next(limit: 9) == nil)
    }

    @Test("finish wakes every consumer")
    func finishWakes() async {
        let queue = BatchQueue<Int>(capacity: 1)
        let consumers = (0..<3).map { _ in Waiter { #expect(await queue.next(limit: 1) == nil) } }
        for consumer in consumers { #expect(await consumer.staysWaiting()) }
        queue.finish()
        for consumer in consumers { await consumer.finish() }
    }

    @Test("each element goes to one of several consumers, and none sleeps while elements wait")
    func sharedByConsumers() async {
        let queue = BatchQueue<Int>(capacity: 5)
        let taken = await withTaskGroup(of: [Int].self) { group in
            for _ in 0..<4 {
                group.addTask {
                    var taken: [Int] = []
                    while let batch = await queue.next(limit: 2) { taken += batch }
                    return taken
                }
            }
            for number in 0..<2_000 { await queue.send(number) }
            queue.finish()
            return await group.reduce(into: []) { $0 += $1 }
        }
        #expect(taken.sorted() == Array(0..<2_000))
    }

    @Test("the elements of many senders arrive once, in each sender's order")
    func many() async {
        let queue = BatchQueue<Int>(capacity: 7)
        let senders = Waiter {
            await withTaskGroup { group in
                for sender in 0..<5 {
                    group.addTask { for index in 0..<400 { await queue.send(sender * 400 + index) } }
                }
            }
            queue.finish()
        }
        var taken: [Int] = []
        while let batch = await queue.next(limit: 3) {
            #expect((1...3).contains(batch.count))
            taken += batch
        }
        await senders.finish()
        for sender in 0..<5 { #expect(taken.filter { $0 / 400 == sender } == Array(sender * 400..<(sender + 1) * 400)) }
    }
}
