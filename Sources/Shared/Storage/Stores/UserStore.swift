// Carillon · UserStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A record of one user; absent parts stay as they are.
package struct UserRecord: Sendable {
    let user: String
    package var settings: UserSettings?
    /// The parts of the settings that the record leaves out.
    package var keptSettings: KeptSettings = []
    package var preferences: [String: TypePreference] = [:]
    package var devices: [Device] = []
    /// Topics to add to the user's subscriptions.
    package var topics: [String] = []

    package init(user: String) {
        self.user = user
    }

    /// Whether it may change what waits for the end of quiet hours.
    var changesReleases: Bool {
        self.settings.map(self.keptSettings.changesReleases) == true || self.preferences.changeQuietHours
    }
}

/// Users as a whole.
package struct UserStore: Sendable {
    let pool: PostgresPool
    let limits: DeviceLimits

    /// Creates a user, or locks the row and leaves it as it is.
    ///
    /// It serialises calls for one user, so that limits hold, and waits for an erasure.
    static func lock(user: String) -> PostgresStatement {
        PostgresStatement(
            """
            INSERT INTO carillon.users AS u (user_id) VALUES ($1)
            ON CONFLICT (user_id) DO UPDATE SET user_id = u.user_id WHERE false
            """,
            [.text(user)])
    }

    /// Stores records as one transaction in one round trip.
    ///
    /// - Parameter timeout: the time limit; nil means the configuration's.
    /// - Returns: the registrations of each record, in order.
    package func put(
        _ records: [UserRecord],
        timeout: Duration? = nil
    ) async throws(PostgresError) -> [[DeviceStore.Registration]] {
        // All users, then all tokens, each in one order, so that two calls never deadlock.
        let order = records.indices.sorted { ExactText(records[$0].user) < ExactText(records[$1].user) }
        var statements = order.map { Self.lock(user: records[$0].user) }
        statements += DeviceStore.locks(tokensOf: records.flatMap(\.devices))
        // The index of the record of each registration; its statements end before `end`.
        var ends: [(record: Int, end: Int)] = []
        for index in order {
            let record = records[index]
            if let settings = record.settings {
                statements += PreferenceStore.statements(
                    user: record.user, settings: settings, keeping: record.keptSettings)
            }
            statements += PreferenceStore.statements(user: record.user, preferences: record.preferences)
            for device in record.devices {
                statements += DeviceStore.registration(of: device, limit: self.limits.limit(of: device.app))
                ends.append((index, statements.count))
            }
            if !record.topics.isEmpty {
                statements.append(TopicStore.subscription(user: record.user, topics: record.topics))
            }
        }
        let results = try await self.pool.run(statements, timeout: timeout)
        let changed = records.filter(\.changesReleases).map(\.user)
        if !changed.isEmpty {
            try await self.pool.query(PreferenceStore.reconsiderReleases(users: changed), timeout: timeout)
        }
        var registrations = [[DeviceStore.Registration]](repeating: [], count: records.count)
        for (record, end) in ends {
            registrations[record].append(try DeviceStore.registration(results.prefix(end)))
        }
        // A later device of the record may have switched this one off.
        for index in registrations.indices {
            let off = registrations[index].flatMap(\.switchedOff)
            for position in registrations[index].indices {
                if let found = off.first(where: { $0.id == registrations[index][position].device.id }) {
                    registrations[index][position].device = found
                }
            }
        }
        return registrations
    }

    /// Records when users were last seen, at PostgreSQL's time at the latest; an older time changes
    /// nothing.
    ///
    /// Stores nothing for unknown users, such as one erased while a socket was open.
    package func markSeen(_ sightings: [(user: String, at: Timestamp)]) async throws(PostgresError) {
        guard !sightings.isEmpty else { return }
        var last: [ExactText: Timestamp] = [:]
        for (user, at) in sightings { last[ExactText(user), default: at] = max(last[ExactText(user)] ?? at, at) }
        try await self.pool.query(
            """
            UPDATE carillon.users AS u SET last_seen = greatest(u.last_seen, least(known.at, now()))
            FROM (
                SELECT k.user_id, s.at FROM unnest($1, $2) AS s (user_id, at) JOIN carillon.users k USING (user_id)
                ORDER BY k.user_id COLLATE "C" FOR NO KEY UPDATE OF k
            ) AS known
            WHERE u.user_id = known.user_id
            """,
            .texts(last.keys.map(\.text)), .timestamps(Array(last.values))
        )
    }

    /// When each user was last seen, in order; nil for unknown users.
    package func lastSeen(_ users: [String]) async throws(PostgresError) -> [Timestamp?] {
        let result = try await self.pool.query(
            "SELECT user_id, last_seen FROM carillon.users WHERE user_id = ANY($1) AND last_seen IS NOT NULL",
            .texts(users)
        )
        var byUser: [ExactText: Timestamp] = [:]
        for row in result { byUser[ExactText(try row.text(0))] = try row.timestamp(1) }
        return users.map { byUser[ExactText($0)] }
    }

    // MARK: Erasure

    /// The result of an erasure.
    package struct Erasure: Sendable {
        /// Deleted rows by table.
        package var rows: [(table: String, count: Int)] = []
        /// Notifications that may be waiting for confirmation.
        package var pending: [(id: NotificationID, lane: Lane)] = []

        /// Adds a pending notification, whose id and lane the row begins with.
        fileprivate mutating func addPending(_ row: PostgresRow) throws(PostgresError) {
            self.pending.append((try row.id(0), Lane(rawValue: try row.text(1)) ?? .normal))
        }
    }

    /// The table that an erasure keeps: without it revoked tokens would be valid again.
    private static let kept = "token_revocations"
    /// The tables that are emptied last.
    ///
    /// A transaction that writes them also locks a row of an earlier table, for which the erasure
    /// waits: it then finds what that transaction has committed.
    private static let last: Set = ["delivery_attempts", "digest_items"]

    /// Deletes about $2 audit rows of a user ($1), oldest first.
    ///
    /// Rows of one moment go together.
    private static let attemptBatch = """
        DELETE FROM carillon.delivery_attempts WHERE user_id = $1 AND at <= (
            SELECT max(o.at) FROM (
                SELECT a.at FROM carillon.delivery_attempts a WHERE a.user_id = $1 ORDER BY a.at LIMIT $2
            ) o
        )
        """

    /// Deletes at most $2 notifications of a user ($1), whose inbox is locked; returns id, lane and
    /// whether it was pending.
    ///
    /// The inbox counts those that are left, and its clients start over. Skips locked rows; the
    /// last transaction waits for them.
    private static let notificationBatch = """
        WITH gone AS (
            DELETE FROM carillon.notifications n WHERE n.user_id = $1 AND n.id = ANY (ARRAY (
                SELECT x.id FROM carillon.notifications x WHERE x.user_id = $1
                ORDER BY x.id LIMIT $2 FOR UPDATE SKIP LOCKED
            ))
            RETURNING n.id, n.lane, n.status, n.read_at, n.deleted_at IS NULL AND n.version > 0 AS is_listed
        ), raised AS (
            UPDATE carillon.inboxes b
            SET version = \(EpochSQL.version(of: "b")) + 1, floor = \(EpochSQL.version(of: "b")) + 1,
                total = greatest(b.total - t.total, 0), unread = greatest(b.unread - t.unread, 0)
            FROM (
                SELECT count(*)::int4 AS total, count(*) FILTER (WHERE read_at IS NULL)::int4 AS unread
                FROM gone WHERE is_listed
            ) t
            WHERE b.user_id = $1 AND EXISTS (SELECT FROM gone)
        )
        SELECT id, lane, status = 'pending' FROM gone
        """

    /// Locks the user's inbox; every writer of an inbox locks it first.
    private static func lockInbox(of user: String) -> PostgresStatement {
        PostgresStatement("SELECT FROM carillon.inboxes WHERE user_id = $1 FOR UPDATE", [.text(user)])
    }

    /// Deletes everything that names the user from every table with a column `user_id`, except the
    /// token revocation, which ``RevocationStore`` deletes later.
    ///
    /// Notifications and audit rows, of which there may be many, go first, in batches that lock the
    /// inbox only briefly: jobs for the user wait for it. One transaction deletes the rest. If a
    /// step fails, the inbox is consistent, and another call finishes the erasure.
    ///
    /// ``DeadLetterStore``, ``ScheduleStore`` and ``BroadcastStore`` erase the user from rows for
    /// several users. They may read many rows, so they run outside this transaction, which locks
    /// the inbox.
    ///
    /// The tables come from the database, so that a new one is not forgotten.
    ///
    /// - Parameter batch: the most rows of a batch; audit rows of one moment may exceed it.
    package func erase(user: String, batch: Int = 2_000) async throws(PostgresError) -> Erasure {
        var erasure = Erasure()
        // The audit goes second, because a repair pushes again what the audit no longer names.
        let notifications = try await self.eraseNotifications(of: user, batch: batch, from: &erasure)
        let attempts = try await self.eraseAttempts(of: user, batch: batch)
        let early = ["delivery_attempts": attempts, "notifications": notifications]
        let all = try await self.tables().filter { $0.name != Self.kept }
        // The user's row goes first: concurrent calls for the user wait, or make a new row that
        // stays.
        let rest = all.filter { $0.name != "users" }
        let tables =
            all.filter { $0.name == "users" } + rest.filter { !Self.last.contains($0.name) }
            + rest.filter { Self.last.contains($0.name) }
        var statements = [
            Self.lockInbox(of: user),
            PostgresStatement(
                "SELECT id, lane FROM carillon.notifications WHERE user_id = $1 AND status = 'pending'", [.text(user)]),
        ]
        let head = statements.count
        // The names come from the system catalog, quoted by the server.
        statements += tables.map {
            PostgresStatement("DELETE FROM carillon.\($0.quoted) WHERE user_id = $1", [.text(user)])
        }
        let results = try await self.pool.run(statements, timeout: .seconds(60))
        for row in results[head - 1] { try erasure.addPending(row) }
        erasure.rows = zip(tables, results[head...]).map { ($0.name, $1.affectedRows + (early[$0.name] ?? 0)) }
        return erasure
    }

    /// Deletes a user's audit rows, batch by batch; returns their number.
    private func eraseAttempts(of user: String, batch: Int) async throws(PostgresError) -> Int {
        var count = 0
        while true {
            let found = try await self.pool.query(Self.attemptBatch, .text(user), .int4(clamping: batch)).affectedRows
            count += found
            guard found >= batch else { return count }
        }
    }

    /// Deletes a user's notifications, batch by batch; returns their number.
    private func eraseNotifications(
        of user: String,
        batch: Int,
        from erasure: inout Erasure
    ) async throws(PostgresError) -> Int {
        var count = 0
        while true {
            let results = try await self.pool.run([
                Self.lockInbox(of: user),
                PostgresStatement(Self.notificationBatch, [.text(user), .int4(clamping: batch)]),
            ])
            let found = results[1]
            for row in found {
                if try row.bool(2) { try erasure.addPending(row) }
            }
            count += found.count
            guard found.count >= batch else { return count }
        }
    }

    /// The tables with a column `user_id`, by name; partitions are covered by their table.
    func tables() async throws(PostgresError) -> [(name: String, quoted: String)] {
        let result = try await self.pool.query(
            """
            SELECT c.relname::text, quote_ident(c.relname) FROM pg_class c
            JOIN pg_namespace s ON s.oid = c.relnamespace
            JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE s.nspname = 'carillon' AND a.attname = 'user_id' AND NOT a.attisdropped
                AND c.relkind IN ('r', 'p') AND NOT c.relispartition
            ORDER BY c.relname
            """
        )
        return try result.map { (row) throws(PostgresError) in (try row.text(0), try row.text(1)) }
    }
}
