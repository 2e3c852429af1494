// Carillon · MigrationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import Support
import Testing

@testable import Clients
@testable import Storage

@Suite("Migrations", .timeLimit(.minutes(10)))
struct MigrationTests {
    /// The released migrations and one that needs a table lock.
    private static let migrations =
        Migrations.all + [
            Migrations.Migration(
                number: 1_000, name: "mood", script: "ALTER TABLE carillon.follow_ups ADD COLUMN mood text")
        ]

    @Test("applies missing migrations in order, once")
    func order() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let labels = try await Migrations.state(of: database.pool, comparedWith: Self.migrations).missing
            #expect(labels == ["1 schema", "1000 mood"])
            #expect(try await Migrations.apply(Self.migrations, to: database.pool, logger: TestLog.logger) == labels)
            #expect(try await Migrations.apply(Self.migrations, to: database.pool, logger: TestLog.logger).isEmpty)
            #expect(try await database.pool.query("SELECT mood FROM carillon.follow_ups").isEmpty)
            let state = try await Migrations.state(of: database.pool)
            #expect(state.missing.isEmpty && state.unknown == [1_000])
        }
    }

    @Test("rolls a failed migration back")
    func failure() async throws {
        let faulty = Migrations.Migration(
            number: 1_000, name: "faulty", script: "CREATE TABLE carillon.half (); SELECT 1 / 0")
        try await Samples.withStores { database async throws in
            await #expect(throws: PostgresError.self) {
                try await Migrations.apply(Migrations.all + [faulty], to: database.pool, logger: TestLog.logger)
            }
            #expect(try await database.pool.query("SELECT to_regclass('carillon.half') IS NULL").first?.bool(0) == true)
            #expect(try await Migrations.state(of: database.pool).unknown.isEmpty)
        }
    }

    @Test("lets other queries pass while it waits for a lock")
    func waits() async throws {
        try await Samples.withStores { database in
            let applying = try await Self.whileRead(database) {
                let applying = Task {
                    try await Migrations.apply(Self.migrations, to: database.pool, logger: TestLog.logger)
                }
                try await eventually("it waits for the table") {
                    try await !database.pool.query(
                        """
                        SELECT FROM pg_locks l
                        JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                        WHERE NOT l.granted AND l.relation = 'carillon.follow_ups'::regclass
                        """
                    ).isEmpty
                }
                // The reader holds its lock, so this query passes only when the migration gives
                // way.
                #expect(try await database.pool.query("SELECT count(*) FROM carillon.follow_ups").first?.int8(0) == 0)
                return applying
            }
            #expect(try await applying.value == ["1000 mood"])
            #expect(try await database.pool.query("SELECT mood FROM carillon.follow_ups").isEmpty)
            #expect(try await Migrations.state(of: database.pool, comparedWith: Self.migrations).missing.isEmpty)
        }
    }

    @Test("gives up without a lock in time, names the blocker and leaves no trace")
    func givesUp() async throws {
        try await Samples.withStores { database in
            let error = try await Self.whileRead(database) { () async throws -> PostgresError? in
                do {
                    try await Migrations.apply(
                        Self.migrations, to: database.pool, logger: TestLog.logger, patience: .zero)
                    return nil
                } catch let error as PostgresError {
                    return error
                }
            }
            let message = try #require(error?.message)
            #expect(error?.code == .server && error?.sqlState == "55P03")
            #expect(message.contains("1000 mood") && message.contains("(process "), "\(message)")
            #expect(
                try await Migrations.state(of: database.pool, comparedWith: Self.migrations).missing == ["1000 mood"])
            #expect(
                try await Migrations.apply(Self.migrations, to: database.pool, logger: TestLog.logger) == ["1000 mood"])
        }
    }

    @Test("a process that starts retries after a transient error of PostgreSQL")
    func transient() async throws {
        // "carillon" in ASCII.
        let lock: Int64 = 0x6361_7269_6C6C_6F6E
        let lines = LogRecorder(from: .warning) { $0.metadata?["error"]?.description ?? "" }
        try await Samples.withStores { database in
            let applying = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT pg_advisory_xact_lock(\(lock))")
                let applying = Task {
                    try await Migrations.applyWhenReachable(to: database.pool, logger: lines.logger)
                }
                try await eventually("PostgreSQL has cancelled its statement") {
                    try await !database.pool.query(
                        """
                        SELECT pg_cancel_backend(l.pid) FROM pg_locks l
                        JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                        WHERE NOT l.granted AND l.locktype = 'advisory'
                        """
                    ).isEmpty
                }
                try await eventually("the error is logged") { !lines.all.isEmpty }
                return applying
            }
            try await applying.value
            #expect(lines.all == ["postgres server SQLSTATE 57014"])
        }
    }

    @Test("a process that starts ends with a permanent error of PostgreSQL")
    func permanent() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            var configuration = database.configuration()
            configuration.sessionSettings = [("unknown_setting", "on")]
            let pool = try PostgresPool(configuration, logger: TestLog.logger)
            defer { pool.close() }
            let error = await #expect(throws: PostgresError.self) {
                try await Migrations.applyWhenReachable(to: pool, logger: TestLog.logger)
            }
            #expect(error?.sqlState == "42704")
        }
    }

    /// Runs `body` while a long transaction reads the table, as a dump does.
    private static func whileRead<Value: Sendable>(
        _ database: Database,
        _ body: () async throws -> Value
    ) async throws -> Value {
        try await database.pool.transaction { transaction in
            try await transaction.query("LOCK TABLE carillon.follow_ups IN ACCESS SHARE MODE")
            return try await body()
        }
    }
}
