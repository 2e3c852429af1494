// Carillon · AttemptPartitionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Testing

@testable import Storage

/// The daily partitions of the audit of deliveries.
@Suite(.timeLimit(.minutes(10)))
struct AttemptPartitionTests {
    private static let names = """
        SELECT relname::text FROM pg_class WHERE relname ~ '^delivery_attempts_[0-9]{8}$' ORDER BY 1
        """

    @Test("stops waiting for the audit after a second while it is read, and creates its partitions later")
    func parts() async throws {
        try await Samples.withStores { database in
            let days = try await database.pool.query(Self.names).map { try $0.text(0) }
            let last = try #require(days.last)
            try await database.pool.query("DROP TABLE carillon.\(last)")
            try await database.pool.transaction { transaction in
                // As a dump does.
                try await transaction.query("LOCK TABLE carillon.delivery_attempts IN ACCESS SHARE MODE")
                let error = await #expect(throws: PostgresError.self) {
                    try await database.deliveries.makeAttemptParts()
                }
                #expect(error?.sqlState == "55P03")
            }
            try await database.deliveries.makeAttemptParts()
            #expect(try await database.pool.query(Self.names).map { try $0.text(0) }.contains(last))
        }
    }

    @Test("creates the audit's partitions around a day that has rows, and deletes old rows that have no partition")
    func strayAttempts() async throws {
        try await Samples.withStores { database in
            let days = try await database.pool.query(Self.names).map { try $0.text(0) }
            #expect(try await !database.deliveries.hasStrayAttempts())
            try await database.pool.query(
                "DROP TABLE \(days.dropFirst().map { "carillon.\($0)" }.joined(separator: ", "))")
            try await database.pool.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome)
                SELECT t.at, 'a', 'fcm', 'push', 1, 'accepted'
                FROM unnest(ARRAY['2020-01-01 12:00Z', '2020-01-02 12:00Z', now() + interval '3 days']) AS t (at)
                """)
            let row = try await database.pool.query(
                """
                SELECT 'delivery_attempts_' || to_char(max(at) AT TIME ZONE 'UTC', 'YYYYMMDD')
                FROM carillon.delivery_attempts_default
                """
            ).first
            let taken = try #require(try row?.text(0))
            try await database.deliveries.makeAttemptParts()
            let made = Set(try await database.pool.query(Self.names).map { try $0.text(0) })
            #expect(made.isSuperset(of: days.filter { $0 != taken }) && !made.contains(taken))
            #expect(try await database.deliveries.hasStrayAttempts())

            let firstKept: Timestamp = try await database.notifications.clock() - .seconds(86_400)
            #expect(try await database.retention.dropAttemptPart(firstKept: firstKept) == nil)
            var dropped: [Int] = []
            for _ in 0..<3 {
                dropped.append(try await database.retention.dropStrayAttempts(firstKept: firstKept, limit: 1))
            }
            #expect(dropped == [1, 1, 0])
            #expect(try await database.pool.query("SELECT FROM carillon.delivery_attempts").count == 1)
        }
    }

    @Test("looks pushes up and marks them as sent without opening the audit's partitions")
    func plansWithoutAudit() async throws {
        try await Samples.withStores { database in
            let (users, ids) = (PostgresValue.texts(["a"]), PostgresValue.ids([.greatest]))
            for statement in [
                PostgresStatement(
                    "EXPLAIN " + DeliverySQL.facts, [users, ids, ids, .bools([true]), .texts([]), .texts([])]),
                PostgresStatement("EXPLAIN " + DeliverySQL.acceptedPushes, [users, ids, users, ids]),
            ] {
                let plan = try await database.pool.query(statement).map { try $0.text(0) }.joined(separator: "\n")
                #expect(plan.contains("notifications_pkey") && !plan.contains("delivery_attempts"), "\(plan)")
            }
        }
    }
}
