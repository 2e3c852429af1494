// Carillon · LoopChange.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import Synchronization

/// What a node was told about one user: a change of the inbox or an event.
package struct NodeChange: Sendable {
    package enum Kind: Sendable {
        /// The body is the notification's JSON.
        case notification
        /// The body is `{"ids":[…]}` or `{"all":true,"up_to_version":N}`.
        case read
        /// The body is `{"ids":[…]}` or `{"all_read":true,"up_to_version":N}`.
        case deleted
        /// The body is `{"name":…,"args":[…]}`.
        case event
    }

    /// A notification's JSON, or what else happened.
    package struct Body: Sendable {
        let canonical: [UInt8]
        /// Empty if no connection of the user's needed it when this was published.
        let camelCase: [UInt8]

        package init(canonical: [UInt8], camelCase: [UInt8] = []) {
            self.canonical = canonical
            self.camelCase = camelCase
        }
    }

    let user: ExactText
    package let previous: Int64
    /// The inbox version; 0 for an event.
    package let version: Int64
    package let id: NotificationID
    package let awaitingLane: Lane?
    let kind: Kind
    let unread: Int32
    let body: Body
    /// Who does not get what all others get; nil for a change that is for its user alone.
    let everyoneBut: Set<ExactText>?

    package init(
        kind: Kind,
        user: String,
        previous: Int64,
        version: Int64,
        unread: Int32,
        id: NotificationID,
        awaitingLane: Lane?,
        body: Body,
        everyoneBut: Set<ExactText>? = nil
    ) {
        self.kind = kind
        self.user = ExactText(user)
        self.previous = previous
        self.version = version
        self.unread = unread
        self.id = id
        self.awaitingLane = awaitingLane
        self.body = body
        self.everyoneBut = everyoneBut
    }

    /// Whether it carries what the dialect needs.
    ///
    /// A body that is missing here is in the inbox: it was stored before the connection that needs
    /// it was registered.
    func isComplete(for dialect: Dialect) -> Bool {
        self.kind != .notification || dialect.shape == .canonical || !self.body.camelCase.isEmpty
    }

    var isNotification: Bool { self.kind == .notification }
}

/// A change for the sockets of one event loop.
///
/// The first socket that needs a dialect's bytes encodes them; the others share them.
final class LoopChange {
    let change: NodeChange
    private var frames: [(dialect: Dialect, frame: ByteBuffer)] = []

    private var bundle: SignalRBundle?

    init(_ change: NodeChange) {
        self.change = change
    }

    /// Returns the dialect's bytes.
    func frame(_ dialect: Dialect, _ make: (NodeChange) -> ByteBuffer) -> ByteBuffer {
        for existing in self.frames where existing.dialect == dialect { return existing.frame }
        let frame = make(self.change)
        self.frames.append((dialect, frame))
        return frame
    }

    /// Returns the records for SignalR clients.
    func bundle(_ make: (NodeChange) -> SignalRBundle) -> SignalRBundle {
        if let bundle { return bundle }
        let bundle = make(self.change)
        self.bundle = bundle
        return bundle
    }
}

/// Counts the changes queued on an event loop and sheds load above a limit.
///
/// Once the limit is reached, nothing passes until the loop has drained its queue: what was shed is
/// read from the inboxes, and later changes would only be held.
final class LoopBacklog: Sendable {
    private struct State {
        var waiting = 0
        var isShedding = false
    }

    private let limit: Int
    private let state = Mutex(State())

    init(limit: Int) {
        self.limit = limit
    }

    /// Admits changes; false if the queue is full or still draining after it was.
    func take(_ count: Int) -> Bool {
        self.state.withLock { state in
            if state.waiting > 0, state.isShedding || state.waiting + count > self.limit {
                state.isShedding = true
                return false
            }
            state.waiting += count
            return true
        }
    }

    /// Notes that the loop handled changes.
    ///
    /// - Returns: True if the queue is now empty and changes were shed before.
    func giveBack(_ count: Int) -> Bool {
        self.state.withLock { state in
            state.waiting -= count
            guard state.waiting == 0, state.isShedding else { return false }
            state.isShedding = false
            return true
        }
    }
}

/// Finds the users of a batch who have no socket on any shard of the node.
final class MissTally: Sendable {
    private struct State {
        var reports = 0
        var misses: [ExactText: Int] = [:]
    }

    private let state = Mutex(State())
    private let shards: Int

    /// - Parameter shards: The number of shards that report.
    init(shards: Int) {
        self.shards = shards
    }

    /// Takes the users without a socket on one shard.
    ///
    /// - Returns: The users without a socket anywhere, once the last shard has reported; empty
    ///   before.
    func note(_ missing: Set<ExactText>) -> [ExactText] {
        self.state.withLock { state in
            state.reports += 1
            for user in missing { state.misses[user, default: 0] += 1 }
            guard state.reports == self.shards else { return [] }
            return state.misses.filter { $0.value == self.shards }.map(\.key)
        }
    }
}
