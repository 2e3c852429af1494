// Carillon · AttemptPartitionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

/// The daily partitions of the audit of deliveries.
@Suite(.timeLimit(.minutes(10)))
struct AttemptPartitionTests {
    private static let names = """
        SELECT relname::text FROM pg_class WHERE relname ~ '^delivery_attempts_[0-9]{8}$' ORDER BY 1
        """

    /// A day of long ago.
    private static let oldPart = "delivery_attempts_20200101"

    private static func makeOldPart(_ database: Database) async throws {
        try await database.pool.query(
            """
            CREATE TABLE carillon.\(Self.oldPart) PARTITION OF carillon.delivery_attempts
            FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-01-02 00:00Z')
            """)
    }

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
                    try await database.deliveries.makeAttemptPartitions()
                }
                #expect(error?.sqlState == "55P03")
            }
            try await database.deliveries.makeAttemptPartitions()
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
            try await database.deliveries.makeAttemptPartitions()
            let made = Set(try await database.pool.query(Self.names).map { try $0.text(0) })
            #expect(made.isSuperset(of: days.filter { $0 != taken }) && !made.contains(taken))
            #expect(try await database.deliveries.hasStrayAttempts())

            let firstKept: Timestamp = try await database.clock() - .seconds(86_400)
            #expect(try await database.retention.dropAttemptPartition(firstKept: firstKept) == nil)
            var dropped: [Int] = []
            for _ in 0..<3 {
                dropped.append(try await database.retention.dropStrayAttempts(firstKept: firstKept, limit: 1))
            }
            #expect(dropped == [1, 1, 0])
            #expect(try await database.pool.query("SELECT FROM carillon.delivery_attempts").count == 1)
        }
    }

    @Test("finds the devices that have a notification without opening older partitions of the audit")
    func holders() async throws {
        // Without the services' settings, PostgreSQL plans each call and opens only what it needs.
        try await TestDatabase.with { test in
            let database = Database(test.pool)
            try await Self.makeOldPart(database)
            let device = try await database.devices.register(Samples.device(user: "a", token: "t")).device
            let id = Samples.notification(1, user: "a").id
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: Samples.start, user: "a", notification: id, device: device.id, provider: .fcm, kind: "push",
                    attempt: 1, outcome: .accepted)
            ]
            try await database.deliveries.settle(settlement)
            try await database.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.\(Self.oldPart) IN ACCESS EXCLUSIVE MODE")
                let found = try await database.deliveries.holders(user: "a", of: [id])
                #expect(found.map(\.device) == [device.id])
            }
        }
    }

    @Test("looks for the mail of a cancelled notification in no older partition of the audit")
    func mailPlan() async throws {
        try await Samples.withStores { database in
            try await Self.makeOldPart(database)
            try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, email) VALUES ('a', 'a@example.com')")
            let notification = Samples.notification(1, user: "a") { $0.channels = [.inApp, .email] }
            _ = try await database.notifications.store([notification], areRepeats: false)
            let plan = try await database.pool.query(
                PostgresStatement(
                    "EXPLAIN ANALYZE " + CancellationSQL.cancel,
                    [.texts(["a"]), .ids([notification.id]), .timestamp(Samples.start)])
            ).map { try $0.text(0) }
            let scans = plan.filter { $0.contains(Self.oldPart) }
            #expect(!scans.isEmpty && scans.allSatisfy { $0.contains("(never executed)") }, "\(scans)")
            // It was cancelled, and its mail may be in flight.
            let reasons = try await database.pool.query("SELECT status_reason FROM carillon.notifications").texts()
            #expect(reasons == ["in_flight"])
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
