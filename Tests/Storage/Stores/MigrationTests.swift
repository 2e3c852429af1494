// Carillon · MigrationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Storage
import Support
import Testing

@Suite("Stores: migrations and those who hold locks", .timeLimit(.minutes(10)))
struct MigrationTests {
    /// Takes the migration back that adds a column, and runs `body` while somebody reads the table in a long transaction.
    private static func whileRead<Value: Sendable>(
        _ pool: PostgresPool,
        _ body: () async throws -> Value
    ) async throws -> Value {
        try await pool.run([
            PostgresStatement("DELETE FROM carillon.schema_migrations WHERE number = 14"),
            PostgresStatement("ALTER TABLE carillon.follow_ups DROP COLUMN held"),
        ])
        return try await pool.transaction { transaction in
            // As a dump does.
            try await transaction.query("LOCK TABLE carillon.follow_ups IN ACCESS SHARE MODE")
            return try await body()
        }
    }

    @Test("one that waits for a lock lets others pass, and is applied when the lock is free")
    func waits() async throws {
        try await Samples.withStores { pool in
            let applying = try await Self.whileRead(pool) {
                let applying = Task { try await Migrations.apply(to: pool, logger: TestLog.logger) }
                try await eventually("it waits for the table") {
                    try await !pool.query(
                        """
                        SELECT FROM pg_locks l
                        JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                        WHERE NOT l.granted AND l.relation = 'carillon.follow_ups'::regclass
                        """
                    ).isEmpty
                }
                // The table's holder lets nothing go meanwhile, so this comes through only once the migration gives way.
                #expect(try await pool.query("SELECT count(*) FROM carillon.follow_ups").first?.int8(0) == 0)
                return applying
            }
            #expect(try await applying.value == ["14 held_follow_ups"])
            #expect(try await pool.query("SELECT held FROM carillon.follow_ups").isEmpty)
            #expect(try await Migrations.state(of: pool).missing.isEmpty)
        }
    }

    @Test("one that gets no lock gives up when its patience is over, says who was in the way, and leaves nothing")
    func givesUp() async throws {
        try await Samples.withStores { pool in
            let error = try await Self.whileRead(pool) { () async throws -> PostgresError? in
                do {
                    try await Migrations.apply(to: pool, logger: TestLog.logger, patience: .zero)
                    return nil
                } catch let error as PostgresError {
                    return error
                }
            }
            let message = try #require(error?.message)
            #expect(error?.code == .server && error?.sqlState == "55P03")
            #expect(message.contains("14 held_follow_ups") && message.contains("(process "), "\(message)")
            #expect(try await Migrations.state(of: pool).missing == ["14 held_follow_ups"])
            #expect(try await Migrations.apply(to: pool, logger: TestLog.logger) == ["14 held_follow_ups"])
        }
    }
}
