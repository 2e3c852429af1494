// Carillon · TraceStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The full record of one notification.
package struct TraceStore: Sendable {
    /// An attempt, a skipped attempt or a change of a token.
    package struct Attempt: Sendable {
        package let at: Timestamp
        package let kind: String
        package let provider: String
        package let device: DeviceID?
        package let attempt: Int
        package let outcome: String
        package let reason: String?
        package let providerID: String?
        package let milliseconds: Int?
    }

    /// The digest that holds an item without a notification of its own.
    package struct Gathering: Sendable {
        package let window: DigestWindowID
        /// The summary that stands for the item; nil while it waits and if it was dropped.
        package let summary: (id: NotificationID, storedAt: Timestamp)?
    }

    /// A notification and its history.
    package struct Record: Sendable {
        package let notification: Notification
        package let storedAt: Timestamp
        package let sentVia: String?
        package let replacedBy: NotificationID?
        /// The newest ones, oldest first.
        package let attempts: [Attempt]
        /// The number of older attempts that are left out.
        package var omitted = 0
        package let followUps: [(kind: String, due: Timestamp)]
        /// When its user archived it; nil if it is not in the archive.
        package var archivedAt: Timestamp?
        /// When its job was last cancelled; nil once the cancellation is forgotten.
        package let cancelledAt: Timestamp?
        /// Set for an item that a digest held; `storedAt` is then when it was gathered.
        package let gathering: Gathering?
    }

    /// The most attempts in a record.
    static let mostAttempts = 1_000
    /// How long after the time in its id a notification without a given user is searched for, and
    /// among how many at most.
    private static let searchSpan: Duration = .seconds(600)
    static let mostSearched = 100_000
    /// The largest assumed difference between the clocks of Redis, PostgreSQL and dispatchers.
    private static let skew: Duration = .seconds(60)

    let pool: PostgresPool

    /// The record of a notification or of an item that a digest held; nil if there is none.
    ///
    /// - Parameter user: the owner. Without it the notification is found by an attempt, or among
    ///   the first ``mostSearched`` stored within ten minutes of the time in its id.
    package func record(_ id: NotificationID, user: String?) async throws(PostgresError) -> Record? {
        guard let user = try await self.owner(of: id, named: user) else { return nil }
        let key: [PostgresValue] = [.text(user), .id(id)]
        let results = try await self.pool.run([
            PostgresStatement(Self.notification, key),
            PostgresStatement(Self.attempts, key + [.int4(clamping: Self.mostAttempts)]),
            PostgresStatement(Self.followUps, key),
            PostgresStatement(Self.cancellation, key),
        ])
        guard let row = results[0].first else { return try await self.held(id, user: user) }
        return Record(
            notification: try NotificationColumns.all.read(row, at: 4),
            storedAt: try row.timestamp(0),
            sentVia: try row.optionalText(1),
            replacedBy: try row.optionalID(2),
            attempts: try results[1].map { (row) throws(PostgresError) in try Self.attempt(row) }.reversed(),
            omitted: try results[1].first.map { (row) throws(PostgresError) in
                Int(try row.int8(9)) - results[1].count
            } ?? 0,
            followUps: try results[2].map { (row) throws(PostgresError) in (try row.text(0), try row.timestamp(1)) },
            archivedAt: try row.optionalTimestamp(3),
            cancelledAt: try results[3].first?.optionalTimestamp(0),
            gathering: nil
        )
    }

    /// Returns the items of a job that digests held, by user; not a lone one, which has a
    /// notification of its own.
    ///
    /// - Parameter user: the only user whose items are wanted; nil for all.
    package func held(
        of name: CancellationStore.Name,
        user: String?,
        limit: Int
    ) async throws(PostgresError) -> [NotificationKey] {
        for (column, ids) in [("job_id", name.ids), ("job_entry", name.entries)] where !ids.isEmpty {
            let found = try await self.pool.query(
                Self.heldItems(of: column), .text(name.org), .texts(ids), .text(user), .int4(clamping: limit))
            guard found.isEmpty else { return try found.keys() }
        }
        return []
    }

    /// An item of a digest as the notification that it would have been.
    private func held(_ id: NotificationID, user: String) async throws(PostgresError) -> Record? {
        guard let row = try await self.pool.query(Self.heldItem, .text(user), .id(id)).first else {
            return nil
        }
        let window = try row.id(0)
        let isWaiting = try row.bool(2)
        let cancelledAt = try row.optionalTimestamp(5)
        var notification = Notification(
            id: id, user: user, type: "", createdAt: Timestamp(milliseconds: id.milliseconds))
        try NotificationColumns.item.read(row, at: 8, into: &notification)
        var summary: (id: NotificationID, storedAt: Timestamp)?
        let fate = try row.optionalText(4).flatMap { DigestStore.Fate(rawValue: $0) }
        switch fate {
        case .cancelled: notification.status = .cancelled
        case .expired: notification.status = .expired
        case .read:
            notification.status = .suppressed
            notification.statusReason = DigestStore.Fate.read.rawValue
        case .alone, .suppressed, nil:
            if isWaiting, cancelledAt != nil, try !row.bool(7) {
                // It drops out when a dispatcher claims the window.
                notification.status = .cancelled
            } else if isWaiting {
                notification.status = .deferred
                notification.statusReason = RecordedReason.digest.rawValue
            } else {
                let id = DigestStore.summary(of: window, newest: try row.id(6), user: user)
                let stored = try await self.stored(id, user: user)
                summary = stored.map { (id: id, storedAt: $0.at) }
                let isSuppressed = fate == .suppressed || fate == .alone && stored?.status == .suppressed
                notification.status = isSuppressed ? .suppressed : .sent
                notification.statusReason = isSuppressed ? stored?.reason : RecordedReason.summarised.rawValue
            }
        }
        let due = try row.timestamp(3)
        return Record(
            notification: notification,
            storedAt: try row.timestamp(1),
            sentVia: notification.status == .sent ? SentVia.summary.rawValue : nil,
            replacedBy: nil,
            attempts: [],
            followUps: isWaiting && notification.status == .deferred ? [(kind: "summary", due: due)] : [],
            cancelledAt: cancelledAt,
            gathering: Gathering(window: window, summary: summary)
        )
    }

    /// When a notification was stored, and its status; nil if it is not there.
    private func stored(
        _ id: NotificationID,
        user: String
    ) async throws(PostgresError) -> (at: Timestamp, status: NotificationStatus?, reason: String?)? {
        let result = try await self.pool.query(
            "SELECT stored_at, status, status_reason FROM carillon.notifications WHERE user_id = $1 AND id = $2",
            .text(user), .id(id)
        )
        guard let row = result.first else { return nil }
        return (try row.timestamp(0), NotificationStatus(rawValue: try row.text(1)), try row.optionalText(2))
    }

    private func owner(of id: NotificationID, named user: String?) async throws(PostgresError) -> String? {
        if let user { return user }
        let moment = Timestamp(milliseconds: id.milliseconds)
        let result = try await self.pool.query(
            Self.search, .id(id), .timestamp(moment - .seconds(1)),
            .timestamp(moment + Self.searchSpan), .timestamp(moment - Self.skew), .int4(clamping: Self.mostSearched)
        )
        return try result.first?.text(0)
    }

    private static func attempt(_ row: PostgresRow) throws(PostgresError) -> Attempt {
        Attempt(
            at: try row.timestamp(0),
            kind: try row.text(1),
            provider: try row.text(2),
            device: try row.optionalID(3).flatMap { $0 == Device.emailAddress ? nil : $0 },
            attempt: Int(try row.int4(4)),
            outcome: try row.text(5),
            reason: try row.optionalText(6),
            providerID: try row.optionalText(7),
            milliseconds: row.isNull(8) ? nil : Int(try row.int4(8))
        )
    }

    private static let notification = """
        SELECT n.stored_at, n.sent_via, n.replaced_by, a.archived_at, \(NotificationColumns.list)
        FROM carillon.notifications n
        LEFT JOIN carillon.archived a ON a.user_id = n.user_id AND a.notification_id = n.id
        WHERE n.user_id = $1 AND n.id = $2
        """

    /// The newest attempts and the number of all, with the changes of the user's tokens during the
    /// notification's delivery.
    private static let attempts = """
        SELECT x.*, count(*) OVER () FROM (
            SELECT at, kind, provider, device_id, attempt, outcome, reason, provider_id, duration_ms
            FROM carillon.delivery_attempts WHERE user_id = $1 AND notification_id = $2
            UNION ALL
            SELECT t.at, t.kind, t.provider, t.device_id, t.attempt, t.outcome, t.reason, t.provider_id, t.duration_ms
            FROM carillon.notifications n
            JOIN carillon.delivery_attempts t ON t.user_id = n.user_id AND t.kind = 'token' AND t.at >= n.stored_at
                AND t.at < n.expires_at
            WHERE n.user_id = $1 AND n.id = $2
        ) x ORDER BY x.at DESC LIMIT $3
        """

    /// The end of a snooze, and follow-ups that are not enqueued.
    private static let followUps = """
        SELECT kind, due_at FROM carillon.follow_ups
        WHERE user_id = $1 AND notification_id = $2 AND NOT \(FollowUpStore.isUnderWay)
        UNION ALL
        SELECT 'snooze', s.due_at FROM carillon.schedules s
        WHERE s.user_id = $1 AND s.state = 'waiting' AND \(ScheduleSQL.isSnooze(of: "$2::uuid"))
        ORDER BY due_at
        """

    private static let cancellation = """
        SELECT max(c.at) FROM carillon.notifications n JOIN carillon.cancellations c ON c.org_id = n.org_id
            AND c.job_id = ANY (ARRAY[n.job_id, n.job_entry, split_part(n.job_entry, '/', 2)])
        WHERE n.user_id = $1 AND n.id = $2
        """

    /// An item of a digest, and whether its window waits for a dispatcher or for its summary.
    private static let heldItem = """
        SELECT i.digest_id, i.gathered_at, (\(DigestSQL.isWaiting("d"))) IS TRUE, coalesce(d.due_at, i.gathered_at),
            i.fate,
            (SELECT max(c.at) FROM carillon.cancellations c WHERE c.org_id = i.org_id
                AND c.job_id = ANY (ARRAY[i.job_id, i.job_entry, split_part(i.job_entry, '/', 2)])),
            (SELECT x.notification_id FROM carillon.digest_items x WHERE x.digest_id = i.digest_id AND NOT x.is_single
                ORDER BY x.notification_id DESC LIMIT 1),
            (\(DigestSQL.isClaimed("d"))) IS TRUE,
            \(NotificationColumns.item.list(of: "i"))
        FROM carillon.digest_items i
        LEFT JOIN carillon.digests d ON d.id = i.digest_id
        WHERE i.user_id = $1 AND i.notification_id = $2 AND NOT i.is_single
        """

    /// Sorts all items of the job; otherwise PostgreSQL would read items of other jobs to find the
    /// first few in order.
    ///
    /// $1: organisation, $2: ids or entries of the job, $3: user or null, $4: limit.
    static func heldItems(of column: String) -> String {
        """
        WITH items AS MATERIALIZED (
            SELECT i.user_id, i.notification_id FROM carillon.digest_items i
            WHERE i.org_id = $1 AND i.\(column) = ANY ($2) AND ($3::text IS NULL OR i.user_id = $3) AND NOT i.is_single
                AND (i.fate IS DISTINCT FROM '\(DigestStore.Fate.alone.rawValue)' OR EXISTS (
                    SELECT FROM carillon.digests d WHERE d.id = i.digest_id AND \(DigestSQL.isClaimed("d"))
                ))
        )
        SELECT user_id, notification_id FROM items ORDER BY user_id, notification_id LIMIT $4
        """
    }

    /// Attempts are never older than the notification, so earlier partitions of the audit are
    /// skipped.
    private static let search = """
        SELECT user_id FROM (
            (SELECT a.user_id FROM carillon.delivery_attempts a WHERE a.notification_id = $1 AND a.at >= $4 LIMIT 1)
            UNION ALL
            (SELECT s.user_id FROM (
                SELECT n.user_id, n.id FROM carillon.notifications n
                WHERE n.stored_at BETWEEN $2 AND $3 ORDER BY n.stored_at LIMIT $5
            ) s WHERE s.id = $1 LIMIT 1)
            UNION ALL
            (SELECT g.user_id FROM (
                SELECT i.user_id, i.notification_id FROM carillon.digest_items i
                WHERE i.gathered_at BETWEEN $2 AND $3 ORDER BY i.gathered_at LIMIT $5
            ) g WHERE g.notification_id = $1 LIMIT 1)
        ) x LIMIT 1
        """
}
