// Carillon · MigrationTests.swift
// SPDX-License-Identifier: Apache-2.0

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
            let known = [
                "1 schema", "2 layout", "3 former parts", "4 archive", "5 gather", "6 apns tokens",
                "7 parts and gather", "8 outbox", "9 row space", "10 clear noted users",
                "11 index noted users", "12 index broadcasts", "13 index schedules, digests and revocations",
                "14 index device tokens", "15 index broadcasts by state",
            ]
            #expect(labels == known + ["1000 mood"])
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

    @Test("clears the users that earlier releases noted in broadcasts, and refuses no list of theirs")
    func notedUsers() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            try await Migrations.apply(Array(Migrations.all.prefix(9)), to: database.pool, logger: TestLog.logger)
            for statement in [
                """
                INSERT INTO carillon.broadcasts (id, org_id, job_id, job_entry, stream, fields, lane, urgency, state,
                    created_at, withdrawn_to)
                SELECT gen_random_uuid(), '', s, s, 'jobs', jsonb_build_array(jsonb_build_array('except', 'no list')),
                    'bulk', 2, s, now(), 'ada'
                FROM unnest(ARRAY['cancelled', 'cancelling']) AS s
                """,
                """
                INSERT INTO carillon.broadcast_pages (broadcast, part, number, after_user, until_user, selected, stored,
                    counted, at)
                SELECT id, 0, 0, 'ada', 'bob', 1, 1, '{}', now() FROM carillon.broadcasts
                """,
            ] { try await database.pool.query(statement) }
            try await Migrations.apply(to: database.pool, logger: TestLog.logger)
            let pages = try await database.pool.query("SELECT after_user || until_user FROM carillon.broadcast_pages")
            #expect(try pages.map { try $0.text(0) } == ["", ""])
            let places = try await database.pool.query("SELECT state FROM carillon.broadcasts WHERE withdrawn_to <> ''")
            #expect(try places.map { try $0.text(0) } == ["cancelling"])
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
