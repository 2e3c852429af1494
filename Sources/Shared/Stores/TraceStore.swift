// Carillon · TraceStore.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Postgres

/// Everything that is on record about one notification.
package struct TraceStore: Sendable {
    /// A send, a send that was not made, or a change of a token.
    package struct Attempt: Sendable {
        package let at: Timestamp
        package let kind: String
        package let provider: String
        package let device: NotificationID?
        package let attempt: Int
        package let outcome: String
        package let reason: String?
        package let providerID: String?
        package let milliseconds: Int?
    }

    /// A notification and what became of it.
    package struct Record: Sendable {
        package let notification: Notification
        package let storedAt: Timestamp
        package let sentVia: String?
        package let replacedBy: NotificationID?
        package let attempts: [Attempt]
        package let followUps: [(kind: String, due: Timestamp)]
    }

    /// How many attempts a record holds, the oldest first.
    package static let mostAttempts = 1_000
    /// How long after its entry a notification is looked for, if its user is not named, and among how many that were stored
    /// then.
    private static let searchSpan: Duration = .seconds(600)
    package static let mostSearched = 100_000
    /// Clocks of Redis, PostgreSQL and dispatchers may differ by this.
    private static let skew: Duration = .seconds(60)

    private let pool: PostgresPool

    package init(pool: PostgresPool) {
        self.pool = pool
    }

    /// The record of a notification; nil if there is none.
    ///
    /// - Parameter user: whose it is. Without it, the notification is found by an attempt to send it, or if it is among the
    ///   first ``mostSearched`` that were stored within ten minutes of the moment that its id tells.
    package func record(_ id: NotificationID, user: String?) async throws(PostgresError) -> Record? {
        guard let user = try await self.owner(of: id, named: user) else { return nil }
        let key: [PostgresValue] = [.text(user), .uuid(id.halves)]
        let results = try await self.pool.run([
            PostgresStatement(Self.notification, key),
            PostgresStatement(Self.attempts, key + [.int4(Int32(Self.mostAttempts))]),
            PostgresStatement(
                "SELECT kind, due_at FROM carillon.follow_ups WHERE user_id = $1 AND notification_id = $2 ORDER BY due_at",
                key),
        ])
        guard results.count == 3, let row = results[0].first else { return nil }
        var attempts: [Attempt] = []
        for row in results[1] { attempts.append(try Self.attempt(row)) }
        var followUps: [(kind: String, due: Timestamp)] = []
        for row in results[2] {
            followUps.append((try row.text(0), Timestamp(microseconds: try row.timestamptz(1))))
        }
        return Record(
            notification: try NotificationColumns.read(row, at: 3),
            storedAt: Timestamp(microseconds: try row.timestamptz(0)),
            sentVia: try row.optionalText(1),
            replacedBy: try row.optionalUUID(2).map { NotificationID($0) },
            attempts: attempts,
            followUps: followUps
        )
    }

    private func owner(of id: NotificationID, named user: String?) async throws(PostgresError) -> String? {
        if let user { return user }
        let moment = Timestamp(milliseconds: id.milliseconds)
        let result = try await self.pool.query(
            Self.search, .uuid(id.halves), .timestamptz((moment + .seconds(-1)).microseconds),
            .timestamptz((moment + Self.searchSpan).microseconds),
            .timestamptz((moment + (.zero - Self.skew)).microseconds),
            .int4(Int32(Self.mostSearched))
        )
        return try result.first?.text(0)
    }

    private static func attempt(_ row: PostgresRow) throws(PostgresError) -> Attempt {
        Attempt(
            at: Timestamp(microseconds: try row.timestamptz(0)),
            kind: try row.text(1),
            provider: try row.text(2),
            device: try row.optionalUUID(3).map { NotificationID($0) }.flatMap { $0 == Device.emailAddress ? nil : $0 },
            attempt: Int(try row.int4(4)),
            outcome: try row.text(5),
            reason: try row.optionalText(6),
            providerID: try row.optionalText(7),
            milliseconds: row.isNull(8) ? nil : Int(try row.int4(8))
        )
    }

    private static let notification = """
        SELECT n.stored_at, n.sent_via, n.replaced_by, \(NotificationColumns.list)
        FROM carillon.notifications n WHERE n.user_id = $1 AND n.id = $2
        """

    /// With what became of the user's tokens while it was to be sent.
    private static let attempts = """
        SELECT at, kind, provider, device_id, attempt, outcome, reason, provider_id, duration_ms
        FROM carillon.delivery_attempts WHERE user_id = $1 AND notification_id = $2
        UNION ALL
        SELECT t.at, t.kind, t.provider, t.device_id, t.attempt, t.outcome, t.reason, t.provider_id, t.duration_ms
        FROM carillon.notifications n
        JOIN carillon.delivery_attempts t ON t.user_id = n.user_id AND t.kind = 'token' AND t.at >= n.stored_at
            AND t.at < coalesce(n.expires_at, n.created_at + interval '1 day')
        WHERE n.user_id = $1 AND n.id = $2
        ORDER BY at LIMIT $3
        """

    /// Nobody tries to send what is not there yet, so parts of the audit of the days before are not looked at.
    private static let search = """
        SELECT user_id FROM (
            (SELECT a.user_id FROM carillon.delivery_attempts a WHERE a.notification_id = $1 AND a.at >= $4 LIMIT 1)
            UNION ALL
            (SELECT s.user_id FROM (
                SELECT n.user_id, n.id FROM carillon.notifications n
                WHERE n.stored_at BETWEEN $2 AND $3 ORDER BY n.stored_at LIMIT $5
            ) s WHERE s.id = $1 LIMIT 1)
        ) x LIMIT 1
        """
}
