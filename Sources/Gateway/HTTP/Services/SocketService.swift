// Carillon · SocketService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Operations
import Sockets
import Storage

/// The sockets' backend on the stores and streams.
package struct SocketService: SocketBackend {
    /// The first sync holds the newest unread notifications within these limits of count and bytes.
    private static let syncCount = 100
    private static let syncBytes = 256 * 1024
    /// The most changes and bytes that a resume replays; a client that missed more starts over.
    ///
    /// The bytes are half of what may wait for a slow reader.
    private static let longestGap = 500
    private static let longestGapBytes = 512 * 1024
    /// The inboxes per round trip, each with at most ``longestGap`` rows.
    private static let usersPerRead = 32

    private let node: String
    private let credentials: CredentialResolver
    private let inbox: InboxStore
    private let inboxService: InboxService
    private let notifications: NotificationStore
    private let presence: PresenceRegistry
    private let bookmarks: Bookmarks
    private let users: UserStore
    private let proofDeadlines: ProofDeadlines
    private let events: EventPublisher
    private let redis: RedisClient
    private let catalogs: CatalogRegister
    private let messageRate: UserRate?
    private let openingRate: UserRate?
    private let now: @Sendable () -> Timestamp

    package init(
        _ base: GatewayBase,
        node: String,
        credentials: CredentialResolver,
        inbox: InboxServices,
        users: UserStore,
        messageRate: UserRate?,
        openingRate: UserRate?
    ) {
        self.node = node
        self.credentials = credentials
        self.inbox = inbox.store
        self.inboxService = inbox.service
        self.notifications = base.database.notifications
        self.presence = base.presence
        self.bookmarks = base.live.bookmarks
        self.users = users
        self.proofDeadlines = base.live.proofDeadlines
        self.events = base.events
        self.redis = base.live.connection
        self.catalogs = base.catalogs
        self.messageRate = messageRate
        self.openingRate = openingRate
        self.now = base.now
    }

    package func authenticate(token: String) async throws -> SocketIdentity {
        do throws(TokenFault) {
            return SocketIdentity(try await self.credentials.caller(token: token))
        } catch {
            throw SocketRefusal(error)
        }
    }

    package func authenticate(_ credentials: SocketCredentials) async throws -> SocketIdentity? {
        do throws(TokenFault) {
            let caller = try await self.credentials.caller(PresentedCredentials(credentials), accepting: .socket)
            return caller.map { SocketIdentity($0) }
        } catch {
            throw SocketRefusal(error)
        }
    }

    package func open(_ openings: [SocketOpening]) async throws -> [InboxSnapshot?] {
        let now = self.now()
        // Register presence first: later notifications are then published here, earlier ones are
        // read below.
        let areRegistered = try await self.presence.register(
            openings.map { opening in
                (
                    opening.user,
                    ConnectionPresence(
                        connection: opening.connection,
                        node: self.node,
                        dialect: opening.dialect,
                        state: .active,
                        since: now
                    )
                )
            }
        )
        let places = openings.indices.filter { areRegistered[$0] }
        let registered = places.map { openings[$0] }
        let returns = try await self.returns(registered, at: now)
        let snapshots = try await self.snapshots(
            zip(registered, returns).map { opening, seen in
                Request(
                    user: opening.user, dialect: opening.dialect, since: opening.since ?? seen,
                    isReturn: opening.since == nil && seen != nil)
            }
        )
        var answers = [InboxSnapshot?](repeating: nil, count: openings.count)
        for (place, snapshot) in zip(places, snapshots) { answers[place] = snapshot }
        return answers
    }

    /// Returns the version from which each client without a `resume` continues, by its bookmark.
    private func returns(_ openings: [SocketOpening], at now: Timestamp) async throws -> [Int64?] {
        var versions = [Int64?](repeating: nil, count: openings.count)
        let places = openings.indices.filter { openings[$0].since == nil && openings[$0].client != nil }
        let presence = self.presence
        let claimed = try await self.bookmarks.claim(
            places.map { (openings[$0].user, openings[$0].connection, openings[$0].client ?? "") },
            at: now
        ) { (users: [String]) async throws(RedisError) -> [Set<String>] in
            try await presence.lookUp(users).map { presence -> Set<String> in
                guard case .online(let connections) = presence else { return [] }
                return Set(connections.map(\.connection))
            }
        }
        for (place, version) in zip(places, claimed) { versions[place] = version }
        return versions
    }

    package func note(_ bookmarks: [SocketBookmark]) async throws {
        try await self.bookmarks.note(
            bookmarks.map { bookmark in
                (
                    bookmark.user, bookmark.connection,
                    bookmark.version.map { Bookmark(client: bookmark.client, version: $0, hasLeft: bookmark.hasLeft) }
                )
            },
            at: self.now()
        )
    }

    package func close(_ departures: [SocketDeparture]) async throws -> [Bool] {
        try await self.presence.remove(departures.map { ($0.user, $0.connection) })
    }

    package func markSeen(_ departures: [SocketDeparture]) async throws {
        let users = ExactText.distinct(departures.map(\.user))
        let presences = try await self.presence.lookUp(users)
        let offline = Set(zip(users, presences).filter { $1 == .offline }.map { ExactText($0.0) })
        let last = departures.filter { offline.contains(ExactText($0.user)) }
        try await self.users.markSeen(last.map { ($0.user, $0.at) })
    }

    package func registered(user: String) async throws -> [String] {
        guard case .online(let connections) = try await self.presence.lookUp([user]).first else { return [] }
        return connections.filter { $0.node == self.node }.map(\.connection)
    }

    package func areRegistered(
        _ connections: [(user: String, connection: String)],
        renews: Bool
    ) async throws -> [Bool] {
        try await self.presence.areRegistered(connections, renews: renews)
    }

    package func register(_ connections: [SocketRegistration]) async throws -> [Bool] {
        try await self.presence.register(
            connections.map { connection in
                (
                    connection.user,
                    ConnectionPresence(
                        connection: connection.connection,
                        node: self.node,
                        dialect: connection.dialect,
                        state: connection.state,
                        since: connection.since,
                        stateSince: connection.stateSince
                    )
                )
            }
        )
    }

    package func setStates(_ changes: [PresenceChange]) async throws {
        try await self.presence.setStates(changes.map { ($0.user, $0.connection, $0.state, $0.since) })
    }

    package func admits(messages: Int, of user: String) -> Bool {
        self.messageRate?.delay(user, count: messages) == nil
    }

    package func admitsOpening(of user: String) -> Bool { self.openingRate?.delay(user) == nil }

    package func changes(_ questions: [InboxQuestion]) async throws -> [InboxSnapshot?] {
        let snapshots = try await self.snapshots(
            questions.map { Request(user: $0.user, dialect: $0.dialect, since: $0.since) })
        return zip(questions, snapshots).map { question, snapshot in
            let isUnchanged = question.since == snapshot.version && !snapshot.isReset
            return isUnchanged && !question.wantsAnswer ? nil : snapshot
        }
    }

    package func confirm(_ proofs: [ReceiptProof]) async throws -> RecordedProofs {
        let delivered = try await self.notifications.markDelivered(
            proofs.map { ($0.user, $0.id, $0.at) }, via: "socket")
        return RecordedProofs(
            proofs, events: delivered.map { LifecycleEvent(.delivered, $0.label, at: $0.at, channel: .inApp) })
    }

    package func finish(_ recorded: RecordedProofs) async {
        let waiting = recorded.proofs.compactMap { proof in
            proof.awaitingLane.map { AwaitedProof(id: proof.id, user: proof.user, lane: $0) }
        }
        var batch = RedisBatch()
        self.proofDeadlines.remove(waiting, in: &batch)
        let waits = batch.count
        self.events.add(recorded.events, in: &batch)
        do throws(RedisError) {
            // Waits out a short outage of a single Redis, but not for a cluster's absent master.
            let replies = try await self.redis.send(batch, isPatient: false)
            // If a deadline remains, it expires, and the dispatcher then finds the row delivered.
            self.events.note(replies.dropFirst(waits))
        } catch {
            self.events.lose(recorded.events.count, error)
        }
    }

    package func markRead(_ reading: Reading) async throws -> Int32 {
        try await self.inboxService.markRead(
            user: reading.user, ids: reading.ids, isBulk: reading.isBulk, isPatient: false
        ).unread
    }

    package func unreadCount(user: String) async throws -> Int32 {
        try await self.inbox.states([user]).first?.unread ?? 0
    }

    // MARK: Snapshots

    /// A request for the state of an inbox.
    private struct Request {
        let user: String
        let dialect: Dialect
        let since: Int64?
        /// Whether to replay what was missed, within the limits of a first sync.
        var isReturn = false
    }

    /// The changes of an inbox since a version, which several sockets may miss.
    private struct Gap: Hashable {
        let user: ExactText
        let since: Int64
    }

    /// Reads inboxes together; if PostgreSQL does not answer in time, each alone.
    ///
    /// One large inbox may be at fault. After two timeouts, or 18 s, reads the rest together.
    ///
    /// - Returns: a value for each key; nil for an inbox that is too large to read in time even
    ///   alone.
    private func read<Key, Value>(
        _ keys: [Key],
        _ body: ([Key]) async throws(PostgresError) -> [Value]
    ) async throws(PostgresError) -> [Value?] {
        do throws(PostgresError) {
            return try await body(keys).map { .some($0) }
        } catch {
            guard error.sqlState == "57014" else { throw error }
        }
        guard keys.count > 1 else { return keys.map { _ in nil } }
        let end = ContinuousClock.now + .seconds(18)
        var values: [Value?] = []
        var timeouts = 0
        for (place, key) in keys.enumerated() {
            // More timeouts would hold up all sockets. The rest fails only if all of PostgreSQL is
            // slow.
            guard timeouts < 2, ContinuousClock.now < end else {
                let rest = try await body(Array(keys[place...])).map(Optional.some)
                return values + rest
            }
            let value = try await self.read([key], body)[0]
            if value == nil { timeouts += 1 }
            values.append(value)
        }
        return values
    }

    /// Returns the changes since a version, or the newest unread without one.
    ///
    /// A client below the floor or too far behind is reset to the newest unread, and so is one
    /// whose changes PostgreSQL cannot read in time.
    private func snapshots(_ requests: [Request]) async throws -> [InboxSnapshot] {
        var snapshots = try await self.resumed(requests)
        let places = requests.indices.filter { snapshots[$0] == nil }
        for (place, snapshot) in zip(places, try await self.newestSnapshots(places.map { requests[$0] })) {
            snapshots[place] = snapshot
        }
        return snapshots.compactMap(\.self)
    }

    /// Returns the changes since a version; nil for a client that must start over.
    private func resumed(_ requests: [Request]) async throws -> [InboxSnapshot?] {
        var snapshots = [InboxSnapshot?](repeating: nil, count: requests.count)
        let resuming = requests.indices.filter { requests[$0].since != nil }
        let states = resuming.isEmpty ? [] : try await self.inbox.states(resuming.map { requests[$0].user })
        var behind: [(index: Int, since: Int64)] = []
        for (index, state) in zip(resuming, states) {
            guard let since = requests[index].since else { continue }
            if since == state.version {
                var snapshot = InboxSnapshot(version: state.version, unread: state.unread, total: state.total)
                snapshot.isReturn = requests[index].isReturn
                snapshots[index] = snapshot
            } else if since >= state.floor, since < state.version {
                behind.append((index, since))
            }
        }
        // The statement reads an inbox once for each gap.
        let gaps = Dictionary(grouping: behind) { Gap(user: ExactText(requests[$0.index].user), since: $0.since) }
        var rest = Array(gaps)[...]
        while !rest.isEmpty {
            let batch = rest.prefix(Self.usersPerRead)
            rest = rest.dropFirst(batch.count)
            let changes = try await self.read(batch.map(\.key)) { (gaps: [Gap]) async throws(PostgresError) in
                try await self.inbox.changes(gaps.map { ($0.user.text, $0.since) }, limit: Self.longestGap + 1)
            }
            for (gap, change) in zip(batch, changes) {
                guard let (state, changed) = change else { continue }
                for (index, since) in gap.value {
                    snapshots[index] = self.replay(changed, since: since, state, for: requests[index])
                }
            }
        }
        return snapshots
    }

    /// Returns the changes since a version; nil if they are too many or too large to send.
    ///
    /// - Parameter state: read with the changes, as the inbox may have changed since an earlier
    ///   read.
    private func replay(
        _ changed: [Notification],
        since: Int64,
        _ state: InboxStore.State,
        for request: Request
    ) -> InboxSnapshot? {
        guard changed.count <= Self.longestGap, state.floor <= since, since <= state.version else { return nil }
        var snapshot = self.replaySnapshot(state, changed, request.dialect.shape)
        let bytes = snapshot.items.reduce(0) { $0 + $1.json.count }
        guard bytes <= Self.longestGapBytes else { return nil }
        if request.isReturn {
            guard changed.count <= Self.syncCount, bytes <= Self.syncBytes else { return nil }
            snapshot.isReturn = true
        }
        return snapshot
    }

    /// Returns the newest unread notifications; a returning client gets only those that it missed.
    ///
    /// If PostgreSQL cannot read an inbox in time, its snapshot has only the counts.
    private func newestSnapshots(_ requests: [Request]) async throws -> [InboxSnapshot] {
        guard !requests.isEmpty else { return [] }
        let newest = try await self.newestUnread(of: ExactText.distinct(requests.map(\.user)))
        return requests.map { request -> InboxSnapshot in
            let (state, unread) = newest[ExactText(request.user)] ?? (state: InboxStore.State(), unread: [])
            // A bookmark of a later version belongs to an inbox that was reset since.
            let isStart = request.since.map { $0 > state.version } ?? true
            var snapshot = self.unreadSnapshot(state, unread, request.dialect.shape, isStart: isStart)
            if request.isReturn, let since = request.since { return Self.missed(snapshot, since: since) }
            snapshot.isReset = request.since != nil
            return snapshot
        }
    }

    private func newestUnread(
        of users: [String]
    ) async throws(PostgresError) -> [ExactText: (state: InboxStore.State, unread: [Notification])] {
        typealias Newest = (state: InboxStore.State, unread: [Notification])
        let found = try await self.read(users) { (users: [String]) async throws(PostgresError) -> [Newest] in
            let (states, unread) = try await self.inbox.newestUnread(users, limit: Self.syncCount)
            return zip(users, states).map { (state: $1, unread: unread[ExactText($0)] ?? []) }
        }
        var newest: [ExactText: Newest] = [:]
        for (user, value) in zip(users, found) { newest[ExactText(user)] = value }
        let unreadable = users.filter { newest[ExactText($0)] == nil }
        guard !unreadable.isEmpty else { return newest }
        for (user, state) in zip(unreadable, try await self.inbox.states(unreadable)) {
            newest[ExactText(user)] = (state: state, unread: [])
        }
        return newest
    }

    /// Returns the newest unread notifications that a client missed, oldest first, if it missed too
    /// many to replay.
    private static func missed(_ snapshot: InboxSnapshot, since: Int64) -> InboxSnapshot {
        // The inbox was reset, so the bookmark belongs to the old one.
        guard since <= snapshot.version else { return snapshot }
        var missed = snapshot
        missed.items = snapshot.items.reversed().filter { $0.version > since }
        missed.isReturn = true
        return missed
    }

    private func replaySnapshot(
        _ state: InboxStore.State,
        _ changed: [Notification],
        _ shape: NotificationShape
    ) -> InboxSnapshot {
        InboxSnapshot(
            version: state.version,
            unread: state.unread,
            total: state.total,
            items: changed.filter { $0.deletedAt == nil }.map { self.item($0, shape, isStart: false) },
            deleted: changed.filter { $0.deletedAt != nil }.map { .init(id: $0.id, version: $0.version) }
        )
    }

    private func unreadSnapshot(
        _ state: InboxStore.State,
        _ unread: [Notification],
        _ shape: NotificationShape,
        isStart: Bool
    ) -> InboxSnapshot {
        var snapshot = InboxSnapshot(version: state.version, unread: state.unread, total: state.total)
        var bytes = 0
        for notification in unread {
            let item = self.item(notification, shape, isStart: isStart)
            bytes += item.json.count
            guard bytes <= Self.syncBytes || snapshot.items.isEmpty else { break }
            snapshot.items.append(item)
        }
        snapshot.hasMore = Int(state.unread) > snapshot.items.count
        return snapshot
    }

    /// - Parameter isStart: whether the client has nothing of the inbox yet.
    private func item(_ notification: Notification, _ shape: NotificationShape, isStart: Bool) -> InboxSnapshot.Item {
        let now = self.now()
        let json =
            switch shape {
            case .canonical: CanonicalShape.encode(notification)
            case .camelCase:
                CamelCaseShape.encode(notification, code: self.catalogs.current[notification.type]?.code, now: now)
            }
        return InboxSnapshot.Item(
            id: notification.id,
            version: notification.version,
            json: json,
            awaitsProof: notification.awaitsProof(in: shape, isStart: isStart, now: now),
            lane: notification.lane,
            isRead: notification.readAt != nil
        )
    }
}
