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
        /// An earlier change is missing; judge again once it has arrived or the client has caught
        /// up.
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

/// The reads of the inbox that bring one client up to date, one at a time.
///
/// A reset comes first, then the client's own requests, then the changes that it may lack.
struct CatchUp {
    enum Read {
        /// Replaces the client's list with the newest unread notifications.
        case reset
        case resumption(Resumption)
        /// Brings the changes after the last version that the client was sent.
        case changes
    }

    /// The most resumptions that may wait.
    private static let mostResumptions = 16

    /// Whether a read is under way.
    private(set) var isReading = false
    private var wantsReset = false
    private var resumptions: [Resumption] = []
    private var wantsChanges = false

    mutating func wantReset() { self.wantsReset = true }
    mutating func wantChanges() { self.wantsChanges = true }

    /// Queues a resumption behind the first sync and earlier resumptions; false if too many wait.
    mutating func want(_ resumption: Resumption) -> Bool {
        guard self.resumptions.count < Self.mostResumptions else { return false }
        self.resumptions.append(resumption)
        return true
    }

    /// Begins the most urgent read; nil while another is under way, or if none is wanted.
    mutating func begin() -> Read? {
        guard !self.isReading else { return nil }
        // A reset is wanted until one is answered.
        if self.wantsReset { return self.begin(.reset) }
        if !self.resumptions.isEmpty { return self.begin(.resumption(self.resumptions.removeFirst())) }
        guard self.wantsChanges else { return nil }
        self.wantsChanges = false
        return self.begin(.changes)
    }

    private mutating func begin(_ read: Read) -> Read {
        self.isReading = true
        return read
    }

    /// Undoes a read that could not be queued.
    ///
    /// Changes stay wanted; a reset or resumption is dropped.
    mutating func refused(_ read: Read) {
        self.isReading = false
        switch read {
        case .reset: self.wantsReset = false
        case .resumption: break
        case .changes: self.wantsChanges = true
        }
    }

    /// Ends the read with an answer; a reset also satisfies a reset that was requested during the
    /// read.
    mutating func ended(isReset: Bool) {
        self.isReading = false
        if isReset { self.wantsReset = false }
    }

    /// Ends a read that failed, and requests it again.
    ///
    /// - Parameter resumption: The client's request that the read should have answered, if any.
    mutating func failed(_ resumption: Resumption?) {
        self.isReading = false
        if let resumption {
            self.resumptions.insert(resumption, at: 0)
        } else if !self.wantsReset {
            self.wantsChanges = true
        }
    }
}

/// A client's request for the changes after a version; it is answered even if there are none.
struct Resumption: Sendable {
    let version: Int64
    /// Returned with the answer, in JSON.
    let reference: [UInt8]?
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
