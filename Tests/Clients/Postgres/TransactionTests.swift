// Carillon · TransactionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@Suite(.timeLimit(.minutes(10)))
struct TransactionTests {
    private struct Abandoned: Error {}

    private static let count = "SELECT count(*) FROM things"

    private static func with(_ body: (PostgresPool) async throws -> Void) async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            try await database.pool.query("CREATE TABLE things (n int8 CONSTRAINT things_pk PRIMARY KEY)")
            try await body(database.pool)
        }
    }

    private static func insert(_ number: Int64) -> PostgresStatement {
        PostgresStatement("INSERT INTO things VALUES ($1)", [.int8(number)])
    }

    @Test("the statements of a run are committed together or not at all")
    func atomicRun() async throws {
        try await Self.with { pool in
            let results = try await pool.run([Self.insert(1), Self.insert(2), PostgresStatement(Self.count)])
            #expect(try results[2][0].int8(0) == 2)
            let error = await pool.failure(of: [Self.insert(3), Self.insert(1), Self.insert(4)])
            #expect(error?.code == .server)
            #expect(try await pool.number(Self.count) == 2)
            // Statements prepared in the failed run are usable again.
            try await pool.run([Self.insert(3), Self.insert(4)])
            #expect(try await pool.number(Self.count) == 4)
        }
    }

    @Test("a failed run does not affect its neighbours in the pipeline")
    func neighbours() async throws {
        try await Self.with { pool in
            let refused = await withTaskGroup(of: Bool.self) { group in
                for number in 0..<200 as Range<Int64> {
                    group.addTask {
                        let second = Self.insert(number.isMultiple(of: 4) ? number : number + 1_000)
                        return await pool.failure(of: [Self.insert(number), second]) != nil
                    }
                }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(refused == 50)
            let rows = try await pool.number(Self.count)
            #expect(rows == 300)
        }
    }

    @Test("a transaction commits when its body returns")
    func commit() async throws {
        try await Self.with { pool in
            let counted = try await pool.transaction { transaction in
                try await transaction.run([Self.insert(1)])
                let inside = try await transaction.query(Self.count)[0].int8(0)
                // Other sessions do not see it yet.
                let outside = try await pool.number(Self.count)
                return [inside, outside]
            }
            #expect(counted == [1, 0])
            #expect(try await pool.number(Self.count) == 1)
        }
    }

    @Test("a transaction rolls back when its body throws")
    func rollback() async throws {
        try await Self.with { pool in
            await #expect(throws: Abandoned.self) {
                try await pool.transaction { transaction in
                    try await transaction.run([Self.insert(1)])
                    throw Abandoned()
                }
            }
            let rows = try await pool.number(Self.count)
            #expect(rows == 0)
        }
    }

    @Test("a transaction with a swallowed failure does not succeed")
    func swallowed() async throws {
        try await Self.with { pool in
            await #expect(throws: PostgresError.self) {
                try await pool.transaction { transaction in
                    try await transaction.run([Self.insert(1)])
                    _ = try? await transaction.run([Self.insert(1)])
                }
            }
            let rows = try await pool.number(Self.count)
            #expect(rows == 0)
        }
    }

    @Test("a cancelled transaction rolls back and returns its connection")
    func cancelled() async throws {
        try await TestDatabase.with(isMigrated: false) {
            $0.connections = 1
        } _: { database in
            let pool = database.pool
            try await pool.query("CREATE TABLE things (n int8 PRIMARY KEY)")
            let task = Task {
                try await pool.transaction { transaction in
                    try await transaction.run([Self.insert(1)])
                    try await transaction.query("SELECT pg_sleep(60)")
                }
            }
            try await eventually("the transaction sleeps") { try await Self.sleepers(database) == 1 }
            task.cancel()
            await #expect(throws: PostgresError.self) { try await task.value }
            #expect(try await pool.number(Self.count) == 0)
        }
    }

    /// Counts the sleeping sessions with a separate pool.
    private static func sleepers(_ database: TestDatabase) async throws -> Int64? {
        let watcher = try PostgresPool(database.configuration(applicationName: "watcher"), logger: TestLog.logger)
        defer { watcher.close() }
        return try await watcher.number(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
    }
}
