// Carillon · SocketBackend.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOHTTP1

/// A proof that a client has a notification.
package struct ReceiptProof: Sendable, Equatable {
    package let user: String
    package let id: NotificationID
    /// The lane in which a deadline waits for the proof; nil if none does.
    package let awaitingLane: Lane?
    package let at: Timestamp
}

/// A batch of proofs that PostgreSQL has; Redis must still drop their deadlines and publish the
/// events.
package struct RecordedProofs: Sendable, Equatable {
    package let proofs: [ReceiptProof]
    package let events: [LifecycleEvent]

    package init(_ proofs: [ReceiptProof], events: [LifecycleEvent]) {
        self.proofs = proofs
        self.events = events
    }
}

/// A request to mark notifications read.
package struct MarkReadRequest: Sendable {
    package let user: String
    /// Nil means all.
    package let ids: [NotificationID]?
    /// Whether the client sent a list of ids, not a single one.
    package var isBulk = false
}

/// A connection to register and bring up to date.
package struct SocketOpening: Sendable {
    package let user: String
    package let connection: String
    package let dialect: Dialect
    /// The version that the client has; nil for a new client.
    package let since: Int64?
    /// Tells the user's clients apart; nil in dialects that keep no bookmarks.
    package var client: String?
}

/// The version up to which a connection has seen its inbox.
package struct SocketBookmark: Sendable, Equatable {
    package let user: String
    package let connection: String
    /// ``SocketOpening/client``.
    package let client: String
    /// Nil once the client has ended the connection on purpose; its bookmark is then removed.
    package let version: Int64?
    /// When the client was last heard from, if the connection has closed or waits for a client that
    /// may be gone; else nil.
    package let lastHeard: Timestamp?

    /// Whether it says the same as an earlier one of its connection.
    ///
    /// A client that is away may still send messages; these do not make its bookmark a new one.
    func repeats(_ earlier: SocketBookmark?) -> Bool {
        guard let earlier else { return false }
        return self.version == earlier.version && (self.lastHeard == nil) == (earlier.lastHeard == nil)
    }
}

/// A query for the changes of an inbox since a version.
package struct CatchUpRequest: Sendable {
    package let user: String
    /// Decides the shape of the notifications.
    package let dialect: Dialect
    package let since: Int64
    /// Whether to answer even if nothing changed.
    package var wantsAnswer = false
}

/// The services that sockets need from the rest of the gateway.
///
/// A fixed number of tasks calls it with batches.
package protocol SocketBackend: Sendable {
    /// Verifies a token.
    ///
    /// - Throws: ``SocketRefusal`` with the reason.
    func authenticate(token: String) async throws -> SocketIdentity

    /// Verifies the credentials of a request; nil if it carries none.
    ///
    /// - Throws: ``SocketRefusal`` with the reason.
    func authenticate(_ credentials: PresentedCredentials) async throws -> SocketIdentity?

    /// Registers presence, and only then reads the inboxes.
    ///
    /// - Returns: one snapshot per opening, in the same order; nil where presence could not be
    ///   registered, because a master of the Redis cluster is down.
    func open(_ openings: [SocketOpening]) async throws -> [InboxSnapshot?]

    /// Stores bookmarks.
    func store(_ bookmarks: [SocketBookmark]) async throws

    /// Removes presence.
    ///
    /// - Returns: whether each is gone, in order; false where a master of the Redis cluster is
    ///   down.
    func close(_ departures: [SocketDeparture]) async throws -> [Bool]

    /// Records the last visit of each departed user who has no socket now.
    func markSeen(_ departures: [SocketDeparture]) async throws

    /// Returns the connections of each user that presence lists for this node, in the order of the
    /// users; nil where a master of the Redis cluster is down.
    ///
    /// - Parameter renews: whether to extend the lifetime of the users' registrations.
    func registered(_ users: [String], renews: Bool) async throws -> [[String]?]

    /// Registers presence again after the node was cut off.
    ///
    /// - Returns: whether each was registered, in order; a master of the Redis cluster that is down
    ///   fails only its own connections.
    /// - Throws: if none was.
    func register(_ connections: [SocketRegistration]) async throws -> [Bool]

    /// Reads the changes of each inbox since a version; nil where nothing changed, unless an answer
    /// is wanted.
    func changes(_ requests: [CatchUpRequest]) async throws -> [InboxSnapshot?]

    /// Records proofs of receipt in PostgreSQL, without Redis.
    ///
    /// - Returns: what ``settle(_:)`` needs.
    func confirm(_ proofs: [ReceiptProof]) async throws -> RecordedProofs

    /// Drops the deadlines of recorded proofs and publishes their events; counts the events that
    /// Redis does not accept.
    func settle(_ recorded: RecordedProofs) async

    /// Changes the state of connections; does not restore those that have left.
    ///
    /// - Throws: if any was not changed; a master of the Redis cluster that is down fails only its
    ///   own connections.
    func setStates(_ changes: [PresenceChange]) async throws

    /// Counts a user's messages; false if that exceeds the user's rate.
    func admits(messages: Int, of user: String) -> Bool

    /// Counts a new socket or stream of a user; false if that exceeds the user's rate.
    func admitsOpening(of user: String) -> Bool

    /// Marks notifications read and sends the change to every socket of the user.
    ///
    /// - Returns: the unread count after it.
    func markRead(_ request: MarkReadRequest) async throws -> Int32

    /// Returns the unread count.
    func unreadCount(user: String) async throws -> Int32
}

/// The state of a connection, as its client reports it.
package struct PresenceChange: Sendable {
    package let user: String
    package let connection: String
    package let state: ConnectionPresence.State
    /// When it entered the state.
    package let since: Timestamp
}

