// Carillon · InboxStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Users' inboxes.
package struct InboxStore: Sendable {
    /// The state of an inbox.
    package struct State: Sendable, Equatable {
        package var version: Int64 = 0
        package var unread: Int32 = 0
        package var total: Int32 = 0
        package var floor: Int64 = 0
        /// When it began, in microseconds; tells it from an erased predecessor.
        package var begun: Int64 = 0
        /// Counts the changes that a page shows although they raise no version: `held_back`.
        package var notes: Int64 = 0

        package init() {}

        /// Reads a state whose columns begin at `first`.
        init(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) {
            self.version = try row.int8(first)
            self.unread = try row.int4(first + 1)
            self.total = try row.int4(first + 2)
            self.floor = try row.int8(first + 3)
            self.begun = try row.timestamptz(first + 4)
            self.notes = try row.int8(first + 5)
        }

        /// Whether pages of both states are equal.
        package func showsSame(as other: State) -> Bool {
            self.version == other.version && self.unread == other.unread && self.total == other.total
                && self.notes == other.notes && self.begun == other.begun
        }
    }

    /// A change of an inbox and the state after it.
    package struct Change: Sendable, Equatable {
        package let ids: [NotificationID]
        package let version: Int64
        package let unread: Int32
        /// The labels, in the order of the ids; none if pages were added.
        package var labels: [NotificationLabel] = []
        /// How each reached its user, in the same order.
        package var endpoints: [LifecycleEvent.Endpoint] = []

        /// Whether nothing was changed; otherwise the version was raised by one.
        package var isEmpty: Bool { self.ids.isEmpty }

        /// Adds the ids of the next page of the same change, and takes its state.
        package mutating func add(_ page: Change) {
            guard !page.isEmpty else { return }
            self = Change(ids: self.ids + page.ids, version: page.version, unread: page.unread)
        }
    }

    /// The effect of a client's receipt.
    package struct Receipt: Sendable {
        package var lane = Lane.normal
        /// The notification's label and endpoint; nil if the receipt changed nothing.
        package let changed: (label: NotificationLabel, endpoint: LifecycleEvent.Endpoint)?
    }

    /// Notifications of an inbox, and its state when they were read.
    package struct Page: Sendable {
        package var state = State()
        package var notifications: [InboxRow] = []

        init(state: State = State()) {
            self.state = state
        }

        init(_ result: PostgresResult) throws(PostgresError) {
            self.notifications.reserveCapacity(result.count)
            for row in result { try self.add(row) }
        }

        /// Adds a row of the state or of a notification, whose columns begin at `first`.
        mutating func add(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) {
            if row.isNull(first) {
                self.notifications.append(try InboxRow(row, at: first + InboxSQL.stateColumns))
            } else {
                self.state = try State(row, at: first)
            }
        }
    }

    /// The notifications that a list shows.
    package struct Filter: Sendable {
        var limit: Int
        /// Only those older than this.
        package var before: NotificationID?
        package var unreadOnly: Bool
        package var type: String?
        package var category: String?
        package var org: String?

        package init(limit: Int, before: NotificationID? = nil, unreadOnly: Bool = false, type: String? = nil) {
            self.limit = limit
            self.before = before
            self.unreadOnly = unreadOnly
            self.type = type
        }

        /// Whether it shows only part of the inbox, as one of several feeds of an app.
        package var isOfFeed: Bool { self.type != nil || self.category != nil || self.org != nil }
    }

    /// The size of an inbox above which its unread pages share no statement: they may pass over all
    /// that is read.
    private static let large = 1_000

    let pool: PostgresPool
    private let reads: InboxReads
    private let standby: StandbyReads?

    package init(_ database: Database) {
        self.pool = database.pool
        self.standby = database.standby
        self.reads = InboxReads(pool: database.pool)
    }

    // MARK: Reading

    /// Returns the state of an inbox; if it was never written to, its version and floor are the
    /// epoch's base.
    ///
    /// Concurrent calls share a statement.
    package func state(of user: String) async throws(PostgresError) -> State {
        try await self.reads.states.value(user)
    }

    /// Returns the state of each inbox, in the same order.
    package func states(_ users: [String]) async throws(PostgresError) -> [State] {
        try await InboxReads.states(users, self.pool)
    }

    /// Returns the newest unread notifications of each user, at most `limit` each, and the states
    /// of the inboxes.
    package func newestUnread(
        _ users: [String],
        limit: Int
    ) async throws(PostgresError) -> (states: [State], unread: [ExactText: [Notification]]) {
        // The states come first: later commits have higher versions and arrive as frames.
        let states = try await self.states(users)
        // Several sockets of a user may open at once.
        let waiting = ExactText.distinct(zip(users, states).filter { $1.unread > 0 }.map(\.0))
        guard !waiting.isEmpty else { return (states, [:]) }
        let result = try await self.pool.query(
            """
            SELECT \(NotificationColumns.list)
            FROM unnest($1) AS u (user_id)
            CROSS JOIN LATERAL (
                SELECT * FROM carillon.notifications x
                WHERE x.user_id = u.user_id AND \(InboxSQL.isUnread("x"))
                ORDER BY x.id DESC LIMIT \(InboxSQL.limit("$2", by: .unread, of: "u.user_id"))
            ) n
            """,
            .texts(waiting), .int4(clamping: limit)
        )
        let versions = Dictionary(zip(users.map { ExactText($0) }, states.map(\.version))) { first, _ in first }
        var unread: [ExactText: [Notification]] = [:]
        for notification in try NotificationColumns.all.read(result) {
            let user = ExactText(notification.user)
            // Leaves out notifications committed in between, which also arrive as frames.
            guard notification.version <= versions[user] ?? 0 else { continue }
            unread[user, default: []].append(notification)
        }
        return (states, unread)
    }

    /// Returns for each inbox its state and the notifications that changed after a version, at most
    /// `limit` each.
    ///
    /// They include deleted ones, in the order of the changes. One statement reads both, so that no
    /// change comes in between.
    package func changes(
        _ requests: [(user: String, since: Int64)],
        limit: Int
    ) async throws(PostgresError) -> [(state: State, changed: [Notification])] {
        var changes = [(state: State, changed: [Notification])](repeating: (State(), []), count: requests.count)
        guard !requests.isEmpty else { return changes }
        let result = try await self.pool.query(
            """
            SELECT (r.number - 1)::int4, n.id IS NOT NULL, \(InboxSQL.state(of: "b")), \(NotificationColumns.list)
            FROM unnest($1, $2) WITH ORDINALITY AS r (user_id, since, number)
            JOIN carillon.inboxes b ON b.user_id = r.user_id
            LEFT JOIN LATERAL (
                SELECT * FROM carillon.notifications x
                WHERE x.user_id = r.user_id AND x.version > r.since ORDER BY x.version, x.id LIMIT $3
            ) n ON true
            ORDER BY r.number, n.version, n.id
            """,
            .texts(requests.map(\.user)), .int8s(requests.map(\.since)), .int4(clamping: limit)
        )
        for row in result {
            let index = try row.position(in: changes.count)
            changes[index].state = try State(row, at: 2)
            guard try row.bool(1) else { continue }
            changes[index].changed.append(try NotificationColumns.all.read(row, at: 2 + InboxSQL.stateColumns))
        }
        return changes
    }

    /// Returns a page of the inbox, the newest first, and the state that it belongs to.
    ///
    /// Concurrent calls for pages of whole inboxes share a statement, except unread pages of large
    /// inboxes.
    ///
    /// - Parameter known: a state that the caller has seen. If the inbox still shows the same, the
    ///   page has no notifications.
    package func page(user: String, filter: Filter, unless known: State? = nil) async throws(PostgresError) -> Page {
        if filter.isOfFeed {
            if let known {
                let state = try await self.state(of: user)
                if state.showsSame(as: known) { return Page(state: state) }
            }
            return try Page(
                try await self.reads.scan(
                    filter.unreadOnly ? InboxSQL.unreadFeed : InboxSQL.feed, user: user,
                    .id(filter.end), .int4(clamping: filter.limit), .text(filter.type), .text(filter.category),
                    .text(filter.org)))
        }
        let request = InboxReads.PageRequest(user: user, filter: filter)
        if known != nil || self.standby != nil || filter.unreadOnly {
            let state = try await self.state(of: user)
            if let known, state.showsSame(as: known) { return Page(state: state) }
            if filter.unreadOnly, state.total > Self.large {
                return try Page(
                    try await self.reads.scan(
                        InboxSQL.unreadPage, user: user, .id(filter.end), .int4(clamping: filter.limit)))
            }
            if let page = await self.standby?.page(request, of: state) { return page }
        }
        return try await self.reads.pages.value(request)
    }

    /// Returns the notifications that changed after `version`, deleted ones included, in the order
    /// of the changes, and the state of the inbox.
    ///
    /// There are no notifications if `version` is below the inbox's floor or above its version.
    ///
    /// - Parameter known: a state that the caller has seen; there are no notifications if the inbox
    ///   still shows the same.
    package func changes(
        user: String,
        since version: Int64,
        limit: Int,
        unless known: State?
    ) async throws(PostgresError) -> Page {
        let state = try await self.state(of: user)
        let hasChanges = version >= state.floor && version < state.version
        if !hasChanges || known.map(state.showsSame) == true { return Page(state: state) }
        return try Page(
            try await self.reads.scan(InboxSQL.changes, user: user, .int8(version), .int4(clamping: limit)))
    }

    /// Returns the unread count of each category, of the newest 10,000 unread; the key is empty for
    /// notifications without a category.
    ///
    /// - Parameter org: counts only those of this organisation; nil for all.
    package func unreadByCategory(
        user: String,
        org: String? = nil
    ) async throws(PostgresError) -> [(category: String, count: Int32)] {
        let result = try await self.reads.scan(InboxSQL.unreadByCategory, user: user, .text(org))
        return try result.map { (row) throws(PostgresError) in (try row.text(0), try row.int4(1)) }
    }

    /// Returns a notification; nil if it is not in the user's inbox.
    package func find(user: String, id: NotificationID) async throws(PostgresError) -> Notification? {
        try await self.item(user: user, id: id)?.notification
    }

    /// Returns a notification and how it went out; nil if it is not in the user's inbox.
    package func item(user: String, id: NotificationID) async throws(PostgresError) -> Item? {
        let result = try await self.pool.query(
            """
            SELECT n.sent_via, \(NotificationColumns.list) FROM carillon.notifications n
            WHERE n.user_id = $1 AND n.id = $2 AND n.deleted_at IS NULL AND n.version > 0
            """,
            .text(user), .id(id)
        )
        return try result.first.map { (row) throws(PostgresError) in
            Item(notification: try NotificationColumns.all.read(row, at: 1), sentVia: try row.optionalText(0))
        }
    }

    // MARK: Receipts

    /// Records the first time that a notification was opened.
    ///
    /// - Returns: nil if the user has no such notification, in the inbox, the archive or as a push.
    package func markOpened(user: String, id: NotificationID, at: Timestamp) async throws(PostgresError) -> Receipt? {
        let results = try await self.pool.runDurably([
            PostgresStatement(InboxSQL.opened, [.text(user), .id(id), .timestamp(at)])
        ])
        guard let row = results.first?.first else { return nil }
        return Receipt(changed: row.isNull(0) ? nil : try EndpointColumns.read(row))
    }

    /// Returns the label of a notification, and whether it has a button.
    ///
    /// - Returns: nil if the user has no such notification, in the inbox, the archive or as a push.
    package func button(
        _ button: String,
        user: String,
        id: NotificationID
    ) async throws(PostgresError) -> (label: NotificationLabel, isThere: Bool)? {
        let result = try await self.pool.query(InboxSQL.button, .text(user), .id(id), .text(button))
        return try result.first.map { (row) throws(PostgresError) in
            (try LabelColumns.read(row), try row.bool(LabelColumns.count))
        }
    }

    /// Records that the client has a notification.
    ///
    /// A final status other than `failed` stays.
    ///
    /// - Returns: nil if the user has no such notification, in the inbox, the archive or as a push.
    package func markDelivered(
        user: String,
        id: NotificationID,
        at: Timestamp,
        via: String
    ) async throws(PostgresError) -> Receipt? {
        let results = try await self.pool.runDurably([
            PostgresStatement(InboxSQL.delivered, [.text(user), .id(id), .timestamp(at), .text(via)])
        ])
        guard let row = results.first?.first else { return nil }
        return Receipt(
            lane: Lane(rawValue: try row.text(0)) ?? .normal,
            changed: row.isNull(1) ? nil : try EndpointColumns.read(row, at: 1)
        )
    }
}

