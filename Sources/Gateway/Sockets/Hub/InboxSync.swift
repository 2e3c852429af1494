// Carillon · InboxSync.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore

/// Decides which changes to send to one client, so that its inbox stays in order.
///
/// It does no I/O; the session acts on its answers.
struct InboxSync {
    enum Verdict: Equatable {
        /// It has no version, so it waits for no other.
        case send
        /// It is next in order; held changes may follow it.
        case sendNext
        /// The client has it, and its next proof covers it.
        case known
        /// Like ``known``, but a cut snapshot may have left it out, so no proof covers it.
        case skip
        /// An earlier change is missing, or the first sync.
        case hold
        /// It lacks the dialect's shape, which the inbox has; hold it until a read covers it.
        case read
        /// It lacks the dialect's shape and is in no inbox.
        case drop
    }

    /// The most changes that may wait for earlier ones; a read of the inbox recovers further ones.
    private static let longestWait = 1_024

    /// The newest version sent to the client; nil before the first sync.
    private(set) var last: Int64?
    /// The version of the last snapshot that left out some unread notifications.
    private var cutVersion: Int64 = 0
    /// Changes that wait for the first sync or for an earlier change.
    private var held: [LoopChange] = []
    private var heldSince: NIODeadline?
    var catchUp = CatchUp()

    var isHolding: Bool { self.heldSince != nil }

    /// Decides about a change, new or released.
    mutating func judge(_ change: LoopChange, for dialect: Dialect) -> Verdict {
        guard let last else { return .hold }
        let version = change.frame.version
        let isComplete = change.frame.isComplete(for: dialect)
        guard version > 0 else { return isComplete ? .send : .drop }
        guard version > last else { return version > self.cutVersion ? .known : .skip }
        guard isComplete else { return .read }
        guard change.frame.previous <= last else { return .hold }
        self.last = version
        return .sendNext
    }

    /// Holds a change; false if too many wait, so that a read must bring it.
    mutating func hold(_ change: LoopChange, now: NIODeadline) -> Bool {
        guard self.held.count < Self.longestWait else {
            // The read that is under way may be older than this change.
            self.catchUp.wantChanges()
            return false
        }
        self.held.append(change)
        self.heldSince = self.heldSince ?? now
        return true
    }

    /// Removes and returns the held changes, ordered by version.
    mutating func release() -> [LoopChange] {
        guard !self.held.isEmpty else { return [] }
        let held = self.held.sorted { $0.frame.version < $1.frame.version }
        self.held = []
        self.heldSince = nil
        return held
    }

    /// Whether changes have been held for longer than `limit`; if so, the time starts again.
    mutating func isOverdue(now: NIODeadline, limit: TimeAmount) -> Bool {
        guard let heldSince, now - heldSince > limit else { return false }
        self.heldSince = now
        return true
    }

    /// Returns what to send of a snapshot; nil if the client already has all of it.
    ///
    /// The snapshot replaces all that the client has if it is a reset or the client requested it.
    mutating func apply(_ snapshot: InboxSnapshot, isRequested: Bool, for dialect: Dialect) -> InboxSnapshot? {
        let last = self.last
        var lacking = snapshot
        if let last, isRequested || snapshot.isReset {
            // The snapshot has replaced newer changes, so they must be read again.
            if last > snapshot.version { self.catchUp.wantChanges() }
        } else if let last {
            guard snapshot.version > last else { return nil }
            lacking = snapshot.news(after: last)
        }
        self.last = snapshot.version
        if dialect.readsInboxOverREST { lacking = lacking.missing(after: last) }
        if lacking.hasMore { self.cutVersion = snapshot.version }
        return lacking
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
    private var isReading = false
    private var wantsReset = false
    private var resumptions: [Resumption] = []
    private var wantsChanges = false

    mutating func wantReset() { self.wantsReset = true }
    mutating func wantChanges() { self.wantsChanges = true }
    /// Wants changes, unless a read under way may bring them.
    mutating func wantMissing() { if !self.isReading { self.wantsChanges = true } }

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
    /// - Parameter resumption: the client's request that the read should have answered, if any.
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
