// Carillon · SocketProgress.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import DequeModule

/// Keeps one socket's inbox in order: drops duplicates and holds changes that came too early.
struct InboxSequence {
    enum Verdict: Equatable {
        case send
        /// The client already has it.
        case known
        /// An earlier change is missing; judge again once it has arrived or the gap was filled.
        case hold
    }

    /// The newest version sent to the client; nil before the first sync.
    private(set) var last: Int64?

    /// Decides about a change from version `previous` to `version`.
    mutating func judge(previous: Int64, version: Int64) -> Verdict {
        guard let last else { return .hold }
        if version <= last { return .known }
        guard previous <= last else { return .hold }
        self.last = version
        return .send
    }

    /// Notes that the client is up to date with `version`.
    mutating func advance(to version: Int64) {
        self.last = max(self.last ?? version, version)
    }

    /// Restarts the sequence at `version`.
    mutating func reset(to version: Int64) {
        self.last = version
    }
}

/// The notifications of one socket that wait for a pong.
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

    private var awaited: Deque<Awaited> = []
    private(set) var sequence: UInt64 = 0

    /// Tracks a notification until the next ping is answered; false if too many wait already.
    mutating func await(_ id: NotificationID, lane: Lane?) -> Bool {
        guard self.awaited.count < Self.limit else { return false }
        self.awaited.append(Awaited(sequence: self.sequence + 1, id: id, lane: lane))
        return true
    }

    /// Returns the number of the next ping.
    mutating func nextSequence() -> UInt64 {
        self.sequence += 1
        return self.sequence
    }

    /// Removes and returns what a pong confirms; nothing for a number that was never sent.
    mutating func confirm(_ sequence: UInt64) -> [Awaited] {
        guard sequence <= self.sequence else { return [] }
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

/// The proofs awaited from a polling client; each is given once the client has a certain number of
/// messages.
struct PolledProofs {
    private var awaited: [(sequence: UInt64, messages: UInt64)] = []

    /// The last proof that is awaited.
    var last: UInt64? { self.awaited.last?.sequence }

    /// Awaits a proof of everything up to a message; it replaces an earlier one for that message.
    mutating func await(_ sequence: UInt64, after messages: UInt64) {
        if self.awaited.last?.messages == messages { self.awaited.removeLast() }
        self.awaited.append((sequence, messages))
    }

    /// Removes the proofs that are given once a client has this many messages.
    ///
    /// - Returns: the last of them, which covers the others.
    mutating func settle(_ messages: UInt64) -> UInt64? {
        let settled = self.awaited.prefix { $0.messages <= messages }
        // Frees the storage while the socket is idle.
        if settled.count == self.awaited.count { self.awaited = [] } else { self.awaited.removeFirst(settled.count) }
        return settled.last?.sequence
    }

    mutating func removeAll() { self.awaited = [] }
}

/// The version of its inbox up to which a client has proven receipt.
struct SeenVersion {
    /// The most pending proofs whose versions are kept; at the limit, a new one replaces the last.
    private static let limit = 32

    /// Nil until the inbox was read.
    private(set) var version: Int64?
    private var pending: [(sequence: UInt64, version: Int64)] = []

    /// Starts at the version that the client had seen before anything was sent.
    mutating func begin(at version: Int64) { self.version = version }

    /// Notes the version that a requested proof covers.
    mutating func requested(_ sequence: UInt64, through version: Int64) {
        if self.pending.count >= Self.limit { self.pending.removeLast() }
        self.pending.append((sequence, version))
    }

    /// Notes a proof, which also covers the earlier ones.
    mutating func proven(_ sequence: UInt64) {
        while let first = self.pending.first, first.sequence <= sequence {
            self.version = max(self.version ?? first.version, first.version)
            self.pending.removeFirst()
        }
    }
}
