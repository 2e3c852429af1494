// Carillon · OverviewStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The state of the whole installation over a span of time, for operators.
package struct OverviewStore: Sendable {
    /// The times, in milliseconds, within which half, 95 % and 99 % were done.
    package struct Latency: Sendable, Equatable {
        package let count: Int64
        package let p50: Int64
        package let p95: Int64
        package let p99: Int64
    }

    /// Counts over a span.
    package struct Summary: Sendable {
        /// The earliest time of the counts.
        package let since: Timestamp
        /// Whether they cover all of the requested time.
        package let isComplete: Bool
        package let reach: Reach
        /// The number of notifications of the largest organisations.
        package let organisations: [(org: String, stored: Int64)]
        /// From job to proof, to a push provider's answer, and to the relay's; nil without any.
        ///
        /// Broadcasts are left out: they may wait for their confirmation, and are stored in pages.
        package let socket: Latency?
        package let push: Latency?
        package let email: Latency?
        /// Steps that wait for their time.
        package let held: Int64
        /// Steps, digests and schedules whose time passed more than a minute ago.
        package let late: Int64
        package let deadLetters: Int64
    }

    /// The number of notifications that are counted at most.
    private static let mostRows: Int32 = 200_000
    /// The number of accepted attempts that a latency is taken from.
    private static let mostAttempts: Int32 = 20_000
    private static let mostOrganisations: Int32 = 20
    private static let patience: Duration = .seconds(10)

    let pool: PostgresPool

    /// Counts notifications and deliveries since a moment, of one organisation or of all.
    package func summary(since: Timestamp, org: String?, now: Timestamp) async throws(PostgresError) -> Summary {
        let rows: [PostgresValue] = [.timestamp(since), .int4(Self.mostRows), .text(org)]
        let attempts: [PostgresValue] = [
            .timestamp(since), .int4(Self.mostRows), .text(org), .int4(Self.mostAttempts),
        ]
        let results = try await self.pool.run(
            [
                PostgresStatement(OverviewSQL.reach, rows),
                PostgresStatement(
                    OverviewSQL.organisations, Array(rows.prefix(2)) + [.int4(Self.mostOrganisations)]),
                PostgresStatement(OverviewSQL.latency(of: "push"), attempts),
                PostgresStatement(OverviewSQL.latency(of: "email"), attempts),
                PostgresStatement(OverviewSQL.waiting, [.timestamp(now), .int4(Self.mostRows)]),
                PostgresStatement(OverviewSQL.deadLetters, [.int4(Self.mostRows)]),
            ],
            timeout: Self.patience)
        guard let counts = results[0].first, let waiting = results[4].first, let dead = results[5].first
        else { throw PostgresError(.decoding, "the overview returned no result") }
        let looked = try counts.int8(11)
        let oldest = try counts.optionalTimestamp(12)
        let isComplete = looked < Int64(Self.mostRows)
        return Summary(
            since: isComplete ? since : max(since, oldest ?? since),
            isComplete: isComplete,
            reach: try Reach(counts),
            organisations: try results[1].map { (row) throws(PostgresError) in (try row.text(0), try row.int8(1)) },
            socket: try Self.latency(counts, at: 7),
            push: try results[2].first.flatMap { (row) throws(PostgresError) in try Self.latency(row, at: 0) },
            email: try results[3].first.flatMap { (row) throws(PostgresError) in try Self.latency(row, at: 0) },
            held: try waiting.int8(0),
            late: try waiting.int8(1),
            deadLetters: try dead.int8(0)
        )
    }

    /// Reads a count and three percentiles; nil if the count is 0.
    private static func latency(_ row: PostgresRow, at first: Int) throws(PostgresError) -> Latency? {
        let count = try row.int8(first)
        guard count > 0 else { return nil }
        return Latency(
            count: count, p50: try row.int8(first + 1), p95: try row.int8(first + 2), p99: try row.int8(first + 3))
    }
}

/// The statements of ``OverviewStore``.
private enum OverviewSQL {
    /// $1: since, $2: the most rows, $3: organisation or null.
    static let reach = """
        WITH newest AS MATERIALIZED (
            SELECT org_id, job_id, created_at, stored_at, \(Reach.source) FROM carillon.notifications
            WHERE stored_at >= $1 ORDER BY stored_at DESC LIMIT $2
        )
        SELECT \(Reach.columns),
            count(*) FILTER (WHERE \(Self.isLive)), \(Self.percentiles(of: Self.toProof, where: Self.isLive)),
            (SELECT count(*) FROM newest), (SELECT min(stored_at) FROM newest)
        FROM newest n LEFT JOIN carillon.broadcasts b ON b.org_id = n.org_id AND b.job_id = n.job_id
        WHERE $3::text IS NULL OR n.org_id = $3
        """

