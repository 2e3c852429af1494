// Carillon · SocketBackend.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A proof that a client has a notification.
package struct ReceiptProof: Sendable, Equatable {
    package let user: String
    package let id: NotificationID
    /// The lane of the wait that the proof ends; nil where nothing waits.
    package let awaitingLane: Lane?
    package let at: Timestamp

    package init(user: String, id: NotificationID, awaitingLane: Lane?, at: Timestamp) {
        self.user = user
        self.id = id
        self.awaitingLane = awaitingLane
        self.at = at
    }
}

/// Notifications that a client wants marked read.
package struct Reading: Sendable {
    package let user: String
    /// Nil means all.
    package let ids: [NotificationID]?
    /// Whether the client named them as a list, and not one by itself.
    package let isBulk: Bool

    package init(user: String, ids: [NotificationID]?, isBulk: Bool = false) {
        self.user = user
        self.ids = ids
        self.isBulk = isBulk
    }
}

/// A connection that is to be registered and brought up to date.
package struct SocketOpening: Sendable {
    package let user: String
    package let connection: String
    package let dialect: Dialect
    /// The version that the client has already; nil for a client that begins afresh.
    package let since: Int64?
    /// The mark that tells the user's clients apart, for dialects that find by a bookmark what a
    /// client missed.
    package let client: String?

    package init(user: String, connection: String, dialect: Dialect, since: Int64?, client: String? = nil) {
        self.user = user
        self.connection = connection
        self.dialect = dialect
        self.since = since
        self.client = client
    }
}

/// Up to where a connection has seen its inbox.
package struct SocketBookmark: Sendable, Equatable {
    package let user: String
    package let connection: String
    /// ``SocketOpening/client``.
    package let client: String
    package let version: Int64
    /// Whether the connection is over.
    package let hasLeft: Bool
}

/// An inbox of which a socket wants to know what changed since a version.
package struct InboxQuestion: Sendable {
    package let user: String
    /// Whose shape the notifications are to have.
    package let dialect: Dialect
    package let since: Int64
    /// Whether it is to be told also that nothing changed.
    package var wantsAnswer = false

    package init(user: String, dialect: Dialect, since: Int64) {
        self.user = user
        self.dialect = dialect
        self.since = since
    }
}

/// What sockets need of the rest of the gateway.
///
/// Calls come in batches from a fixed number of tasks.
package protocol SocketBackend: Sendable {
    /// Who a token speaks for.
    ///
    /// - Throws: ``SocketRefusal`` with the reason.
    func authenticate(token: String) async throws -> SocketIdentity

    /// Who sends a request; nil if it carries no credential that counts.
    ///
    /// - Throws: ``SocketRefusal`` with the reason.
    func authenticate(_ credentials: SocketCredentials) async throws -> SocketIdentity?

    /// Registers presence, and only then reads the inboxes.
    ///
    /// - Returns: a snapshot each, in the same order.
    func open(_ openings: [SocketOpening]) async throws -> [InboxSnapshot]

    /// Notes how far connections have seen their inboxes.
    func note(_ bookmarks: [SocketBookmark]) async throws

    /// Removes presence.
    func close(_ connections: [(user: String, connection: String)]) async throws

    /// The connections that presence names for a user on this node.
    func registered(user: String) async throws -> [String]

    /// Whether presence names each of these connections, in their order.
    func areRegistered(_ connections: [(user: String, connection: String)]) async throws -> [Bool]

    /// Registers presence again after the node was out of reach.
    func register(_ connections: [(user: String, connection: String, dialect: Dialect, since: Timestamp)]) async throws

    /// What changed in each inbox since a version; nil for those where nothing did, unless an answer is wanted all the same.
    func changes(_ questions: [InboxQuestion]) async throws -> [InboxSnapshot?]

    /// Records proofs of receipt.
    func confirm(_ proofs: [ReceiptProof]) async throws

    /// Changes how connections are present; those that have left stay away.
    func setStates(_ changes: [PresenceChange]) async throws

    /// Notes messages of a user, and tells at once whether its rate allows for more.
    func admits(messages: Int, of user: String) -> Bool

    /// Marks notifications read; every socket of the user is told.
    ///
    /// - Returns: the unread count after it.
    func markRead(_ reading: Reading) async throws -> Int32

    /// The unread count.
    func unreadCount(user: String) async throws -> Int32
}

/// Whether a client's user looks at it, as the client says.
package struct PresenceChange: Sendable {
    package let user: String
    package let connection: String
    package let state: ConnectionPresence.State
}

/// Why a socket is not let in.
package struct SocketRefusal: Error, Sendable, Equatable {
    /// An HTTP status: 401 or 403, or 503 if the credential cannot be checked now.
    package let status: Int
    package let reason: String

    package init(status: Int, reason: String) {
        self.status = status
        self.reason = reason
    }
}
