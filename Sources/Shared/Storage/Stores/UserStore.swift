// Carillon · UserStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// What is said about one user at once: what is absent stays as it is.
package struct UserRecord: Sendable {
    package let user: String
    package var settings: UserSettings?
    /// The parts of the settings that the record leaves out.
    package var keptSettings: KeptSettings = []
    package var preferences: [String: TypePreference] = [:]
    package var devices: [Device] = []
    /// Topics that the user is subscribed to beside those there are already.
    package var topics: [String] = []

    package init(user: String) {
        self.user = user
    }
}

/// Users as a whole.
package struct UserStore: Sendable {
    let pool: PostgresPool
    let limits: DeviceLimits

    /// Stores records as one transaction in one round trip.
    ///
    /// - Returns: what the registrations of each came to, in the order of the records.
    package func put(_ records: [UserRecord]) async throws(PostgresError) -> [[DeviceStore.Registration]] {
        var statements: [PostgresStatement] = []
        // Each registration's statements end before `end`.
        var places: [(record: Int, end: Int)] = []
        // In order of user, so that two of these never wait for each other crosswise.
        let order = records.indices.sorted { ExactText(records[$0].user) < ExactText(records[$1].user) }
        for index in order {
            let record = records[index]
            statements += DeviceStore.lock(user: record.user)
            if let settings = record.settings {
                statements += PreferenceStore.statements(
                    user: record.user, settings: settings, keeping: record.keptSettings)
            }
            statements += PreferenceStore.statements(user: record.user, preferences: record.preferences)
            for device in record.devices {
                statements += DeviceStore.registration(of: device, limit: self.limits.limit(of: device.app))
                places.append((index, statements.count))
            }
            if !record.topics.isEmpty {
                statements.append(TopicStore.subscription(user: record.user, topics: record.topics))
            }
        }
        let results = try await self.pool.run(statements)
        let wishing = records.filter { $0.settings != nil || !$0.preferences.isEmpty }.map(\.user)
        if !wishing.isEmpty { try await self.pool.run([PreferenceStore.reconsiderReleases(users: wishing)]) }
        var registrations = [[DeviceStore.Registration]](repeating: [], count: records.count)
        for place in places {
            registrations[place.record].append(try DeviceStore.registration(results.prefix(place.end)))
        }
        // A device of the record may have been switched off by a later one.
        for index in registrations.indices {
            let off = registrations[index].flatMap(\.switchedOff)
            for place in registrations[index].indices {
                if let device = off.first(where: { $0.id == registrations[index][place].device.id }) {
                    registrations[index][place].device = device
                }
            }
        }
        return registrations
    }

    /// Notes when users were last here; an older moment than the one noted changes nothing.
    ///
    /// Nothing is stored about a user who is not known, such as one who was erased while a socket was open.
    package func markSeen(_ users: [String], at: Timestamp) async throws(PostgresError) {
        guard !users.isEmpty else { return }
        try await self.pool.query(
            """
            UPDATE carillon.users AS u SET last_seen = greatest(u.last_seen, $2)
            FROM (
                SELECT user_id FROM carillon.users WHERE user_id = ANY($1)
                ORDER BY user_id COLLATE "C" FOR NO KEY UPDATE
            ) AS known
            WHERE u.user_id = known.user_id
            """,
            .array(PostgresArray(texts: ExactText.distinct(users))), .timestamptz(at.microseconds)
        )
    }

    /// When each user was last here, in the same order; nil for those of whom nothing is known.
    package func lastSeen(_ users: [String]) async throws(PostgresError) -> [Timestamp?] {
        let result = try await self.pool.query(
            "SELECT user_id, last_seen FROM carillon.users WHERE user_id = ANY($1) AND last_seen IS NOT NULL",
            .array(PostgresArray(texts: users))
        )
        var byUser: [ExactText: Timestamp] = [:]
        for row in result { byUser[ExactText(try row.text(0))] = Timestamp(microseconds: try row.timestamptz(1)) }
        return users.map { byUser[ExactText($0)] }
    }

    // MARK: Erasure

    /// What an erasure took away.
    package struct Erasure: Sendable {
        /// Rows by table.
        package var rows: [(table: String, count: Int)] = []
        /// Notifications whose proof may have been awaited.
        package var pending: [(id: NotificationID, lane: Lane)] = []
    }

    /// What outlives an erasure: without it, tokens that were taken back would be good again.
    private static let kept = "token_revocations"

    /// Takes away everything that names the user, in every table that has a column `user_id`, but for the moment from
    /// which the user's tokens are good, which ``RevocationStore`` forgets later; the dead letters are
    /// ``DeadLetterStore``'s.
    ///
    /// The tables are those that the database has, so that none is forgotten when one is added.
    package func erase(user: String) async throws(PostgresError) -> Erasure {
        let tables = try await self.tables().filter { $0.name != Self.kept }
        var statements = [
            // Every writer of an inbox locks it first.
            PostgresStatement("SELECT FROM carillon.inboxes WHERE user_id = $1 FOR UPDATE", [.text(user)]),
            PostgresStatement("SELECT FROM carillon.users WHERE user_id = $1 FOR UPDATE", [.text(user)]),
            PostgresStatement(
                "SELECT id, lane FROM carillon.notifications WHERE user_id = $1 AND status = 'pending'", [.text(user)]),
        ]
        let head = statements.count
        // The names come from the system's catalog, quoted by the server.
        statements += tables.map {
            PostgresStatement("DELETE FROM carillon.\($0.quoted) WHERE user_id = $1", [.text(user)])
        }
        statements += BroadcastSQL.forgetUser.map { PostgresStatement($0, [.text(user)]) }
        let results = try await self.pool.run(statements, timeout: .seconds(60))
        guard results.count == statements.count else { throw PostgresError(.decoding, "an erasure returned no result") }
        var erasure = Erasure()
        for row in results[head - 1] {
            erasure.pending.append((NotificationID(try row.uuid(0)), Lane(rawValue: try row.text(1)) ?? .normal))
        }
        erasure.rows = zip(tables, results[head...]).map { ($0.name, $1.affectedRows) }
        return erasure
    }

    /// The tables that have a column `user_id`, by name; parts of a table are left to the whole.
    package func tables() async throws(PostgresError) -> [(name: String, quoted: String)] {
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
        var tables: [(name: String, quoted: String)] = []
        for row in result { tables.append((try row.text(0), try row.text(1))) }
        return tables
    }
}
