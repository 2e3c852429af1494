// Carillon · LaneQueueTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Pipeline

@Suite("Lane queue", .timeLimit(.minutes(10)))
struct LaneQueueTests {
    @Test("filled lanes are served sixteen to four to one")
    func weights() async {
        let queue = LaneQueue<Lane>(capacity: 1_000)
        for lane in Lane.allCases.reversed() {
            for _ in 0..<500 { await queue.send(lane, lane: lane) }
        }
        for _ in 0..<10 {
            var served: [Lane] = []
            for _ in 0..<21 { if let lane = await queue.receive() { served.append(lane) } }
            #expect(served.count { $0 == .critical } == 16)
            #expect(served.count { $0 == .normal } == 4)
            #expect(served.count { $0 == .bulk } == 1)
            #expect(served.first == .critical)
        }
    }

    @Test("a lane alone gets everything, in order")
    func alone() async {
        let queue = LaneQueue<Int>(capacity: 100)
        for number in 0..<100 { await queue.send(number, lane: .bulk) }
        for number in 0..<100 { #expect(await queue.receive() == number) }
    }

    @Test("urgent elements overtake waiting ones without starving them")
    func overtakes() async {
        let queue = LaneQueue<Lane>(capacity: 100)
        for _ in 0..<50 { await queue.send(.bulk, lane: .bulk) }
        for _ in 0..<3 { #expect(await queue.receive() == .bulk) }
        var bulk = 0
        for _ in 0..<170 {
            await queue.send(.critical, lane: .critical)
            if await queue.receive() == .bulk { bulk += 1 }
        }
        #expect((8...12).contains(bulk))
    }

    @Test("a sender to a full lane waits; other lanes are free")
    func bounds() async throws {
        let queue = LaneQueue<Int>(capacity: 2)
        await queue.send(1, lane: .normal)
        await queue.send(2, lane: .normal)
        let sender = Waiter { await queue.send(3, lane: .normal) }
        try await eventually("the sender waits") { queue.count == 3 }
        #expect(await sender.staysWaiting())
        await queue.send(4, lane: .critical)
        #expect(await queue.receive() == 4)
        #expect(await sender.staysWaiting())
        #expect(await queue.receive() == 1)
        await sender.finish()
        #expect(await queue.receive() == 2)
        #expect(await queue.receive() == 3)
    }

    @Test("receivers wait and are served in order")
    func receivers() async {
        let queue = LaneQueue<Int>(capacity: 1)
        let receiver = Waiter { #expect(await queue.receive() == 7) }
        #expect(await receiver.staysWaiting())
        await queue.send(7, lane: .bulk)
        await receiver.finish()
        #expect(queue.count == 0)
    }

    @Test("a lane needs an element when a receiver waits")
    func needOfReceiver() async {
        let queue = LaneQueue<Int>(capacity: 1)
        let early = Waiter { await queue.awaitNeed(of: .normal) }
        #expect(await early.staysWaiting())
        let receiver = Waiter { #expect(await queue.receive() == 1) }
        await early.finish()
        // The receiver still waits.
        await queue.awaitNeed(of: .normal)
        await queue.send(1, lane: .normal)
        await receiver.finish()
        let late = Waiter { await queue.awaitNeed(of: .normal) }
        #expect(await late.staysWaiting())
        queue.finish()
        await late.finish()
    }

    @Test("a lane needs an element while only others have one, so that each gets its turns")
    func needAmongLanes() async {
        let queue = LaneQueue<Int>(capacity: 1)
        let early = Waiter { await queue.awaitNeed(of: .critical) }
        let own = Waiter { await queue.awaitNeed(of: .bulk) }
        #expect(await early.staysWaiting())
        await queue.send(1, lane: .bulk)
        await early.finish()
        #expect(await own.staysWaiting())
        await queue.awaitNeed(of: .normal)
        #expect(await queue.receive() == 1)
        let late = Waiter { await queue.awaitNeed(of: .critical) }
        #expect(await late.staysWaiting())
        queue.finish()
        for waiter in [own, late] { await waiter.finish() }
    }

    @Test("senders of one lane take turns when they wait for a need, while others keep the lane filled")
    func needWithinLane() async throws {
        let queue = LaneQueue<Int>(capacity: 1)
        await queue.send(1, lane: .normal)
        let sender = Waiter { await queue.send(2, lane: .normal) }
        try await eventually("the sender waits") { queue.count == 2 }
        let first = Waiter { await queue.awaitNeed(of: .normal) }
        #expect(await first.staysWaiting())
        let second = Waiter { await queue.awaitNeed(of: .normal) }
        #expect(await second.staysWaiting())
        #expect(await queue.receive() == 1)
        await sender.finish()
        await first.finish()
        #expect(await second.staysWaiting())
        let next = Waiter { await queue.send(3, lane: .normal) }
        try await eventually("the sender waits") { queue.count == 2 }
        #expect(await queue.receive() == 2)
        await second.finish()
        await next.finish()
    }

    @Test("a finished queue hands out the rest, then nothing")
    func finishes() async throws {
        let queue = LaneQueue<Int>(capacity: 1)
        await queue.send(1, lane: .normal)
        let sender = Waiter { await queue.send(2, lane: .normal) }
        try await eventually("the sender waits") { queue.count == 2 }
        queue.finish()
        await sender.finish()
        await queue.send(3, lane: .critical)
        #expect(await queue.receive() == 1)
        #expect(await queue.receive() == 2)
        #expect(await queue.receive() == nil)
    }

    @Test("finish wakes every receiver")
    func finishWakes() async {
        let queue = LaneQueue<Int>(capacity: 1)
        let receivers = (0..<3).map { _ in Waiter { #expect(await queue.receive() == nil) } }
        for receiver in receivers { #expect(await receiver.staysWaiting()) }
        queue.finish()
        for receiver in receivers { await receiver.finish() }
    }

    @Test("nothing is lost or duplicated between many senders and receivers")
    func many() async {
        let queue = LaneQueue<Int>(capacity: 3)
        let received = await withTaskGroup(of: [Int].self) { group in
            for _ in 0..<4 {
                group.addTask {
                    var numbers: [Int] = []
                    while let number = await queue.receive() { numbers.append(number) }
                    return numbers
                }
            }
            await withTaskGroup { senders in
                for sender in 0..<6 {
                    senders.addTask {
                        for index in 0..<500 { await queue.send(sender * 500 + index, lane: Lane.allCases[sender % 3]) }
                    }
                }
            }
            queue.finish()
            return await group.reduce(into: []) { $0 += $1 }
        }
        #expect(received.sorted() == Array(0..<3_000))
    }
}
