// Carillon · PeopleStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Single users, for operators: who they are, what they got, and what waits for them.
package struct PeopleStore: Sendable {
    /// A user, as a search finds them.
    package struct Person: Sendable, Equatable {
        package let user: String
        package let email: String?
        /// Why mail to the address comes back; nil if it does not.
        package let emailFault: String?
        package let locale: String?
        package let zone: String?
        package let createdAt: Timestamp
        /// When the user's last socket closed.
        package let lastSeen: Timestamp?
    }

    /// The notifications that a list shows.
    package struct Filter: Sendable {
        package var type: String?
        package var status: NotificationStatus?
        /// Only those older than this.
        package var before: NotificationID?
        package var limit = 20

        package init() {}
    }

    /// A notification, and how it went out: `socket`, `client`, `inbox` or a provider's name.
    package struct Item: Sendable {
        package let notification: Notification
        package let sentVia: String?
        /// When its user archived it; nil if it is not in the archive.
        package let archivedAt: Timestamp?
    }

    /// A postponed step of a notification, a digest, or a scheduled job for the user alone.
    package struct Waiting: Sendable, Equatable {
        /// The notification, the one that was snoozed, or the digest's first held item; nil for
        /// another scheduled job.
        package let notification: NotificationID?
        /// A ``FollowUp``, `summary`, `snooze` or `schedule`.
        package let kind: String
        package let dueAt: Timestamp
        package let reason: String?
        /// The id of the scheduled job.
        package let job: String?
    }

    private static let mostFound: Int32 = 20
    private static let mostTopics: Int32 = 1_000
    private static let mostWaiting: Int32 = 100

    /// The collation is that of the index of `users`.
    ///
    /// $1: id or address, $2: limit.
    static let search = """
        WITH found AS (
            SELECT $1::text AS user_id UNION
            (SELECT x.user_id FROM carillon.user_settings x WHERE lower(x.email) = lower($1) LIMIT $2)
        )
        SELECT u.user_id, s.email, s.locale, s.zone, u.created_at, u.last_seen,
            CASE WHEN s.email_invalid_at IS NOT NULL THEN coalesce(s.email_invalid_reason, 'unknown') END
        FROM found f JOIN carillon.users u ON u.user_id = f.user_id COLLATE "default"
        LEFT JOIN carillon.user_settings s ON s.user_id = u.user_id
        ORDER BY u.user_id <> $1, u.user_id LIMIT $2
        """

    let pool: PostgresPool

    /// Returns the users with this id or e-mail address, at most 20; the letter case of an address
    /// does not matter.
    package func find(_ text: String) async throws(PostgresError) -> [Person] {
        let result = try await self.pool.query(Self.search, .text(text), .int4(Self.mostFound))
        return try result.map { (row) throws(PostgresError) in
            Person(
                user: try row.text(0), email: try row.optionalText(1), emailFault: try row.optionalText(6),
                locale: try row.optionalText(2), zone: try row.optionalText(3), createdAt: try row.timestamp(4),
                lastSeen: try row.optionalTimestamp(5))
        }
    }

    /// Whether there is a user with this id.
    package func has(_ user: String) async throws(PostgresError) -> Bool {
        try await !self.pool.query("SELECT FROM carillon.users WHERE user_id = $1", .text(user)).isEmpty
    }

    /// Returns a user's notifications, the newest first, whether they are in the inbox or not.
    package func notifications(user: String, _ filter: Filter) async throws(PostgresError) -> [Item] {
        let end = filter.before ?? .greatest
        let result = try await self.pool.query(
            """
            SELECT n.sent_via, a.archived_at, \(NotificationColumns.list) FROM carillon.notifications n
            LEFT JOIN carillon.archived a ON a.user_id = n.user_id AND a.notification_id = n.id
            WHERE n.user_id = $1 AND n.id < $2 AND ($3::text IS NULL OR n.type = $3)
                AND ($4::text IS NULL OR n.status = $4)
            ORDER BY n.id DESC LIMIT $5
            """,
            .text(user), .id(end), .text(filter.type), .text(filter.status?.rawValue),
            .int4(clamping: filter.limit))
        return try Self.items(result)
    }

    /// Reads rows of `sent_via`, `archived_at` and the notification's columns.
    static func items(_ result: PostgresResult) throws(PostgresError) -> [Item] {
        try result.map { (row) throws(PostgresError) in
            Item(
                notification: try NotificationColumns.all.read(row, at: 2), sentVia: try row.optionalText(0),
                archivedAt: try row.optionalTimestamp(1))
        }
    }

    /// Returns the topics that a user subscribes to: at most 1,000, in order.
    package func topics(of user: String) async throws(PostgresError) -> [String] {
        let result = try await self.pool.query(
            "SELECT topic FROM carillon.subscriptions WHERE user_id = $1 ORDER BY topic LIMIT $2",
            .text(user), .int4(Self.mostTopics))
        return try result.texts()
    }

    /// Returns the steps, digests and jobs that wait for a user: at most the 100 that are due
    /// first.
    package func waiting(for user: String) async throws(PostgresError) -> [Waiting] {
        let result = try await self.pool.query(
            """
            SELECT notification_id, kind, due_at, reason, NULL::text FROM carillon.follow_ups
            WHERE user_id = $1 AND NOT \(FollowUpStore.isUnderWay)
            UNION ALL
            SELECT h.notification_id, 'summary', d.due_at, 'digest', NULL FROM carillon.digests d
            CROSS JOIN LATERAL (
                SELECT i.notification_id FROM carillon.digest_items i WHERE i.digest_id = d.id AND NOT i.is_single
                ORDER BY i.notification_id LIMIT 1
            ) h
            WHERE d.user_id = $1 AND \(DigestSQL.isWaiting("d"))
            UNION ALL
            SELECT NULL, 'schedule', due_at, NULL, job_id FROM carillon.schedules
            WHERE user_id = $1 AND state = 'waiting'
            ORDER BY due_at, notification_id LIMIT $2
            """,
            .text(user), .int4(Self.mostWaiting))
        return try result.map { (row) throws(PostgresError) in
            let (notification, kind, job) = (try row.optionalID(0), try row.text(1), try row.optionalText(4))
            let snoozed = job.flatMap { ScheduleStore.snoozed(byJob: $0) }
            return Waiting(
                notification: snoozed ?? notification, kind: snoozed == nil ? kind : "snooze",
                dueAt: try row.timestamp(2), reason: try row.optionalText(3), job: job)
        }
    }
}
