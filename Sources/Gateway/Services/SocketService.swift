// Carillon · SocketService.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import Model
package import Redis
import Shapes
package import Sockets
package import Stores
package import Streams

/// What sockets need, over the stores and the streams.
package struct SocketService: SocketBackend {
    /// A first sync holds the newest unread, bounded by number and by size.
    private static let syncCount = 100
    private static let syncBytes = 256 * 1024
    /// A client that is further behind starts afresh.
    private static let longestGap = 500

    private let node: String
    private let credentials: CredentialResolver
    private let inbox: InboxStore
    private let inboxService: InboxService
    private let notifications: NotificationStore
    private let presence: PresenceRegistry
    private let unconfirmed: UnconfirmedSet
    private let redis: RedisConnection
    private let now: @Sendable () -> Timestamp

    package init(
        node: String,
        credentials: CredentialResolver,
        inbox: InboxStore,
        inboxService: InboxService,
        notifications: NotificationStore,
        presence: PresenceRegistry,
        unconfirmed: UnconfirmedSet,
        redis: RedisConnection,
        now: @escaping @Sendable () -> Timestamp
    ) {
        self.node = node
        self.credentials = credentials
        self.inbox = inbox
        self.inboxService = inboxService
        self.notifications = notifications
        self.presence = presence
        self.unconfirmed = unconfirmed
        self.redis = redis
        self.now = now
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
            let kinds: CredentialKinds = credentials.isCompatible ? .compatibleSocket : .socket
            let caller = try await self.credentials.caller(PresentedCredentials(credentials), accepting: kinds)
            return caller.map { SocketIdentity($0) }
        } catch {
            throw SocketRefusal(error)
        }
    }

    package func open(_ openings: [SocketOpening]) async throws -> [InboxSnapshot] {
        let now = self.now()
        // Presence before the inbox: what is stored from now on is published here, what was stored before is read below.
        try await self.presence.register(
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
        let users = openings.map(\.user)
        let (states, unread) = try await self.inbox.newestUnread(users, limit: Self.syncCount)
        var snapshots: [InboxSnapshot] = []
        for (opening, state) in zip(openings, states) {
            if let since = opening.since {
                snapshots.append(try await self.changes(opening.user, since: since, state: state))
            } else {
                snapshots.append(Self.snapshot(state, unread[ExactText(opening.user)] ?? []))
            }
        }
        return snapshots
    }

    package func close(_ connections: [(user: String, connection: String)]) async throws {
        try await self.presence.remove(connections)
    }

    package func registered(user: String) async throws -> [String] {
        guard case .online(let connections) = try await self.presence.lookUp([user]).first else { return [] }
        return connections.filter { $0.node == self.node }.map(\.connection)
    }

    package func register(
        _ connections: [(user: String, connection: String, dialect: Dialect, since: Timestamp)]
    ) async throws {
        try await self.presence.register(
            connections.map { connection in
                (
                    connection.user,
                    ConnectionPresence(
                        connection: connection.connection,
                        node: self.node,
                        dialect: connection.dialect,
                        state: .active,
                        since: connection.since
                    )
                )
            }
        )
    }

    package func changes(_ requests: [(user: String, since: Int64)]) async throws -> [InboxSnapshot?] {
        let states = try await self.inbox.states(requests.map(\.user))
        var snapshots: [InboxSnapshot?] = []
        for (request, state) in zip(requests, states) {
            guard state.version != request.since else {
                snapshots.append(nil)
                continue
            }
            snapshots.append(try await self.changes(request.user, since: request.since, state: state))
        }
        return snapshots
    }

    package func confirm(_ proofs: [ReceiptProof]) async throws {
        // The row first: if this process dies in between, the deadline lapses and the gate finds it delivered.
        try await self.notifications.markDelivered(proofs.map { ($0.user, $0.id, $0.at) }, via: "socket")
        var batch = RedisBatch()
        for proof in proofs {
            guard let lane = proof.awaitingLane else { continue }
            let waiting = UnconfirmedNotification(id: proof.id, user: proof.user, lane: lane)
            self.unconfirmed.remove(waiting, in: &batch)
        }
        for reply in try await self.redis.send(batch) { _ = try reply.checked() }
    }

    package func markRead(user: String, ids: [NotificationID]?) async throws -> Int32 {
        try await self.inboxService.markRead(user: user, ids: ids).unread
    }

    package func unreadCount(user: String) async throws -> Int32 {
        try await self.inbox.states([user]).first?.unread ?? 0
    }

    // MARK: Snapshots

    private func changes(_ user: String, since: Int64, state: InboxStore.State) async throws -> InboxSnapshot {
        var snapshot = InboxSnapshot(version: state.version, unread: state.unread, total: state.total)
        guard state.version != since else { return snapshot }
        if since >= state.floor, since < state.version {
            let changed = try await self.inbox.changes(user: user, since: since, limit: Self.longestGap + 1)
            if changed.count <= Self.longestGap {
                snapshot.version = max(state.version, changed.last?.version ?? 0)
                snapshot.items = changed.filter { $0.deletedAt == nil }.map { Self.item($0) }
                snapshot.deleted = changed.filter { $0.deletedAt != nil }.map(\.id)
                return snapshot
            }
        }
        let (states, unread) = try await self.inbox.newestUnread([user], limit: Self.syncCount)
        var fresh = Self.snapshot(states.first ?? state, unread[ExactText(user)] ?? [])
        fresh.isReset = true
        return fresh
    }

    private static func snapshot(_ state: InboxStore.State, _ unread: [Notification]) -> InboxSnapshot {
        var snapshot = InboxSnapshot(version: state.version, unread: state.unread, total: state.total)
        var bytes = 0
        for notification in unread {
            let item = Self.item(notification)
            bytes += item.json.count
            guard bytes <= Self.syncBytes || snapshot.items.isEmpty else { break }
            snapshot.items.append(item)
        }
        snapshot.hasMore = Int(state.unread) > snapshot.items.count
        return snapshot
    }

    private static func item(_ notification: Notification) -> InboxSnapshot.Item {
        InboxSnapshot.Item(
            id: notification.id,
            json: CanonicalShape.encode(notification),
            awaitsProof: notification.status == .pending,
            lane: notification.lane
        )
    }
}
