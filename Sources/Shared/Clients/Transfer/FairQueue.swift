// Carillon · FairQueue.swift
// SPDX-License-Identifier: Apache-2.0

/// A queue that shares a limited number of places fairly between hosts.
///
/// Higher priorities go first. Within a priority the hosts take turns, each in order of arrival. No
/// host holds more than its share, so a hanging host delays only its own requests. A host can get a
/// smaller share with ``narrow(lane:)``.
struct FairQueue<Element> {
    /// The elements of one host and priority, in order of arrival.
    private struct Line {
        private var elements: [Element?] = []
        private var head = 0

        var isEmpty: Bool { self.head == self.elements.count }

        mutating func append(_ element: Element) {
            self.elements.append(element)
        }

        /// Removes the first element; the line must not be empty.
        mutating func removeFirst() -> Element? {
            let element = self.elements[self.head]
            self.elements[self.head] = nil
            self.head += 1
            if self.isEmpty {
                self.elements.removeAll(keepingCapacity: true)
                self.head = 0
            } else if self.head >= 1_024 {
                self.elements.removeFirst(self.head)
                self.head = 0
            }
            return element
        }

        mutating func removeAll(where predicate: (Element) -> Bool) -> [Element] {
            var removed: [Element] = []
            var kept: [Element?] = []
            for case .some(let element) in self.elements[self.head...] {
                if predicate(element) {
                    removed.append(element)
                } else {
                    kept.append(element)
                }
            }
            self.elements = kept
            self.head = 0
            return removed
        }
    }

    /// One host, kept while it has waiting or in-flight elements.
    private struct Lane {
        var origin: String
        /// The most elements in flight.
        var share: Int
        /// One line a priority.
        var lines = Array(repeating: Line(), count: TransferPriority.allCases.count)
        var inFlight = 0

        var isEmpty: Bool { self.lines.allSatisfy { $0.isEmpty } }
    }

    /// The hosts with elements of one priority.
    private struct Rotation {
        /// The lanes with waiting elements, and the index of the next one.
        var lanes: [Int] = []
        var turn = 0
        /// The number of waiting elements in all lanes.
        var count = 0
    }

    /// The narrow hosts that are remembered; at this limit all are forgotten and found again.
    private static var narrowOriginsBound: Int { 1_024 }

    private let share: Int
    private let narrowShare: Int
    private var narrowOrigins: Set<String> = []
    private var lanes: [Lane] = []
    private var unused: [Int] = []
    private var numbers: [String: Int] = [:]
    /// One rotation a priority.
    private var rotations = Array(repeating: Rotation(), count: TransferPriority.allCases.count)
    /// The lane used last, which is usually wanted next.
    private var recent: Int?

    /// The number of waiting elements.
    var count: Int { self.rotations.reduce(0) { $0 + $1.count } }

    /// - Parameters:
    ///   - share: the in-flight limit of one host.
    ///   - narrowShare: the same for narrow hosts; nil for the same limit.
    init(share: Int, narrowShare: Int? = nil) {
        self.share = share
        self.narrowShare = narrowShare ?? share
    }

    /// Returns the number of waiting elements of one priority.
    func count(of priority: TransferPriority) -> Int { self.rotations[priority.rawValue].count }

    /// Appends `element` behind the others of its host and priority.
    mutating func append(_ element: Element, origin: String, priority: TransferPriority = .normal) {
        let number = self.number(of: origin)
        let rank = priority.rawValue
        if self.lanes[number].lines[rank].isEmpty { self.rotations[rank].lanes.append(number) }
        self.lanes[number].lines[rank].append(element)
        self.rotations[rank].count += 1
    }

    /// Removes the next element whose host has a free place; pass its lane to ``release(lane:)``
    /// when it ends.
    mutating func next() -> (element: Element, lane: Int)? {
        for rank in self.rotations.indices {
            if let next = self.next(of: rank) { return next }
        }
        return nil
    }

    private mutating func next(of rank: Int) -> (element: Element, lane: Int)? {
        for _ in 0..<self.rotations[rank].lanes.count {
            if self.rotations[rank].turn >= self.rotations[rank].lanes.count { self.rotations[rank].turn = 0 }
            let turn = self.rotations[rank].turn
            let number = self.rotations[rank].lanes[turn]
            guard self.lanes[number].inFlight < self.lanes[number].share,
                let element = self.lanes[number].lines[rank].removeFirst()
            else {
                self.rotations[rank].turn += 1
                continue
            }
            self.lanes[number].inFlight += 1
            self.rotations[rank].count -= 1
            if self.lanes[number].lines[rank].isEmpty {
                self.rotations[rank].lanes.remove(at: turn)
            } else {
                self.rotations[rank].turn += 1
            }
            return (element, number)
        }
        return nil
    }

    /// Gives the lane's host the narrow share, until ``widen(lane:)``.
    mutating func narrow(lane: Int) {
        guard self.lanes[lane].share != self.narrowShare else { return }
        self.lanes[lane].share = self.narrowShare
        if self.narrowOrigins.count >= Self.narrowOriginsBound { self.narrowOrigins.removeAll() }
        self.narrowOrigins.insert(self.lanes[lane].origin)
    }

    /// Gives the lane's host the usual share again.
    mutating func widen(lane: Int) {
        guard self.lanes[lane].share != self.share else { return }
        self.lanes[lane].share = self.share
        self.narrowOrigins.remove(self.lanes[lane].origin)
    }

    /// Frees a place of the lane.
    mutating func release(lane: Int) {
        self.lanes[lane].inFlight -= 1
        self.discardIfUnused(lane)
    }

    /// Removes and returns the waiting elements that match, in no particular order.
    mutating func removeAll(where predicate: (Element) -> Bool) -> [Element] {
        var removed: [Element] = []
        for rank in self.rotations.indices {
            let numbers = self.rotations[rank].lanes
            var kept: [Int] = []
            var emptied: [Int] = []
            for number in numbers {
                let taken = self.lanes[number].lines[rank].removeAll(where: predicate)
                self.rotations[rank].count -= taken.count
                removed += taken
                if self.lanes[number].lines[rank].isEmpty {
                    emptied.append(number)
                } else {
                    kept.append(number)
                }
            }
            self.rotations[rank].lanes = kept
            for number in emptied { self.discardIfUnused(number) }
        }
        return removed
    }

    private mutating func number(of origin: String) -> Int {
        if let recent, self.lanes[recent].origin == origin { return recent }
        if let known = self.numbers[origin] {
            self.recent = known
            return known
        }
        let number: Int
        let lane = Lane(origin: origin, share: self.narrowOrigins.contains(origin) ? self.narrowShare : self.share)
        if let free = self.unused.popLast() {
            self.lanes[free] = lane
            number = free
        } else {
            self.lanes.append(lane)
            number = self.lanes.count - 1
        }
        self.numbers[origin] = number
        self.recent = number
        return number
    }

    private mutating func discardIfUnused(_ number: Int) {
        guard self.lanes[number].isEmpty, self.lanes[number].inFlight == 0 else { return }
        self.numbers[self.lanes[number].origin] = nil
        self.lanes[number] = Lane(origin: "", share: 0)
        self.unused.append(number)
        if self.recent == number { self.recent = nil }
    }
}
