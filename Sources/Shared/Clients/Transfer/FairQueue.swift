// Carillon · FairQueue.swift
// SPDX-License-Identifier: Apache-2.0

import DequeModule

/// A queue that shares a limited number of places fairly between hosts.
///
/// Higher priorities go first. Within a priority the hosts take turns, each in order of arrival. No
/// host holds more than its share, so a hanging host delays only its own requests. A host can get a
/// smaller share with ``narrow(origin:)``.
struct FairQueue<Element> {
    /// One host, kept while it has waiting or in-flight elements.
    private struct Lane {
        /// The most elements in flight.
        var share: Int
        /// The waiting elements of each priority, in order of arrival.
        var lines = Array(repeating: Deque<Element>(), count: TransferPriority.allCases.count)
        var inFlight = 0

        var isUnused: Bool { self.inFlight == 0 && self.lines.allSatisfy { $0.isEmpty } }

        /// Returns whether the element is the only one of its priority.
        mutating func append(_ element: Element, rank: Int) -> Bool {
            self.lines[rank].append(element)
            return self.lines[rank].count == 1
        }

        /// Removes the first element of a priority; nil without one, or without a free place.
        mutating func next(rank: Int) -> (element: Element, isLast: Bool)? {
            guard self.inFlight < self.share, let element = self.lines[rank].popFirst() else { return nil }
            self.inFlight += 1
            return (element, self.lines[rank].isEmpty)
        }
    }

    /// The hosts with elements of one priority.
    private struct Rotation {
        /// The hosts with waiting elements, and the index of the next one.
        var origins: [String] = []
        var turn = 0
        /// The number of waiting elements of all hosts.
        var count = 0
    }

    /// The narrow hosts that are remembered; at this limit all are forgotten and found again.
    private static var narrowOriginsBound: Int { 1_024 }

    private let share: Int
    private let narrowShare: Int
    private var narrowOrigins: Set<String> = []
    private var lanes: [String: Lane] = [:]
    /// One rotation a priority.
    private var rotations = Array(repeating: Rotation(), count: TransferPriority.allCases.count)

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
        let rank = priority.rawValue
        let share = self.narrowOrigins.contains(origin) ? self.narrowShare : self.share
        if self.lanes[origin, default: Lane(share: share)].append(element, rank: rank) {
            self.rotations[rank].origins.append(origin)
        }
        self.rotations[rank].count += 1
    }

    /// Removes the next element whose host has a free place.
    ///
    /// Call ``release(origin:)`` when it ends.
    mutating func next() -> Element? {
        for rank in self.rotations.indices {
            if let next = self.next(of: rank) { return next }
        }
        return nil
    }

    private mutating func next(of rank: Int) -> Element? {
        for _ in 0..<self.rotations[rank].origins.count {
            if self.rotations[rank].turn >= self.rotations[rank].origins.count { self.rotations[rank].turn = 0 }
            let turn = self.rotations[rank].turn
            let origin = self.rotations[rank].origins[turn]
            guard let (element, isLast) = self.lanes[origin]?.next(rank: rank) else {
                self.rotations[rank].turn += 1
                continue
            }
            self.rotations[rank].count -= 1
            if isLast {
                self.rotations[rank].origins.remove(at: turn)
            } else {
                self.rotations[rank].turn += 1
            }
            return element
        }
        return nil
    }

    /// Gives a host with an element in flight the narrow share, until ``widen(origin:)``.
    mutating func narrow(origin: String) {
        guard let share = self.lanes[origin]?.share, share != self.narrowShare else { return }
        self.lanes[origin]?.share = self.narrowShare
        if self.narrowOrigins.count >= Self.narrowOriginsBound { self.narrowOrigins.removeAll() }
        self.narrowOrigins.insert(origin)
    }

    /// Gives a host with an element in flight the usual share again.
    mutating func widen(origin: String) {
        guard let share = self.lanes[origin]?.share, share != self.share else { return }
        self.lanes[origin]?.share = self.share
        self.narrowOrigins.remove(origin)
    }

    /// Frees a place of the host.
    mutating func release(origin: String) {
        self.lanes[origin]?.inFlight -= 1
        self.discardIfUnused(origin)
    }

    /// Removes and returns the waiting elements that match, in no particular order.
    mutating func removeAll(where predicate: (Element) -> Bool) -> [Element] {
        var removed: [Element] = []
        for rank in self.rotations.indices {
            var waiting: [String] = []
            var count = 0
            for origin in self.rotations[rank].origins {
                var kept: Deque<Element> = []
                // Once for each element, as a request may be cancelled between two looks at it.
                for element in self.lanes[origin]?.lines[rank] ?? [] {
                    if predicate(element) { removed.append(element) } else { kept.append(element) }
                }
                self.lanes[origin]?.lines[rank] = kept
                count += kept.count
                if kept.isEmpty { self.discardIfUnused(origin) } else { waiting.append(origin) }
            }
            self.rotations[rank].origins = waiting
            self.rotations[rank].count = count
        }
        return removed
    }

    private mutating func discardIfUnused(_ origin: String) {
        if self.lanes[origin]?.isUnused == true { self.lanes[origin] = nil }
    }
}
