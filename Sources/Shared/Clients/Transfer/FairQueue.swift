// Carillon · FairQueue.swift
// SPDX-License-Identifier: Apache-2.0

import DequeModule

/// A queue that shares a limited number of slots fairly between hosts.
///
/// Higher priorities go first. Within a priority the hosts take turns, each in order of arrival. No
/// host holds more than its share, so a hanging host delays only its own requests. Each host begins
/// with the narrow share, until ``widen(origin:)``.
///
/// Not copyable, as copies would share their hosts.
struct FairQueue<Element>: ~Copyable {
    /// One host, kept while it has waiting or in-flight elements.
    ///
    /// A class, as changing a struct inside the dictionary allocates.
    private final class Host {
        /// The most elements in flight.
        var share: Int
        /// The waiting elements of each priority, in order of arrival.
        var lines = Array(repeating: Deque<Element>(), count: TransferPriority.allCases.count)
        var inFlight = 0

        init(share: Int) {
            self.share = share
        }

        var isUnused: Bool { self.inFlight == 0 && self.lines.allSatisfy { $0.isEmpty } }
    }

    /// The hosts with elements of one priority.
    private struct Rotation {
        /// The hosts with waiting elements, and the index of the next one.
        var hosts: [Host] = []
        var turn = 0
        /// The number of waiting elements of all hosts.
        var count = 0
    }

    /// The most wide hosts remembered; at this limit all are forgotten, and found again.
    private static var wideOriginsBound: Int { 1_024 }

    private let share: Int
    private let narrowShare: Int
    private var wideOrigins: Set<String> = []
    private var hosts: [String: Host] = [:]
    /// One rotation a priority.
    private var rotations = Array(repeating: Rotation(), count: TransferPriority.allCases.count)

    /// The number of waiting elements.
    var count: Int { self.rotations.reduce(0) { $0 + $1.count } }

    /// - Parameters:
    ///   - share: the in-flight limit of one wide host.
    ///   - narrowShare: the same for other hosts; nil for the same limit.
    init(share: Int, narrowShare: Int? = nil) {
        self.share = share
        self.narrowShare = narrowShare ?? share
    }

    /// Returns the number of waiting elements of one priority.
    func count(of priority: TransferPriority) -> Int { self.rotations[priority.rawValue].count }

    /// Appends `element` behind the others of its host and priority.
    mutating func append(_ element: Element, origin: String, priority: TransferPriority = .normal) {
        self.addingHost(origin, priority).lines[priority.rawValue].append(element)
    }

    /// Puts `element` before the others of its host and priority.
    mutating func prepend(_ element: Element, origin: String, priority: TransferPriority = .normal) {
        self.addingHost(origin, priority).lines[priority.rawValue].prepend(element)
    }

    /// Returns a host that gets an element, in the rotation of its priority.
    private mutating func addingHost(_ origin: String, _ priority: TransferPriority) -> Host {
        let rank = priority.rawValue
        let host = self.host(of: origin)
        if host.lines[rank].isEmpty { self.rotations[rank].hosts.append(host) }
        self.rotations[rank].count += 1
        return host
    }

    private mutating func host(of origin: String) -> Host {
        if let known = self.hosts[origin] { return known }
        let host = Host(share: self.wideOrigins.contains(origin) ? self.share : self.narrowShare)
        self.hosts[origin] = host
        return host
    }

    /// Removes the next element whose host has a free slot.
    ///
    /// Call ``release(origin:)`` when it ends.
    mutating func next() -> Element? {
        for rank in self.rotations.indices {
            if let next = self.next(of: rank) { return next }
        }
        return nil
    }

    private mutating func next(of rank: Int) -> Element? {
        for _ in 0..<self.rotations[rank].hosts.count {
            if self.rotations[rank].turn >= self.rotations[rank].hosts.count { self.rotations[rank].turn = 0 }
            let turn = self.rotations[rank].turn
            let host = self.rotations[rank].hosts[turn]
            guard host.inFlight < host.share, let element = host.lines[rank].popFirst() else {
                self.rotations[rank].turn += 1
                continue
            }
            host.inFlight += 1
            self.rotations[rank].count -= 1
            if host.lines[rank].isEmpty {
                self.rotations[rank].hosts.remove(at: turn)
            } else {
                self.rotations[rank].turn += 1
            }
            return element
        }
        return nil
    }

    /// Gives a host with an element in flight the wide share, until ``narrow(origin:)``.
    mutating func widen(origin: String) {
        guard let host = self.hosts[origin], host.share != self.share else { return }
        host.share = self.share
        if self.wideOrigins.count >= Self.wideOriginsBound { self.wideOrigins.removeAll() }
        self.wideOrigins.insert(origin)
    }

    /// Gives a host with an element in flight the narrow share again.
    mutating func narrow(origin: String) {
        guard let host = self.hosts[origin], host.share != self.narrowShare else { return }
        host.share = self.narrowShare
        self.wideOrigins.remove(origin)
    }

    /// Frees a slot of the host.
    mutating func release(origin: String) {
        guard let host = self.hosts[origin] else { return }
        host.inFlight -= 1
        if host.isUnused { self.hosts[origin] = nil }
    }

    /// Removes and returns the waiting elements that match, in no particular order.
    mutating func removeAll(where predicate: (Element) -> Bool) -> [Element] {
        var removed: [Element] = []
        for rank in self.rotations.indices {
            var count = 0
            for host in self.rotations[rank].hosts {
                var kept: Deque<Element> = []
                // Tests each element once, because a request may be cancelled between two tests.
                for element in host.lines[rank] {
                    if predicate(element) { removed.append(element) } else { kept.append(element) }
                }
                host.lines[rank] = kept
                count += kept.count
            }
            self.rotations[rank].hosts.removeAll { $0.lines[rank].isEmpty }
            self.rotations[rank].count = count
        }
        self.hosts = self.hosts.filter { !$0.value.isUnused }
        return removed
    }
}