    /// $1: since, $2: the most rows, $3: the most organisations.
    static let organisations = """
        SELECT org_id, count(*) FROM (
            SELECT org_id FROM carillon.notifications WHERE stored_at >= $1 ORDER BY stored_at DESC LIMIT $2
        ) n GROUP BY org_id ORDER BY 2 DESC, 1 LIMIT $3
        """

    /// Accepted attempts, except those of broadcasts, of deliveries that quiet hours postponed
    /// (even before the span), and of attention calls, which waited on purpose.
    ///
    /// $1: since, $2: the most attempts to inspect, $3: organisation or null, $4: the most accepted
    /// ones of the kind.
    static func latency(of kind: String) -> String {
        let duration = "a.at + coalesce(a.duration_ms, 0) * interval '1 millisecond' - n.created_at"
        return """
            SELECT count(*), \(Self.percentiles(of: duration))
            FROM (
                SELECT * FROM (
                    SELECT at, kind, user_id, notification_id, duration_ms, outcome FROM carillon.delivery_attempts
                    WHERE at >= $1 ORDER BY at DESC LIMIT $2
                ) newest WHERE kind = '\(kind)' AND outcome = 'accepted' LIMIT $4
            ) a
            JOIN carillon.notifications n ON n.user_id = a.user_id AND n.id = a.notification_id
            LEFT JOIN carillon.broadcasts b ON b.org_id = n.org_id AND b.job_id = n.job_id
            WHERE ($3::text IS NULL OR n.org_id = $3) AND b.id IS NULL
                AND (a.kind <> 'push' OR n.delivered_at IS NULL OR n.delivered_at >= a.at) AND NOT EXISTS (
                SELECT FROM carillon.delivery_attempts s
                WHERE s.notification_id = n.id AND s.kind = '\(AuditStep.kind)'
                    AND s.at >= $1::timestamptz - interval '7 days'
                    AND s.outcome = '\(AuditStep.deferred.rawValue)')
            """
    }

    /// A step, digest or schedule that a dispatcher has taken is due again within a minute; a
    /// digest that was put off, within ten.
    ///
    /// Pages of broadcasts are left out, because they wait while their lane is full.
    ///
    /// $1: now, $2: the most of each kind.
    static let waiting = """
        SELECT
            (SELECT count(*) FROM (SELECT FROM carillon.follow_ups WHERE due_at > $1
                AND NOT \(FollowUpStore.isUnderWay) LIMIT $2) h),
            (SELECT count(*) FROM (SELECT FROM carillon.follow_ups WHERE due_at < $1 + interval '1 minute'
                AND coalesce(was_due_at, due_at) < $1 - interval '1 minute'
                AND reason IS DISTINCT FROM '\(FollowUpStore.handedOn)' LIMIT $2) l)
            + (SELECT count(*) FROM (SELECT FROM carillon.digests WHERE due_at < $1 + interval '10 minutes'
                AND least(due_at, last_at) < $1 - interval '1 minute' LIMIT $2) d)
            + (SELECT count(*) FROM (SELECT FROM carillon.schedules WHERE lane IN (\(Self.lanes))
                AND wake_at < $1 + interval '1 minute' AND due_at < $1 - interval '1 minute'
                AND \(ScheduleSQL.isJob) LIMIT $2) s)
        """

    /// The lanes, by which an index finds schedules.
    private static let lanes = Lane.allCases.map { "\($0.rank)" }.joined(separator: ", ")

    /// $1: the most letters.
    static let deadLetters = "SELECT count(*) FROM (SELECT FROM carillon.dead_letters LIMIT $1) d"

    /// Whether a socket that was open at the time got the notification, and it is of no broadcast.
    ///
    /// A later proof waited for the user or for the end of quiet hours; by then the sweep has
    /// settled notifications that no socket proved.
    private static let isLive = """
        n.sent_via = 'socket' AND n.delivered_at <= n.stored_at + interval '2 minutes' AND b.id IS NULL
        """
    private static let toProof = "n.delivered_at - n.created_at"

    /// Three columns of milliseconds: 50 %, 95 % and 99 %.
    private static func percentiles(of interval: String, where condition: String = "true") -> String {
        let milliseconds = "(extract(epoch FROM \(interval)) * 1000)"
        return [0.5, 0.95, 0.99].map { share in
            """
            greatest(0, percentile_disc(\(share)) WITHIN GROUP (ORDER BY \(milliseconds))
                FILTER (WHERE \(condition)))::int8
            """
        }.joined(separator: ", ")
    }
}
