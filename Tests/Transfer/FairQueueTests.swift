// Carillon · FairQueueTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing
import Transfer

@Suite("Whose turn it is")
struct FairQueueTests {
    @Test("One host is served in the order of arrival, up to its share")
    func share() {
        var queue = FairQueue<Int>(share: 2)
        for number in 1...4 { queue.append(number, origin: "a") }
        #expect(queue.takeAll() == [1, 2])
        #expect(queue.count == 2)
        queue.release(lane: 0)
        #expect(queue.takeAll() == [3])
        queue.release(lane: 0)
        queue.release(lane: 0)
        #expect(queue.takeAll() == [4])
        #expect(queue.count == 0)
    }

    @Test("Hosts take turns, however much one of them has")
    func turns() {
        var queue = FairQueue<String>(share: 10)
        for number in 1...4 { queue.append("a\(number)", origin: "a") }
        queue.append("b1", origin: "b")
        queue.append("c1", origin: "c")
        queue.append("c2", origin: "c")
        #expect(queue.takeAll() == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"])
    }

    @Test("A host at its share is passed over")
    func full() {
        var queue = FairQueue<String>(share: 1)
        queue.append("a1", origin: "a")
        queue.append("a2", origin: "a")
        #expect(queue.next()?.element == "a1")
        #expect(queue.next() == nil)
        queue.append("b1", origin: "b")
        #expect(queue.next()?.element == "b1")
    }

    @Test("What is taken out leaves the order of the rest")
    func removal() {
        var queue = FairQueue<Int>(share: 100)
        for number in 0..<10 { queue.append(number, origin: number < 5 ? "a" : "b") }
        #expect(queue.next()?.element == 0)
        #expect(queue.removeAll { $0 >= 5 || $0 == 2 }.sorted() == [2, 5, 6, 7, 8, 9])
        #expect(queue.count == 3)
        queue.append(10, origin: "b")
        #expect(queue.takeAll().sorted() == [1, 3, 4, 10])
    }

    @Test("Long queues and many hosts come out whole")
    func volume() {
        var queue = FairQueue<Int>(share: .max)
        for number in 0..<10_000 { queue.append(number, origin: "host \(number % 37)") }
        var last: [Int: Int] = [:]
        var count = 0
        while let (number, lane) = queue.next() {
            #expect(last[lane] ?? -1 < number)
            last[lane] = number
            count += 1
            queue.release(lane: lane)
        }
        #expect(count == 10_000)
        #expect(last.count == 37)
    }
}

extension FairQueue {
    fileprivate mutating func takeAll() -> [Element] {
        var elements: [Element] = []
        while let (element, _) = self.next() { elements.append(element) }
        return elements
    }
}
