// Carillon · SocketService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Operations
import Sockets
import Storage

/// The sockets' backend on the stores and streams.
package struct SocketService: SocketBackend {
    private let base: GatewayBase
    private let node: String
    private let credentials: CredentialResolver
    private let inbox: InboxServices
    private let reader: SnapshotReader
    private let users: UserStore
    private let messageRate: UserRate?
    private let openingRate: UserRate?

    package init(
        _ base: GatewayBase,
        node: String,
        credentials: CredentialResolver,
        inbox: InboxServices,
        users: UserStore,
        messageRate: UserRate?,
        openingRate: UserRate?
    ) {
        self.base = base
        self.node = node
        self.credentials = credentials
        self.inbox = inbox
        self.reader = SnapshotReader(inbox: inbox.store, catalogs: base.catalogs, now: base.now)
        self.users = users
        self.messageRate = messageRate
        self.openingRate = openingRate
    }

    package func authenticate(token: String) async throws -> SocketIdentity {
        do throws(TokenFault) {
            return SocketIdentity(try await self.credentials.caller(token: token))
        } catch {
            throw SocketRefusal(error)
        }
    }

    package func authenticate(_ credentials: PresentedCredentials) async throws -> SocketIdentity? {
        do throws(TokenFault) {
            let caller = try await self.credentials.caller(credentials, accepting: .socket)
            return caller.map { SocketIdentity($0) }
        } catch {
            throw SocketRefusal(error)
        }
    }

    package func open(_ openings: [SocketOpening]) async throws -> [InboxSnapshot?] {
        let now = self.base.now()
        // Register presence first: later notifications are then published here, earlier ones are
        // read below.
        let areRegistered = try await self.base.presence.register(
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
        let indices = openings.indices.filter { areRegistered[$0] }
        let registered = indices.map { openings[$0] }
        let returns = try await self.returns(registered, at: now)
        let snapshots = try await self.reader.snapshots(
            zip(registered, returns).map { opening, seen in
                SnapshotReader.Request(
                    user: opening.user, dialect: opening.dialect, since: opening.since ?? seen,
                    isReturn: opening.since == nil && seen != nil)
            }
        )
        var answers = [InboxSnapshot?](repeating: nil, count: openings.count)
        for (index, snapshot) in zip(indices, snapshots) { answers[index] = snapshot }
        return answers
    }

    /// Returns the version from which each client without a `resume` continues, by its bookmark.
    private func returns(_ openings: [SocketOpening], at now: Timestamp) async throws -> [Int64?] {
        var versions = [Int64?](repeating: nil, count: openings.count)
        let indices = openings.indices.filter { openings[$0].since == nil && openings[$0].client != nil }
        let presence = self.base.presence
        let claimed = try await self.base.live.bookmarks.claim(
            indices.map { (openings[$0].user, openings[$0].connection, openings[$0].client ?? "") },
            at: now
        ) { (users: [String]) async throws(RedisError) -> [Set<String>] in
            try await presence.lookUp(users).map { presence -> Set<String> in
                guard case .online(let connections) = presence else { return [] }
                return Set(connections.map(\.connection))
            }
        }
        for (index, version) in zip(indices, claimed) { versions[index] = version }
        return versions
    }

    package func store(_ bookmarks: [SocketBookmark]) async throws {
        try await self.base.live.bookmarks.store(
            bookmarks.map { bookmark in
                (
                    bookmark.user, bookmark.connection,
                    bookmark.version.map {
                        Bookmark(client: bookmark.client, version: $0, lastHeard: bookmark.lastHeard)
                    }
                )
            },
            at: self.base.now()
        )
    }

    package func close(_ departures: [SocketDeparture]) async throws -> [Bool] {
        try await self.base.presence.remove(departures.map { ($0.user, $0.connection) })
    }

    package func markSeen(_ departures: [SocketDeparture]) async throws {
        let users = ExactText.distinct(departures.map(\.user))
        let presences = try await self.base.presence.lookUp(users)
        let offline = Set(zip(users, presences).filter { $1 == .offline }.map { ExactText($0.0) })
        let last = departures.filter { offline.contains(ExactText($0.user)) }
        try await self.users.markSeen(last.map { ($0.user, $0.at) })
    }

    package func registered(_ users: [String], renews: Bool) async throws -> [[String]?] {
        try await self.base.presence.connections(of: users, on: self.node, renews: renews)
    }

    package func register(_ connections: [SocketRegistration]) async throws -> [Bool] {
        try await self.base.presence.register(
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
        try await self.base.presence.setStates(changes.map { ($0.user, $0.connection, $0.state, $0.since) })
    }

    package func admits(messages: Int, of user: String) -> Bool {
        self.messageRate?.delay(user, count: messages) == nil
    }

    package func admitsOpening(of user: String) -> Bool { self.openingRate?.delay(user) == nil }

    package func changes(_ requests: [CatchUpRequest]) async throws -> [InboxSnapshot?] {
        let snapshots = try await self.reader.snapshots(
            requests.map { SnapshotReader.Request(user: $0.user, dialect: $0.dialect, since: $0.since) })
        return zip(requests, snapshots).map { request, snapshot in
            let isUnchanged = request.since == snapshot.version && !snapshot.isReset
            return isUnchanged && !request.wantsAnswer ? nil : snapshot
        }
    }

    package func confirm(_ proofs: [ReceiptProof]) async throws -> RecordedProofs {
        let delivered = try await self.base.database.notifications.markDelivered(
            proofs.map { (NotificationKey(user: $0.user, id: $0.id), $0.at) }, via: SentVia.socket.rawValue)
        return RecordedProofs(
            proofs, events: delivered.map { LifecycleEvent(.delivered, $0.label, at: $0.at, channel: .inApp) })
    }

    package func settle(_ recorded: RecordedProofs) async {
        let waiting = recorded.proofs.compactMap { proof in
            proof.awaitingLane.map { AwaitedProof(id: proof.id, user: proof.user, lane: $0) }
        }
        var batch = RedisBatch()
        self.base.live.proofDeadlines.remove(waiting, in: &batch)
        let waits = batch.count
        self.base.events.add(recorded.events, in: &batch)
        do throws(RedisError) {
            // Waits out a short outage of a single Redis, but not for a cluster's absent master.
            let replies = try await self.base.live.connection.send(batch, isPatient: false)
            // If a deadline remains, it expires, and the dispatcher then finds the row delivered.
            self.base.events.count(replies.dropFirst(waits))
        } catch {
            self.base.events.lose(recorded.events.count, error)
        }
    }

    package func markRead(_ request: MarkReadRequest) async throws -> Int32 {
        try await self.inbox.service.markRead(
            user: request.user, ids: request.ids, isBulk: request.isBulk, isPatient: false
        ).unread
    }

    package func unreadCount(user: String) async throws -> Int32 {
        try await self.inbox.store.states([user]).first?.unread ?? 0
    }
}
