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
        /// The first minute of all counts; incomplete if no later one has counts.
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

    /// The end of a page of failures.
    package struct Cursor: Sendable, Equatable {
        let at: Timestamp
        /// The row's `ctid`: the audit has no key, but its rows never change, and those of one
        /// moment are in one partition.
        let row: String

        /// The text that ``init(_:)`` reads.
        package var text: String { "\(self.at.microseconds).\(self.row)" }

        /// Reads the text of a cursor, such as `1795000000000000.(0,1)`; nil if it is malformed.
        package init?(_ text: String) {
            let parts = text.split(whereSeparator: { ".(,)".contains($0) })
            guard parts.count == 3, let at = Int64(parts[0]), let block = UInt32(parts[1]),
                let index = UInt16(parts[2]), Timestamp(microseconds: at).isWritable
            else { return nil }
            self.init(at: Timestamp(microseconds: at), row: "(\(block),\(index))")
        }

        init(at: Timestamp, row: String) {
            self.at = at
            self.row = row
        }
    }

    /// The number of rows that a query reads at most.
    private static let mostRows: Int32 = 200_000
    /// The most failures that a page inspects; they lie far apart among other attempts.
    private static let mostFailures: Int32 = 50_000
    /// The number of types that a summary has at most.
    package static let mostTypes: Int32 = 100
    private static let patience: Duration = .seconds(5)

    let pool: PostgresPool
    /// The most rows; tests need fewer.
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
            // At the bound the oldest minute is incomplete. It stays if it is the only one.
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

    /// Returns a page of the failed attempts since a moment, newest first, and where the next page
    /// begins; nil at the end.
    ///
    /// A page inspects ``mostFailures`` at most, so with a filter it may be short without being the
    /// last.
    ///
    /// - Parameters:
    ///   - reason: a prefix of the reason.
    ///   - last: the end of the previous page.
    package func failures(
        since: Timestamp,
        reason: String? = nil,
        provider: String? = nil,
        after last: Cursor? = nil,
        limit: Int
    ) async throws(PostgresError) -> (page: [Failure], next: Cursor?) {
        let bound = min(self.bound, Self.mostFailures)
        // A limit above the pool's gives a slow search a connection of its own: no call waits
        // behind it.
        let result = try await self.pool.query(
            StatisticsSQL.failures, .timestamp(since), .timestamp(last?.at), .text(last?.row), .text(reason),
            .text(provider), .int4(bound), .int4(clamping: limit + 1), timeout: .seconds(20))
        var page: [Failure] = []
        var end: Cursor?
        var isCut = false
        for row in result {
            guard page.count < limit else { return (page, end) }
            let at = try row.timestamp(0)
            end = Cursor(at: at, row: try row.text(6))
            isCut = try row.int8(8) >= Int64(bound)
            guard try row.bool(7) else { continue }
            page.append(
                Failure(
                    at: at,
                    user: try row.text(1),
                    notification: try row.optionalID(2),
                    provider: try row.text(3),
                    attempt: try row.int4(4),
                    reason: try row.optionalText(5)
                ))
        }
        return (page, isCut ? end : nil)
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
    ///
    /// A listed row that left the inbox before its user had it is skipped, or suppressed if it was
    /// replaced before it was sent.
    static let inboxes = """
        SELECT date_trunc('minute', n.stored_at), 'in_app',
            CASE
                WHEN n.version = 0 AND n.status = 'suppressed' THEN 'suppressed'
                WHEN n.version = 0 THEN NULL
                WHEN n.delivered_at IS NOT NULL OR n.read_at IS NOT NULL THEN 'delivered'
                WHEN n.status = 'suppressed' THEN 'suppressed'
                WHEN n.status IN ('cancelled', 'expired') OR n.deleted_at IS NOT NULL THEN 'skipped'
                ELSE 'waiting'
            END, count(*)
        FROM (
            SELECT stored_at, version, status, delivered_at, read_at, deleted_at FROM carillon.notifications
            WHERE stored_at >= $1 ORDER BY stored_at DESC LIMIT $2
        ) n GROUP BY 1, 2, 3
        """

    /// The last columns are the number and the first time of all rows, including other types.
    static let types = """
        SELECT n.type, \(Reach.columns), sum(count(*)) OVER ()::int8, min(min(n.stored_at)) OVER ()
        FROM (
            SELECT type, stored_at, \(Reach.source) FROM carillon.notifications
            WHERE stored_at >= $1 ORDER BY stored_at DESC LIMIT $2
        ) n GROUP BY n.type ORDER BY 2 DESC, 1 LIMIT $3
        """

    /// The failures that match, and the last one inspected.
    ///
    /// The literals let the index `delivery_attempts_failed` serve it.
    ///
    /// $1: since, $2 and $3: the cursor after which it begins, null for the newest, $4: a prefix of
    /// the reason, $5: provider, $6: failures to inspect, $7: limit.
    static let failures = """
        SELECT l.at, l.user_id, l.notification_id, l.provider, l.attempt, l.reason, l.row_id::text, l.matches, l.number
        FROM (
            SELECT a.at, a.user_id, a.notification_id, a.provider, a.attempt, a.reason, a.ctid AS row_id,
                ($4::text IS NULL OR starts_with(coalesce(a.reason, ''), $4))
                    AND ($5::text IS NULL OR a.provider = $5) AS matches,
                row_number() OVER (ORDER BY a.at DESC, a.ctid DESC) AS number
            FROM carillon.delivery_attempts a
            WHERE a.at >= $1 AND a.at <= coalesce($2, 'infinity'::timestamptz)
                AND (a.at, a.ctid) < (coalesce($2, 'infinity'::timestamptz), $3::tid)
                AND a.outcome = 'failed' AND a.kind IN ('push', 'email')
            ORDER BY a.at DESC, a.ctid DESC LIMIT $6
        ) l
        WHERE l.matches OR l.number = $6 ORDER BY l.at DESC, l.row_id DESC LIMIT $7
        """
}
