// Carillon · StatisticsStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Counts of recent deliveries for operators.
///
/// Each query reads the newest rows by an index on time; most read no more than a bound.
package struct StatisticsStore: Sendable {
    /// The number of attempts, or of inbox rows, with one outcome in one minute.
    package struct Count: Sendable {
        package let minute: Timestamp
        /// A provider, or `in_app`.
        package let channel: String
        package let outcome: String
        package let count: Int64
    }

    /// All counts of a summary.
    package struct Summary: Sendable {
        /// The first minute of all counts; incomplete if it is the only one that is left.
        package let since: Timestamp
        /// The number of requested minutes before ``since``.
        package let skippedMinutes: Int
        /// Whether the counts cover all of the requested time.
        package let isComplete: Bool
        package let counts: [Count]
        package let types: [(type: String, reach: Reach)]
        /// When the counts of the types begin, if there were too many rows to count all.
        package let typesStart: Timestamp?
    }

    /// A failed attempt.
    package struct Failure: Sendable {
        package let at: Timestamp
        package let user: String
        package let notification: NotificationID?
        package let provider: String
        package let attempt: Int32
        package let reason: String?
    }

    /// The number of rows that a query reads at most.
    private static let mostRows: Int32 = 200_000
    /// The number of types that a summary has at most.
    package static let mostTypes: Int32 = 100
    private static let patience: Duration = .seconds(5)

    let pool: PostgresPool
    /// ``mostRows``; tests need fewer.
    var bound = Self.mostRows

    /// Counts by minute since a moment, and by type since another.
    package func summary(since: Timestamp, typesSince: Timestamp) async throws(PostgresError) -> Summary {
        let minutes: [PostgresValue] = [.timestamp(since), .int4(self.bound)]
        let results = try await self.pool.run(
            [
                PostgresStatement(StatisticsSQL.attempts, minutes),
                PostgresStatement(StatisticsSQL.inboxes, minutes),
                PostgresStatement(
                    StatisticsSQL.types,
                    [.timestamp(typesSince), .int4(self.bound), .int4(Self.mostTypes)]),
            ],
            timeout: Self.patience
        )
        var counts: [Count] = []
        var start = since
        var isComplete = true
        for result in results.prefix(2) {
            var total: Int64 = 0
            var first: Timestamp?
            var last: Timestamp?
            for row in result {
                let minute = try row.timestamp(0)
                let count = try row.int8(3)
                total += count
                first = min(first ?? minute, minute)
                last = max(last ?? minute, minute)
                guard let outcome = try row.optionalText(2) else { continue }
                counts.append(Count(minute: minute, channel: try row.text(1), outcome: outcome, count: count))
            }
            // At the bound the oldest minute is incomplete. It stays if it is all that there is.
            guard total >= Int64(self.bound), let first, let last else { continue }
            isComplete = false
            start = max(start, min(first + .seconds(60), last))
        }
        var typesStart: Timestamp?
        if let row = results[2].first, try row.int8(8) >= Int64(self.bound) { typesStart = try row.timestamp(9) }
        return Summary(
            since: start,
            skippedMinutes: Int((start - since).components.seconds / 60),
            isComplete: isComplete,
            counts: counts.filter { $0.minute >= start },
            types: try results[2].map { (row) throws(PostgresError) in (try row.text(0), try Reach(row, at: 1)) },
            typesStart: typesStart
        )
    }

    /// The newest failed attempts since a moment, newest first.
    package func failures(since: Timestamp, limit: Int) async throws(PostgresError) -> [Failure] {
        let result = try await self.pool.query(
            StatisticsSQL.failures, .timestamp(since), .int4(clamping: limit), timeout: Self.patience)
        return try result.map { (row) throws(PostgresError) in
            Failure(
                at: try row.timestamp(0),
                user: try row.text(1),
                notification: try row.optionalID(2),
                provider: try row.text(3),
                attempt: try row.int4(4),
                reason: try row.optionalText(5)
            )
        }
    }
}

