// Carillon · ProofLedger.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import DequeModule

/// The notifications of one socket that wait for a pong, and the inbox version that is proven.
///
/// A pong confirms every sequence up to its own.
struct ProofLedger {
    struct Awaited {
        let sequence: UInt64
        let id: NotificationID
        let lane: Lane?
    }

    /// Notifications beyond this are not tracked; their deadline passes and push goes out.
    private static let limit = 4_096
    /// The most requests whose versions are kept; at the limit, a new one replaces the last.
    private static let mostVersions = 32

    private var awaited: Deque<Awaited> = []
    private var sequence: UInt64 = 0
    /// Whether the next flush must request a proof.
    private(set) var isWanted = false
    /// The version up to which receipt is proven; nil until the inbox was read.
    private(set) var seen: Int64?
    /// The versions that the requested proofs cover.
    private var versions: [(sequence: UInt64, version: Int64)] = []

    /// Starts at the version that the client had seen before anything was sent.
    mutating func begin(at version: Int64) { self.seen = version }

    mutating func want() { self.isWanted = true }

    /// Tracks a notification until the next ping is answered; false if too many wait already.
    mutating func await(_ id: NotificationID, lane: Lane?) -> Bool {
        guard self.awaited.count < Self.limit else { return false }
        self.awaited.append(Awaited(sequence: self.sequence + 1, id: id, lane: lane))
        self.isWanted = true
        return true
    }

    /// Returns the number of the next ping.
    ///
    /// - Parameter version: the version that its pong proves; nil if the client has no bookmark.
    mutating func nextSequence(through version: Int64?) -> UInt64 {
        self.isWanted = false
        self.sequence += 1
        guard let version else { return self.sequence }
        if self.versions.count >= Self.mostVersions { self.versions.removeLast() }
        self.versions.append((self.sequence, version))
        return self.sequence
    }

    /// Removes and returns what a pong confirms; nothing for a number that was never sent.
    mutating func confirm(_ sequence: UInt64) -> [Awaited] {
        guard sequence <= self.sequence else { return [] }
        while let first = self.versions.first, first.sequence <= sequence {
            self.seen = max(self.seen ?? first.version, first.version)
            self.versions.removeFirst()
        }
        var proven: [Awaited] = []
        while let first = self.awaited.first, first.sequence <= sequence {
            proven.append(first)
            self.awaited.removeFirst()
        }
        // Frees the storage while the socket is idle.
        if self.awaited.isEmpty { self.awaited = [] }
        return proven
    }

    /// Removes and returns the notifications that a client acknowledged by id.
    mutating func acknowledge(_ ids: Set<NotificationID>) -> [Awaited] {
        let proven = self.awaited.filter { ids.contains($0.id) }
        if !proven.isEmpty { self.awaited.removeAll { ids.contains($0.id) } }
        return Array(proven)
    }
}