/// Pages by offset, for clients without a cursor.
extension InboxStore {
    /// The largest offset of a page.
    package static let furthestOffset = 10_000
    /// The most notifications of one type that are counted.
    private static let countLimit: Int64 = 100_000

    /// A page of the inbox with its counts.
    package struct OffsetPage: Sendable {
        /// The newest first.
        package var items: [Item] = []
        /// The number on all pages; for one type at most 100,000.
        package var matching: Int32 = 0
        /// The unread count of all types.
        package var unread: Int32 = 0
    }

    /// A notification and how it went out: `socket`, `client`, `inbox` or a provider's name.
    package struct Item: Sendable {
        package let notification: Notification
        package let sentVia: String?
    }

    /// Returns the notifications from `offset` on, with the counts of the same moment.
    ///
    /// - Parameter offset: clamped to 0…``furthestOffset``.
    package func page(user: String, filter: Filter, offset: Int) async throws(PostgresError) -> OffsetPage {
        // Only fixed text is interpolated; every value is a parameter.
        let unread = filter.unreadOnly ? "AND x.read_at IS NULL" : ""
        let total = filter.unreadOnly ? "unread" : "total"
        let result = try await self.reads.scan(
            """
            WITH tally AS MATERIALIZED (
                SELECT coalesce(b.unread, 0) AS unread, CASE
                    WHEN $2::text IS NULL THEN coalesce(b.\(total), 0)
                    ELSE (SELECT count(*) FROM (
                        SELECT FROM carillon.notifications x
                        WHERE x.user_id = $1 AND x.deleted_at IS NULL AND x.version > 0 AND x.type = $2 \(unread)
                        LIMIT $5
                    ) counted)::int4
                END AS matching
                FROM (SELECT) AS one LEFT JOIN carillon.inboxes b ON b.user_id = $1
            )
            SELECT t.unread, t.matching, n.id IS NOT NULL, n.sent_via, \(NotificationColumns.list)
            FROM tally t LEFT JOIN LATERAL (
                SELECT x.* FROM carillon.notifications x
                WHERE x.user_id = $1 AND x.deleted_at IS NULL AND x.version > 0
                    AND ($2::text IS NULL OR x.type = $2) \(unread)
                ORDER BY x.id DESC LIMIT least($3, greatest(t.matching - $4, 0)) OFFSET $4
            ) n ON true
            ORDER BY n.id DESC
            """,
            user: user, .text(filter.type), .int4(clamping: filter.limit),
            .int4(clamping: min(max(offset, 0), Self.furthestOffset)), .int8(Self.countLimit)
        )
        var page = OffsetPage()
        for row in result {
            page.unread = try row.int4(0)
            page.matching = try row.int4(1)
            guard try row.bool(2) else { continue }
            page.items.append(
                Item(notification: try NotificationColumns.all.read(row, at: 4), sentVia: try row.optionalText(3))
            )
        }
        return page
    }

    /// Returns the ids among `ids` that the user has, in the inbox or as a push.
    package func known(user: String, ids: [NotificationID]) async throws(PostgresError) -> Set<NotificationID> {
        let result = try await self.pool.query(
            """
            SELECT id FROM carillon.notifications
            WHERE user_id = $1 AND id = ANY($2) AND \(InboxSQL.isReceived)
            """,
            .text(user), .ids(ids)
        )
        return Set(try result.ids())
    }
}
