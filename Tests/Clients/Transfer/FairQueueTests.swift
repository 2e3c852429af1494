// Carillon · FairQueueTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Clients

@Suite("Fair queue")
struct FairQueueTests {
    @Test("one host is served in order of arrival, up to its share")
    func share() {
        var queue = FairQueue<Int>(share: 2)
        for number in 1...4 { queue.append(number, origin: "a") }
        #expect(queue.takeAll() == [1, 2])
        #expect(queue.count == 2)
        queue.release(origin: "a")
        #expect(queue.takeAll() == [3])
        queue.release(origin: "a")
        queue.release(origin: "a")
        #expect(queue.takeAll() == [4])
        #expect(queue.count == 0)
    }

    @Test("hosts take turns, however many requests one of them has")
    func turns() {
        var queue = FairQueue<String>(share: 10)
        for number in 1...4 { queue.append("a\(number)", origin: "a") }
        queue.append("b1", origin: "b")
        queue.append("c1", origin: "c")
        queue.append("c2", origin: "c")
        #expect(queue.takeAll() == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"])
    }

    @Test("a host at its share is skipped")
    func full() {
        var queue = FairQueue<String>(share: 1)
        queue.append("a1", origin: "a")
        queue.append("a2", origin: "a")
        #expect(queue.next() == "a1")
        #expect(queue.next() == nil)
        queue.append("b1", origin: "b")
        #expect(queue.next() == "b1")
    }

    @Test("a host has the narrow share until it is widened, and keeps the wide one while it is idle")
    func wide() {
        var queue = FairQueue<Int>(share: 3, narrowShare: 1)
        for number in 1...8 { queue.append(number, origin: number > 6 ? "b" : "a") }
        #expect(queue.takeAll() == [1, 7])
        queue.widen(origin: "a")
        #expect(queue.takeAll() == [2, 3])
        for _ in 0..<3 { queue.release(origin: "a") }
        #expect(queue.takeAll() == [4, 5, 6])
        for _ in 0..<3 { queue.release(origin: "a") }
        for number in 9...12 { queue.append(number, origin: "a") }
        #expect(queue.takeAll() == [9, 10, 11])
        queue.narrow(origin: "a")
        for _ in 0..<2 { queue.release(origin: "a") }
        #expect(queue.takeAll() == [])
        queue.release(origin: "a")
        #expect(queue.takeAll() == [12])
        queue.release(origin: "a")
        for number in 13...14 { queue.append(number, origin: "a") }
        #expect(queue.takeAll() == [13])
    }

    @Test("forgets which hosts are wide once there are more than a thousand")
    func manyWide() {
        var queue = FairQueue<Int>(share: 2, narrowShare: 1)
        for number in 0...1_024 {
            queue.append(number, origin: "host \(number)")
            #expect(queue.next() == number)
            queue.widen(origin: "host \(number)")
            queue.release(origin: "host \(number)")
        }
        for origin in ["host 0", "host 0", "host 1024", "host 1024"] { queue.append(0, origin: origin) }
        #expect(queue.takeAll().count == 3)
    }

    @Test("an element that is put back comes before those of its host and priority")
    func putBack() {
        var queue = FairQueue<String>(share: 10)
        for word in ["a1", "a2"] { queue.append(word, origin: "a") }
        #expect(queue.next() == "a1")
        queue.release(origin: "a")
        queue.append("high", origin: "a", priority: .high)
        queue.prepend("a1", origin: "a")
        #expect(queue.takeAll() == ["high", "a1", "a2"])
        queue.prepend("b1", origin: "b")
        #expect(queue.takeAll() == ["b1"])
    }

    @Test("higher priorities come first, for any host and any backlog")
    func priorities() {
        var queue = FairQueue<String>(share: 10)
        for number in 1...3 { queue.append("low \(number)", origin: "a", priority: .low) }
        queue.append("normal", origin: "a")
        queue.append("high b", origin: "b", priority: .high)
        queue.append("high a", origin: "a", priority: .high)
        #expect(queue.count == 6)
        #expect(queue.count(of: .low) == 3)
        #expect(queue.takeAll() == ["high b", "high a", "normal", "low 1", "low 2", "low 3"])
        #expect(queue.count == 0)
    }

    @Test("urgent requests respect their host's share and get its next free slot")
    func urgentAtShare() {
        var queue = FairQueue<String>(share: 1)
        queue.append("a1", origin: "a", priority: .low)
        #expect(queue.next() == "a1")
        queue.append("a2", origin: "a", priority: .low)
        queue.append("a3", origin: "a", priority: .high)
        queue.append("b1", origin: "b", priority: .low)
        #expect(queue.next() == "b1")
        #expect(queue.next() == nil)
        queue.release(origin: "a")
        #expect(queue.next() == "a3")
    }

    @Test("removing elements of one priority leaves the others")
    func removalByPriority() {
        var queue = FairQueue<Int>(share: 100)
        for number in 0..<6 { queue.append(number, origin: "a", priority: number.isMultiple(of: 2) ? .high : .low) }
        #expect(queue.removeAll { $0.isMultiple(of: 2) }.sorted() == [0, 2, 4])
        #expect(queue.count == 3 && queue.count(of: .high) == 0)
        queue.append(6, origin: "a")
        #expect(queue.takeAll() == [6, 1, 3, 5])
    }

    @Test("removing elements keeps the order of the rest")
    func removal() {
        var queue = FairQueue<Int>(share: 100)
        for number in 0..<10 { queue.append(number, origin: number < 5 ? "a" : "b") }
        #expect(queue.next() == 0)
        #expect(queue.removeAll { $0 >= 5 || $0 == 2 }.sorted() == [2, 5, 6, 7, 8, 9])
        #expect(queue.count == 3)
        queue.append(10, origin: "b")
        #expect(queue.takeAll().sorted() == [1, 3, 4, 10])
    }

    @Test("long queues and many hosts lose nothing")
    func volume() {
        var queue = FairQueue<Int>(share: .max)
        for number in 0..<10_000 { queue.append(number, origin: "host \(number % 37)") }
        var last: [String: Int] = [:]
        var count = 0
        while let number = queue.next() {
            let origin = "host \(number % 37)"
            #expect(last[origin] ?? -1 < number)
            last[origin] = number
            count += 1
            queue.release(origin: origin)
        }
        #expect(count == 10_000)
        #expect(last.count == 37)
    }
}

extension FairQueue {
    fileprivate mutating func takeAll() -> [Element] {
        var elements: [Element] = []
        while let element = self.next() { elements.append(element) }
        return elements
    }
}
