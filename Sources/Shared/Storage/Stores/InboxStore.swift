// Carillon · InboxStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Users' inboxes as they read and change them.
package struct InboxStore: Sendable {
    /// How an inbox stands.
    package struct State: Sendable, Equatable {
        package var version: Int64 = 0
        package var unread: Int32 = 0
        package var total: Int32 = 0
        package var floor: Int64 = 0
        /// Microseconds of when it was begun: one that was erased and begun anew is another.
        package var begun: Int64 = 0

        package init() {}

        /// Reads a state whose columns begin at `first`.
        init(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) {
            self.version = try row.int8(first)
            self.unread = try row.int4(first + 1)
            self.total = try row.int4(first + 2)
            self.floor = try row.int8(first + 3)
            self.begun = try row.timestamptz(first + 4)
        }
    }

    /// A change that was made: what it touched and how the inbox stands after it.
    package struct Change: Sendable, Equatable {
        package let ids: [NotificationID]
        package let version: Int64
        package let unread: Int32
        /// What was touched, by name; in the order of the ids.
        package var labels: [NotificationLabel] = []
        /// The way by which each of them reached its user, in the same order.
        package var ways: [LifecycleEvent.Way] = []

        /// Whether anything was changed, and so the version raised by one.
        package var isEmpty: Bool { self.ids.isEmpty }
    }

    /// What a client's receipt came to.
    package struct Receipt: Sendable {
        package var lane = Lane.normal
        /// The notification's name, and by which way it reached its user, if the receipt changed
        /// anything.
        package let changed: (label: NotificationLabel, way: LifecycleEvent.Way)?

        package init(lane: Lane = .normal, changed: (label: NotificationLabel, way: LifecycleEvent.Way)?) {
            self.lane = lane
            self.changed = changed
        }
    }

    /// Notifications of an inbox, and how it stood when they were read.
    package struct Page: Sendable {
        package var state = State()
        package var notifications: [InboxRow] = []

        /// Takes a row, of the state or of a notification, whose columns begin at `first`.
        mutating func add(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) {
            // Who never had a notification has no inbox, and no row of the state.
            if row.isNull(first) {
                self.notifications.append(try InboxRow(row, at: first + InboxSQL.stateColumns))
            } else {
                self.state = try State(row, at: first)
            }
        }
    }

    /// Which notifications a list shows.
    package struct Filter: Sendable {
        package var limit: Int
        /// Only older than this.
        package var before: NotificationID?
        package var unreadOnly: Bool
        package var type: String?

        package init(limit: Int, before: NotificationID? = nil, unreadOnly: Bool = false, type: String? = nil) {
            self.limit = limit
            self.before = before
            self.unreadOnly = unreadOnly
            self.type = type
        }
    }

    let pool: PostgresPool
    private let reads: InboxReads

    package init(_ database: Database) {
        self.pool = database.pool
        self.reads = InboxReads(pool: database.pool)
    }

    // MARK: Reading

    /// The state of one inbox; one that nobody has written to is at version 0.
    ///
    /// Many who ask at the same time are asked for in one statement.
    package func state(of user: String) async throws(PostgresError) -> State {
        try await self.reads.states.value(user)
    }

    /// The state of each inbox, in the same order; an inbox that nobody has written to is at version 0.
    package func states(_ users: [String]) async throws(PostgresError) -> [State] {
        try await InboxReads.states(users, self.pool)
    }

    /// The newest unread of each user, at most `limit` each, the newest first; and with them the states that they belong to.
    package func newestUnread(
        _ users: [String],
        limit: Int
    ) async throws(PostgresError) -> (states: [State], unread: [ExactText: [Notification]]) {
        // The states come first: what is committed after them has a higher version and comes as a frame.
        let states = try await self.states(users)
        let waiting = zip(users, states).filter { $1.unread > 0 }.map(\.0)
        guard !waiting.isEmpty else { return (states, [:]) }
        let result = try await self.pool.query(
            """
            SELECT \(NotificationColumns.list)
            FROM unnest($1) AS u (user_id)
            CROSS JOIN LATERAL (
                SELECT * FROM carillon.notifications x
                WHERE x.user_id = u.user_id AND x.read_at IS NULL AND x.deleted_at IS NULL AND x.version > 0
                ORDER BY x.id DESC LIMIT $2
            ) n
            """,
            .array(PostgresArray(texts: waiting)), .int4(Int32(clamping: limit))
        )
        var unread: [ExactText: [Notification]] = [:]
        for notification in try NotificationColumns.all.read(result) {
            unread[ExactText(notification.user), default: []].append(notification)
        }
        return (states, unread)
    }

    /// Everything that changed in an inbox after `version`, deleted rows included, in the order of the changes.
    package func changes(user: String, since version: Int64, limit: Int) async throws(PostgresError) -> [Notification] {
        try NotificationColumns.all.read(
            try await self.pool.query(
                """
                SELECT \(NotificationColumns.list) FROM carillon.notifications n
                WHERE n.user_id = $1 AND n.version > $2 ORDER BY n.version, n.id LIMIT $3
                """,
                .text(user), .int8(version), .int4(Int32(clamping: limit))
            )
        )
    }

    /// For each inbox what changed after its version, deleted rows included, in the order of the changes, at most `limit`
    /// each, and the state that they belong to; in one statement, so that no change comes in between.
    package func changes(
        _ requests: [(user: String, since: Int64)],
        limit: Int
    ) async throws(PostgresError) -> [(state: State, changed: [Notification])] {
        var changes = [(state: State, changed: [Notification])](repeating: (State(), []), count: requests.count)
        guard !requests.isEmpty else { return changes }
        var users = PostgresArray(.text, capacity: requests.count)
        var versions = PostgresArray(.int8, capacity: requests.count)
        for request in requests {
            users.append(request.user)
            versions.append(int8: request.since)
        }
        let result = try await self.pool.query(
            """
            SELECT r.number, n.id IS NOT NULL, \(InboxSQL.state(of: "b")), \(NotificationColumns.list)
            FROM unnest($1, $2) WITH ORDINALITY AS r (user_id, since, number)
            JOIN carillon.inboxes b ON b.user_id = r.user_id
            LEFT JOIN LATERAL (
                SELECT * FROM carillon.notifications x
                WHERE x.user_id = r.user_id AND x.version > r.since ORDER BY x.version, x.id LIMIT $3
            ) n ON true
            ORDER BY r.number, n.version, n.id
            """,
            .array(users), .array(versions), .int4(Int32(clamping: limit))
        )
        for row in result {
            let place = Int(try row.int8(0)) - 1
            guard changes.indices.contains(place) else { throw PostgresError(.decoding, "a row of no request") }
            changes[place].state = try State(row, at: 2)
            guard try row.bool(1) else { continue }
            changes[place].changed.append(try NotificationColumns.all.read(row, at: 2 + InboxSQL.stateColumns))
        }
        return changes
    }

    /// A page of the inbox, the newest first, and the state that it belongs to, in one round trip.
    ///
    /// Pages that are asked for at the same time are read in one statement.
    ///
    /// - Parameter known: the state that the caller has seen; where the inbox still stands like that, no notification is
    ///   read.
    package func page(user: String, filter: Filter, unless known: State? = nil) async throws(PostgresError) -> Page {
        try await self.reads.pages.value(InboxReads.PageRequest(user: user, filter: filter, known: known))
    }

    /// What changed after `version`, deleted rows included, in the order of the changes, and the state of the inbox, in
    /// one round trip.
    ///
    /// Nothing is read for a version that the inbox cannot tell the changes from: one below its floor or above its own.
    package func changes(
        user: String,
        since version: Int64,
        limit: Int,
        unless known: State?
    ) async throws(PostgresError) -> Page {
        try Self.page(
            try await self.pool.run([
                PostgresStatement(
                    InboxSQL.changes[InboxPart.number(of: user)],
                    Self.parameters(user, known) + [.int8(version), .int4(Int32(clamping: limit))]
                )
            ])
        )
    }

    static func parameters(_ user: String, _ known: State?) -> [PostgresValue] {
        [
            .text(user), known.map { .int8($0.version) } ?? .null(.int8),
            known.map { .int4($0.unread) } ?? .null(.int4), known.map { .int4($0.total) } ?? .null(.int4),
        ]
    }

    static func page(_ results: [PostgresResult]) throws(PostgresError) -> Page {
        guard let result = results.first else { throw PostgresError(.decoding, "a page gave no result") }
        var page = Page()
        page.notifications.reserveCapacity(result.count)
        for row in result { try page.add(row) }
        return page
    }

    /// One notification of a user, nil if it is not in the inbox.
    package func find(user: String, id: NotificationID) async throws(PostgresError) -> Notification? {
        let result = try await self.pool.query(
            """
            SELECT \(NotificationColumns.list) FROM carillon.notifications n
            WHERE n.user_id = $1 AND n.id = $2 AND n.deleted_at IS NULL AND n.version > 0
            """,
            .text(user), .uuid(id.halves)
        )
        return try NotificationColumns.all.read(result).first
    }

    // MARK: Changing

    /// Marks notifications read; all that are unread if `ids` is nil.
    package func markRead(user: String, ids: [NotificationID]?, at: Timestamp) async throws(PostgresError) -> Change {
        let condition = ids == nil ? "" : "AND n.id = ANY($3)"
        let parameters: [PostgresValue] =
            [.text(user), .timestamptz(at.microseconds)]
            + (ids.map { [.array(PostgresArray(uuids: $0.map(\.halves)))] } ?? [])
        return try await self.change(
            user,
            PostgresStatement(
                """
                WITH changed AS (
                    UPDATE carillon.notifications n SET read_at = $2, version = \(EpochSQL.version(of: "b")) + 1
                    FROM carillon.inboxes b
                    WHERE b.user_id = $1 AND n.user_id = $1 AND n.read_at IS NULL AND n.deleted_at IS NULL
                        AND n.version > 0 \(condition)
                    RETURNING \(WayColumns.source)
                ), tally AS (SELECT count(*)::int4 AS n FROM changed), raised AS (
                    UPDATE carillon.inboxes b
                    SET version = \(EpochSQL.version(of: "b")) + 1, unread = greatest(b.unread - tally.n, 0)
                    FROM tally WHERE b.user_id = $1 AND tally.n > 0
                    RETURNING b.version, b.unread
                )
                SELECT r.version, r.unread, \(WayColumns.list)
                FROM raised r CROSS JOIN changed n \(WayColumns.join)
                """,
                parameters
            )
        )
    }

    /// Deletes one notification, or all that are read if `id` is nil.
    package func delete(user: String, id: NotificationID?, at: Timestamp) async throws(PostgresError) -> Change {
        let condition = id == nil ? "AND n.read_at IS NOT NULL" : "AND n.id = $3"
        let parameters: [PostgresValue] =
            [.text(user), .timestamptz(at.microseconds)] + (id.map { [.uuid($0.halves)] } ?? [])
        return try await self.change(
            user,
            PostgresStatement(
                """
                WITH changed AS (
                    UPDATE carillon.notifications n SET deleted_at = $2, version = \(EpochSQL.version(of: "b")) + 1
                    FROM carillon.inboxes b
                    WHERE b.user_id = $1 AND n.user_id = $1 AND n.deleted_at IS NULL AND n.version > 0 \(condition)
                    RETURNING \(WayColumns.source), n.read_at IS NULL AS was_unread
                ), tally AS (
                    SELECT count(*)::int4 AS n, count(*) FILTER (WHERE was_unread)::int4 AS unread FROM changed
                ), raised AS (
                    UPDATE carillon.inboxes b
                    SET version = \(EpochSQL.version(of: "b")) + 1, total = greatest(b.total - tally.n, 0),
                        unread = greatest(b.unread - tally.unread, 0)
                    FROM tally WHERE b.user_id = $1 AND tally.n > 0
                    RETURNING b.version, b.unread
                )
                SELECT r.version, r.unread, \(WayColumns.list)
                FROM raised r CROSS JOIN changed n \(WayColumns.join)
                """,
                parameters
            )
        )
    }

    /// Locks the inbox, then changes it in a statement that sees what was committed meanwhile.
    private func change(_ user: String, _ statement: PostgresStatement) async throws(PostgresError) -> Change {
        let results = try await self.pool.run([
            PostgresStatement(
                """
                SELECT \(EpochSQL.version(of: "b")), b.unread FROM carillon.inboxes b WHERE b.user_id = $1 FOR UPDATE
                """,
                [.text(user)]),
            statement,
        ])
        guard results.count == 2 else { throw PostgresError(.decoding, "a change gave no result") }
        var touched: [(label: NotificationLabel, way: LifecycleEvent.Way)] = []
        for row in results[1] { touched.append(try WayColumns.read(row, at: 2)) }
        if let row = results[1].first {
            return Change(
                ids: touched.map(\.label.id), version: try row.int8(0), unread: try row.int4(1),
                labels: touched.map(\.label), ways: touched.map(\.way))
        }
        guard let row = results[0].first else { return Change(ids: [], version: 0, unread: 0) }
        return Change(ids: [], version: try row.int8(0), unread: try row.int4(1))
    }

    /// Records that a notification was opened; the first time counts.
    ///
    /// - Returns: nil if the user has no such notification, in the inbox or as a push alone; otherwise its name, if this was
    ///   the first time.
    package func markOpened(user: String, id: NotificationID, at: Timestamp) async throws(PostgresError) -> Receipt? {
        let result = try await self.pool.query(
            InboxSQL.opened,
            .text(user), .uuid(id.halves), .timestamptz(at.microseconds)
        )
        guard let row = result.first else { return nil }
        return Receipt(changed: try row.bool(WayColumns.count) ? try WayColumns.read(row) : nil)
    }

    /// Records that the client has a notification; what is final already stays as it is.
    ///
    /// - Returns: nil if the user has no such notification; otherwise its lane, in which its proof may be awaited, and its
    ///   name if it is delivered by this.
    package func markDelivered(
        user: String,
        id: NotificationID,
        at: Timestamp,
        via: String
    ) async throws(PostgresError) -> Receipt? {
        let result = try await self.pool.query(
            InboxSQL.delivered,
            .text(user), .uuid(id.halves), .timestamptz(at.microseconds), .text(via)
        )
        guard let row = result.first else { return nil }
        return Receipt(
            lane: Lane(rawValue: try row.text(0)) ?? .normal,
            changed: row.isNull(1) ? nil : try WayColumns.read(row, at: 1)
        )
    }
}