/// The progress of a set of notifications; one notification may count in several numbers.
package struct Reach: Sendable, Equatable {
    package var stored: Int64 = 0
    /// Notifications that stay in the inbox or failed because their user has no device for a push.
    package var noDevice: Int64 = 0
    /// Accepted by a push provider, or by the mail relay if no push was left.
    package var accepted: Int64 = 0
    package var failed: Int64 = 0
    /// Confirmed by a client.
    package var delivered: Int64 = 0
    package var opened: Int64 = 0
    package var read: Int64 = 0

    /// The counts over rows of an alias `n`, in the order of ``init(_:at:)``.
    static let columns = """
        count(*), count(*) FILTER (WHERE n.status_reason = 'no_device'),
            count(*) FILTER (WHERE n.sent_via NOT IN ('inbox', 'socket', 'client', 'summary')),
            count(*) FILTER (WHERE n.status = 'failed' AND n.status_reason IS DISTINCT FROM 'no_device'),
            count(n.delivered_at), count(n.opened_at), count(n.read_at)
        """

    /// The table columns that they are counted from.
    static let source = "status, status_reason, sent_via, delivered_at, opened_at, read_at"

    package init() {}

    init(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) {
        self.stored = try row.int8(first)
        self.noDevice = try row.int8(first + 1)
        self.accepted = try row.int8(first + 2)
        self.failed = try row.int8(first + 3)
        self.delivered = try row.int8(first + 4)
        self.opened = try row.int8(first + 5)
        self.read = try row.int8(first + 6)
    }

    mutating func add(_ other: Reach) {
        self.stored += other.stored
        self.noDevice += other.noDevice
        self.accepted += other.accepted
        self.failed += other.failed
        self.delivered += other.delivered
        self.opened += other.opened
        self.read += other.read
    }
}

/// The statements of ``StatisticsStore``.
enum StatisticsSQL {
    static let attempts = """
        SELECT date_trunc('minute', a.at), a.provider, a.outcome, count(*)
        FROM (
            SELECT at, provider, outcome FROM carillon.delivery_attempts
            WHERE at >= $1 AND kind IN ('push', 'email') ORDER BY at DESC LIMIT $2
        ) a GROUP BY 1, 2, 3
        """

    /// Unlisted rows count only if they were suppressed; others have no outcome.
    static let inboxes = """
        SELECT date_trunc('minute', n.stored_at), 'in_app',
            CASE
                WHEN n.version = 0 AND n.status = 'suppressed' THEN 'suppressed'
                WHEN n.version = 0 THEN NULL
                WHEN n.delivered_at IS NOT NULL OR n.read_at IS NOT NULL THEN 'delivered'
                WHEN n.status IN ('cancelled', 'expired') THEN 'skipped'
                ELSE 'waiting'
            END, count(*)
        FROM (
            SELECT stored_at, version, status, delivered_at, read_at FROM carillon.notifications
            WHERE stored_at >= $1 ORDER BY stored_at DESC LIMIT $2
        ) n GROUP BY 1, 2, 3
        """

    /// The last columns are the number and the first time of all rows, also those of other types.
    static let types = """
        SELECT n.type, \(Reach.columns), sum(count(*)) OVER ()::int8, min(min(n.stored_at)) OVER ()
        FROM (
            SELECT type, stored_at, \(Reach.source) FROM carillon.notifications
            WHERE stored_at >= $1 ORDER BY stored_at DESC LIMIT $2
        ) n GROUP BY n.type ORDER BY 2 DESC, 1 LIMIT $3
        """

    /// The literals let the index `delivery_attempts_failed` serve it.
    ///
    /// $1: since, $2: limit.
    static let failures = """
        SELECT at, user_id, notification_id, provider, attempt, reason FROM carillon.delivery_attempts
        WHERE at >= $1 AND outcome = 'failed' AND kind IN ('push', 'email') ORDER BY at DESC LIMIT $2
        """
}
