// Carillon · SnapshotReader.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Operations
import Sockets
import Storage

/// Reads the state of inboxes for sockets that open, resume or missed changes.
struct SnapshotReader: Sendable {
    /// A request for the state of an inbox.
    struct Request {
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

    let inbox: InboxStore
    let catalogs: CatalogRegister
    let now: @Sendable () -> Timestamp

    /// Returns the changes since a version, or the newest unread without one.
    ///
    /// A client starts over with the newest unread if its version is below the inbox's floor, if it
    /// missed too much, or if PostgreSQL cannot read the changes in time.
    func snapshots(_ requests: [Request]) async throws -> [InboxSnapshot] {
        var snapshots = try await self.resumed(requests)
        let indices = requests.indices.filter { snapshots[$0] == nil }
        for (index, snapshot) in zip(indices, try await self.newestSnapshots(indices.map { requests[$0] })) {
            snapshots[index] = snapshot
        }
        return snapshots.compactMap(\.self)
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
            guard error.isStatementTimeout else { throw error }
        }
        guard keys.count > 1 else { return keys.map { _ in nil } }
        let end = ContinuousClock.now + .seconds(18)
        var values: [Value?] = []
        var timeouts = 0
        for (index, key) in keys.enumerated() {
            // More timeouts would hold up all sockets. The rest fails only if all of PostgreSQL is
            // slow.
            guard timeouts < 2, ContinuousClock.now < end else {
                let rest = try await body(Array(keys[index...])).map(Optional.some)
                return values + rest
            }
            let value = try await self.read([key], body)[0]
            if value == nil { timeouts += 1 }
            values.append(value)
        }
        return values
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

    /// Narrows the newest unread notifications to those that a returning client missed, oldest
    /// first.
    private static func missed(_ snapshot: InboxSnapshot, since: Int64) -> InboxSnapshot {
        // The inbox was reset, so the bookmark belongs to the old one.
        guard since <= snapshot.version else { return snapshot }
        var missed = snapshot
        missed.items = snapshot.items.reversed().filter { $0.version > since }
        missed.isReturn = true
        // Reads and deletions are left out.
        missed.isReset = true
        missed.bookmark = since
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
