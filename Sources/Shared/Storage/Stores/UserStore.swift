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
    }

    /// The table that an erasure keeps: without it revoked tokens would be valid again.
    private static let kept = "token_revocations"
    /// The tables that are emptied last.
    ///
    /// A transaction that writes them also locks a row of an earlier table, for which the erasure
    /// waits: it then finds what that transaction has committed.
    private static let last: Set = ["delivery_attempts", "digest_items"]

    /// Deletes everything that names the user from every table with a column `user_id`, except the
    /// token revocation, which ``RevocationStore`` deletes later.
    ///
    /// ``DeadLetterStore``, ``ScheduleStore`` and ``BroadcastStore`` erase the user from rows for
    /// several users. They may read many rows, so they run outside this transaction, which locks
    /// the inbox.
    ///
    /// The tables come from the database, so that a new one is not forgotten.
    package func erase(user: String) async throws(PostgresError) -> Erasure {
        let all = try await self.tables().filter { $0.name != Self.kept }
        // The user's row goes first: concurrent calls for the user wait, or make a new row that
        // stays.
        let rest = all.filter { $0.name != "users" }
        let tables =
            all.filter { $0.name == "users" } + rest.filter { !Self.last.contains($0.name) }
            + rest.filter { Self.last.contains($0.name) }
        var statements = [
            // Every writer of an inbox locks it first.
            PostgresStatement("SELECT FROM carillon.inboxes WHERE user_id = $1 FOR UPDATE", [.text(user)]),
            PostgresStatement(
                "SELECT id, lane FROM carillon.notifications WHERE user_id = $1 AND status = 'pending'", [.text(user)]),
        ]
        let head = statements.count
        // The names come from the system catalog, quoted by the server.
        statements += tables.map {
            PostgresStatement("DELETE FROM carillon.\($0.quoted) WHERE user_id = $1", [.text(user)])
        }
        let results = try await self.pool.run(statements, timeout: .seconds(60))
        var erasure = Erasure()
        erasure.pending = try results[head - 1].map { (row) throws(PostgresError) in
            (try row.id(0), Lane(rawValue: try row.text(1)) ?? .normal)
        }
        erasure.rows = zip(tables, results[head...]).map { ($0.name, $1.affectedRows) }
        return erasure
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
