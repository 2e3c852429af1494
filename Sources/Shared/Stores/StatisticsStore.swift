// Carillon · StatisticsStore.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Postgres

/// What went out lately, counted for operators.
///
/// Each question reads the newest rows by an index on time, and no more of them than its bound.
package struct StatisticsStore: Sendable {
    /// How many sends, or rows of inboxes, ended in one way in one minute.
    package struct Count: Sendable {
        package let minute: Timestamp
        /// A provider, or `in_app`.
        package let channel: String
        package let outcome: String
        package let count: Int64
    }

    /// What became of the notifications of a type or of a broadcast.
    package struct Rates: Sendable {
        package let stored: Int64
        /// A provider or a client has it.
        package let accepted: Int64
        package let opened: Int64
        package let read: Int64
        package let failed: Int64
    }

    /// All that is counted at once.
    package struct Summary: Sendable {
        /// The minute from which on all is counted.
        package let since: Timestamp
        /// Whether that is all of the time that was asked for.
        package let isComplete: Bool
        package let counts: [Count]
        package let types: [(type: String, rates: Rates)]
        package let broadcasts: [(id: NotificationID, org: String, job: String, rates: Rates)]
    }

    /// A send that failed.
    package struct Failure: Sendable {
        package let at: Timestamp
        package let user: String
        package let notification: NotificationID?
        package let provider: String
        package let attempt: Int32
        package let reason: String?
    }

    /// Rows that a question reads at most.
    private static let mostRows: Int32 = 200_000
    /// Notifications of a broadcast that are counted at most.
    private static let mostOfBroadcast: Int32 = 20_000
    private static let mostBroadcasts: Int32 = 10
    private static let mostTypes: Int32 = 100
    private static let patience: Duration = .seconds(5)

    private let pool: PostgresPool

    package init(pool: PostgresPool) {
        self.pool = pool
    }

    /// Counts the minutes since a moment, and since another one the types.
    package func summary(since: Timestamp, typesSince: Timestamp) async throws(PostgresError) -> Summary {
        let minutes: [PostgresValue] = [.timestamptz(since.microseconds), .int4(Self.mostRows)]
        let results = try await self.pool.run(
            [
                PostgresStatement(StatisticsSQL.attempts, minutes),
                PostgresStatement(StatisticsSQL.inboxes, minutes),
                PostgresStatement(
                    StatisticsSQL.types,
                    [.timestamptz(typesSince.microseconds), .int4(Self.mostRows), .int4(Self.mostTypes)]),
                PostgresStatement(
                    StatisticsSQL.broadcasts, [.int4(Self.mostBroadcasts), .int4(Self.mostOfBroadcast)]),
            ],
            timeout: Self.patience
        )
        guard results.count == 4 else { throw PostgresError(.decoding, "there are no statistics") }
        var counts: [Count] = []
        var start = since
        for result in results.prefix(2) {
            var total: Int64 = 0
            var first: Timestamp?
            for row in result {
                let minute = Timestamp(microseconds: try row.timestamptz(0))
                let count = try row.int8(3)
                total += count
                first = min(first ?? minute, minute)
                guard let outcome = try row.optionalText(2) else { continue }
                counts.append(Count(minute: minute, channel: try row.text(1), outcome: outcome, count: count))
            }
            // At the bound the oldest minute is not whole.
            if total >= Int64(Self.mostRows), let first { start = max(start, first + .seconds(60)) }
        }
        return Summary(
            since: start,
            isComplete: start == since,
            counts: counts.filter { $0.minute >= start },
            types: try Self.types(results[2]),
            broadcasts: try Self.broadcasts(results[3])
        )
    }

    private static func types(_ result: PostgresResult) throws(PostgresError) -> [(type: String, rates: Rates)] {
        var types: [(type: String, rates: Rates)] = []
        for row in result { types.append((try row.text(0), try Self.rates(row, at: 1))) }
        return types
    }

    private static func broadcasts(
        _ result: PostgresResult
    ) throws(PostgresError) -> [(id: NotificationID, org: String, job: String, rates: Rates)] {
        var broadcasts: [(id: NotificationID, org: String, job: String, rates: Rates)] = []
        for row in result {
            broadcasts.append(
                (NotificationID(try row.uuid(0)), try row.text(1), try row.text(2), try Self.rates(row, at: 3)))
        }
        return broadcasts
    }

    private static func rates(_ row: PostgresRow, at column: Int) throws(PostgresError) -> Rates {
        Rates(
            stored: try row.int8(column),
            accepted: try row.int8(column + 1),
            opened: try row.int8(column + 2),
            read: try row.int8(column + 3),
            failed: try row.int8(column + 4)
        )
    }

    /// The newest sends that failed since a moment, the newest first.
    package func failures(since: Timestamp, limit: Int) async throws(PostgresError) -> [Failure] {
        let result = try await self.pool.query(
            StatisticsSQL.failures, .timestamptz(since.microseconds), .int4(Self.mostRows),
            .int4(Int32(clamping: limit)), timeout: Self.patience)
        var failures: [Failure] = []
        for row in result {
            failures.append(
                Failure(
                    at: Timestamp(microseconds: try row.timestamptz(0)),
                    user: try row.text(1),
                    notification: try row.optionalUUID(2).map { NotificationID($0) },
                    provider: try row.text(3),
                    attempt: try row.int4(4),
                    reason: try row.optionalText(5)
                )
            )
        }
        return failures
    }
}