/// A connection that has ended.
package struct SocketDeparture: Sendable {
    package let user: String
    package let connection: String
    /// When it ended.
    package let at: Timestamp
}

/// A connection to register again, in its current state.
package struct SocketRegistration: Sendable {
    package let user: String
    package let connection: String
    package let dialect: Dialect
    package let since: Timestamp
    package let state: ConnectionPresence.State
    /// When it entered its state; nil if it never changed.
    package let stateSince: Timestamp?
}

/// The reason why a socket is refused.
package struct SocketRefusal: Error, Sendable, Equatable {
    /// An HTTP status: 401 or 403, or 503 if the credential cannot be checked now.
    let status: Int
    let reason: String

    package init(status: Int, reason: String) {
        self.status = status
        self.reason = reason
    }
}

/// The content that brings a client up to date with an inbox.
package struct InboxSnapshot: Sendable {
    /// A notification in the shape of the dialect that asked.
    package struct Item: Sendable {
        let id: NotificationID
        /// The inbox version of its latest change.
        package let version: Int64
        package let json: [UInt8]
        /// Whether its receipt is not proven yet.
        let awaitsProof: Bool
        let lane: Lane
        let isRead: Bool

        package init(
            id: NotificationID,
            version: Int64,
            json: [UInt8],
            awaitsProof: Bool,
            lane: Lane,
            isRead: Bool
        ) {
            self.id = id
            self.version = version
            self.json = json
            self.awaitsProof = awaitsProof
            self.lane = lane
            self.isRead = isRead
        }
    }

    /// A deleted notification.
    package struct Deletion: Sendable {
        let id: NotificationID
        /// The inbox version of its deletion.
        let version: Int64

        package init(id: NotificationID, version: Int64) {
            self.id = id
            self.version = version
        }
    }

    package var version: Int64
    var unread: Int32
    var total: Int32
    /// The newest unread notifications, or all changed ones if changes were requested.
    package var items: [Item]
    /// Notifications deleted since the requested version.
    var deleted: [Deletion]
    /// Whether the snapshot leaves out changes since the requested version.
    ///
    /// The client must then discard what it has, unless the snapshot answers a return.
    package var isReset = false
    package var hasMore = false
    /// Whether `items` are what a returning client has missed, oldest first.
    package var isReturn = false
    /// The bookmark of a returning client, if the snapshot leaves out changes since it; else nil.
    package var bookmark: Int64?

    /// The version up to which the client has seen everything until it proves receipt of this
    /// snapshot.
    var seenBefore: Int64 {
        // The items do not tell the first of the changes that are left out.
        if let bookmark { return bookmark }
        var unproven = self.items.filter { self.isReturn || $0.awaitsProof }.map(\.version)
        if self.isReturn { unproven += self.deleted.map(\.version) }
        return unproven.min().map { $0 - 1 } ?? self.version
    }

    package init(
        version: Int64,
        unread: Int32,
        total: Int32,
        items: [Item] = [],
        deleted: [Deletion] = []
    ) {
        self.version = version
        self.unread = unread
        self.total = total
        self.items = items
        self.deleted = deleted
    }

    /// Returns the part that is new to a client that has all changes up to `version`.
    func news(after version: Int64) -> InboxSnapshot {
        var news = self
        news.items.removeAll { $0.version <= version }
        news.deleted.removeAll { $0.version <= version }
        return news
    }

    /// Returns the part that is new to a client that reads its inbox over REST, oldest first.
    ///
    /// - Parameter sent: the version up to which the client was sent everything; nil at its start,
    ///   when only notifications that await proof are new to it.
    func missing(after sent: Int64?) -> InboxSnapshot {
        guard !self.isReturn, self.isReset || sent == nil else { return self }
        // A reset inbox restarts its versions.
        let sent = sent.map { $0 > self.version ? 0 : $0 }
        var missing = self
        missing.items = self.items.reversed().filter { item in sent.map { item.version > $0 } ?? item.awaitsProof }
        // The client reads the rest over REST, so no proof of it is awaited.
        missing.hasMore = self.hasMore || sent == nil
        return missing
    }
}

/// The user of a socket, and how long its token is valid.
package struct SocketIdentity: Sendable, Equatable {
    let user: String
    /// When the token was issued, if known.
    let issuedAt: Timestamp?
    let expiresAt: Timestamp?

    package init(user: String, issuedAt: Timestamp? = nil, expiresAt: Timestamp?) {
        self.user = user
        self.issuedAt = issuedAt
        self.expiresAt = expiresAt
    }

    /// Whether its token was issued later than another's; if that is unknown or equal, whether it
    /// expires later.
    func isNewer(than other: SocketIdentity) -> Bool {
        if let own = self.issuedAt, let others = other.issuedAt, own != others { return own > others }
        guard let end = other.expiresAt else { return false }
        return self.expiresAt.map { $0 > end } ?? true
    }
}

/// The unverified credentials of a request.
package struct PresentedCredentials: Sendable, CustomStringConvertible {
    /// All `Authorization` fields.
    package var authorization: [String] = []
    /// All `Cookie` fields.
    package var cookies: [String] = []
    /// The field `Origin`, which browsers set and pages cannot forge.
    package var origin: String?
    /// The field `Sec-Fetch-Site`, also set by browsers.
    package var fetchSite: String?
    /// False for GET and HEAD, which change nothing and whose responses other origins cannot read.
    package var isUnsafe = true
    /// A token in the dialect's own place: a subprotocol, the query or a message.
    package var token: String?
    /// A one-time ticket, from the query.
    package var ticket: String?

    package init() {}

    /// Takes the credentials of a socket or a stream, without cookies, because browsers send those
    /// for any page.
    init(ofSocket headers: HTTPHeaders) {
        self.authorization = headers["authorization"]
    }

    /// Hides the credentials.
    package var description: String { "credentials" }
}
