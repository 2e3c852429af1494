// Carillon · ProofLedger.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import DequeModule

/// Which notifications of one socket wait for which pong.
///
/// A pong confirms every sequence up to its own.
struct ProofLedger {
    struct Awaited {
        let sequence: UInt64
        let id: NotificationID
        let lane: Lane?
    }

    /// More than this many unproven notifications on a socket are not tracked; their deadline lapses and push goes out.
    private static let limit = 4_096

    private var awaited: Deque<Awaited> = []
    private(set) var sequence: UInt64 = 0

    var isEmpty: Bool { self.awaited.isEmpty }

    /// Notes a notification that the next ping will prove; false if too many wait already.
    mutating func await(_ id: NotificationID, lane: Lane?) -> Bool {
        guard self.awaited.count < Self.limit else { return false }
        self.awaited.append(Awaited(sequence: self.sequence + 1, id: id, lane: lane))
        return true
    }

    /// The number for the next ping.
    mutating func nextSequence() -> UInt64 {
        self.sequence += 1
        return self.sequence
    }

    /// What a pong proves.
    ///
    /// A number that was never sent proves nothing.
    mutating func confirm(_ sequence: UInt64) -> [Awaited] {
        guard sequence <= self.sequence else { return [] }
        var proven: [Awaited] = []
        while let first = self.awaited.first, first.sequence <= sequence {
            proven.append(first)
            self.awaited.removeFirst()
        }
        // An idle socket keeps no storage.
        if self.awaited.isEmpty { self.awaited = [] }
        return proven
    }

    /// What a client acknowledged by name.
    mutating func acknowledge(_ ids: Set<NotificationID>) -> [Awaited] {
        let proven = self.awaited.filter { ids.contains($0.id) }
        if !proven.isEmpty { self.awaited.removeAll { ids.contains($0.id) } }
        return Array(proven)
    }
}
