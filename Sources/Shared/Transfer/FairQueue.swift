// Carillon · FairQueue.swift
// SPDX-License-Identifier: Apache-2.0

/// Who is next for a place, when several hosts want more than there are.
///
/// The hosts take turns, each in the order of arrival, and none holds more than its share: one that hangs delays its own
/// requests only.
package struct FairQueue<Element> {
    /// One host, kept only while it has something waiting or under way.
    private struct Lane {
        var origin: String
        var waiting: [Element?] = []
        var head = 0
        var inFlight = 0

        var isEmpty: Bool { self.head == self.waiting.count }

        mutating func removeFirst() -> Element? {
            let element = self.waiting[self.head]
            self.waiting[self.head] = nil
            self.head += 1
            if self.isEmpty {
                self.waiting.removeAll(keepingCapacity: true)
                self.head = 0
            } else if self.head >= 1_024 {
                self.waiting.removeFirst(self.head)
                self.head = 0
            }
            return element
        }
    }

    private let share: Int
    private var lanes: [Lane] = []
    private var unused: [Int] = []
    private var numbers: [String: Int] = [:]
    /// The lanes in which somebody waits, and whose turn it is.
    private var rotation: [Int] = []
    private var turn = 0
    /// The lane used last, which is nearly always the one wanted next.
    private var recent: Int?

    /// How many wait, in all lanes.
    package private(set) var count = 0

    /// - Parameter share: The most that one host has under way.
    package init(share: Int) {
        self.share = share
    }

    /// Puts `element` behind the others of its host.
    package mutating func append(_ element: Element, origin: String) {
        let number = self.number(of: origin)
        if self.lanes[number].isEmpty { self.rotation.append(number) }
        self.lanes[number].waiting.append(element)
        self.count += 1
    }

    /// Takes the next one that has a place; its lane is to be given to ``release(lane:)`` at its end.
    package mutating func next() -> (element: Element, lane: Int)? {
        for _ in 0..<self.rotation.count {
            if self.turn >= self.rotation.count { self.turn = 0 }
            let number = self.rotation[self.turn]
            guard self.lanes[number].inFlight < self.share, let element = self.lanes[number].removeFirst() else {
                self.turn += 1
                continue
            }
            self.lanes[number].inFlight += 1
            self.count -= 1
            if self.lanes[number].isEmpty {
                self.rotation.remove(at: self.turn)
            } else {
                self.turn += 1
            }
            return (element, number)
        }
        return nil
    }

    /// Gives a place back.
    package mutating func release(lane: Int) {
        self.lanes[lane].inFlight -= 1
        self.discardIfUnused(lane)
    }

    /// Takes out those that wait and fit `predicate`, in no particular order.
    package mutating func removeAll(where predicate: (Element) -> Bool) -> [Element] {
        var removed: [Element] = []
        for number in self.rotation {
            let lane = self.lanes[number]
            var kept: [Element?] = []
            for case .some(let element) in lane.waiting[lane.head...] {
                if predicate(element) {
                    removed.append(element)
                } else {
                    kept.append(element)
                }
            }
            self.lanes[number].waiting = kept
            self.lanes[number].head = 0
        }
        self.count -= removed.count
        let emptied = self.rotation.filter { self.lanes[$0].isEmpty }
        self.rotation.removeAll { self.lanes[$0].isEmpty }
        for number in emptied { self.discardIfUnused(number) }
        return removed
    }

    private mutating func number(of origin: String) -> Int {
        if let recent, self.lanes[recent].origin == origin { return recent }
        if let known = self.numbers[origin] {
            self.recent = known
            return known
        }
        let number: Int
        if let free = self.unused.popLast() {
            self.lanes[free].origin = origin
            number = free
        } else {
            self.lanes.append(Lane(origin: origin))
            number = self.lanes.count - 1
        }
        self.numbers[origin] = number
        self.recent = number
        return number
    }

    private mutating func discardIfUnused(_ number: Int) {
        guard self.lanes[number].isEmpty, self.lanes[number].inFlight == 0 else { return }
        self.numbers[self.lanes[number].origin] = nil
        self.lanes[number].origin = ""
        self.lanes[number].waiting = []
        self.unused.append(number)
        if self.recent == number { self.recent = nil }
    }
}
