// Carillon · DeadlineTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@Suite(.timeLimit(.minutes(10)))
struct DeadlineTests {
    private static let sleep = "SELECT pg_sleep(60)"

    /// How many sessions of this database sleep, asked by a pool of its own.
    private static func sleepers(_ watcher: PostgresPool) async throws -> Int64? {
        try await watcher.number(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
    }

    private static func with(
        _ configure: (inout PostgresConfiguration) -> Void,
        _ body: (_ pool: PostgresPool, _ watcher: PostgresPool) async throws -> Void
    ) async throws {
        try await TestDatabase.with(isMigrated: false, configure) { database in
            let watcher = try PostgresPool(database.configuration(applicationName: "watcher"), logger: TestLog.logger)
            defer { watcher.close() }
            try await body(database.pool, watcher)
        }
    }

    @Test
    func serverGivesUpAStatementBeforeThePoolDoes() async throws {
        try await Self.with {
            $0.timeout = .seconds(3)
            $0.connections = 1
        } _: { pool, _ in
            let session = try await pool.number("SELECT pg_backend_pid()::int8", timeout: .seconds(20))
            let clock = ContinuousClock()
            let start = clock.now
            let error = await pool.failure(of: Self.sleep)
            #expect(error?.code == .server)
            #expect(error?.sqlState == "57014")
            #expect(error?.isRefusal == false)
            #expect(clock.now - start < .seconds(20))
            #expect(try await pool.number("SELECT pg_backend_pid()::int8", timeout: .seconds(20)) == session)
        }
    }

    @Test
    func callWithAShorterDeadlineIsGivenUpAndCancelled() async throws {
        try await Self.with { _ in
        } _: { pool, watcher in
            // Opens the connection, which the short deadline leaves no time for.
            try await pool.query("SELECT 1")
            let error = await pool.failure(of: Self.sleep, timeout: .milliseconds(500))
            #expect(error?.code == .timeout)
            #expect(try await pool.number("SELECT 1::int8") == 1)
            try await eventually("the server gives the statement up") { try await Self.sleepers(watcher) == 0 }
        }
    }

    @Test
    func cancelledTaskCancelsItsStatement() async throws {
        try await Self.with { _ in
        } _: { pool, watcher in
            let task = Task { await pool.failure(of: Self.sleep, timeout: .seconds(50)) }
            try await eventually("the statement sleeps") { try await Self.sleepers(watcher) == 1 }
            task.cancel()
            #expect(await task.value?.code == .cancelled)
            #expect(try await Self.sleepers(watcher) == 0)
            #expect(try await pool.number("SELECT 1::int8") == 1)
        }
    }

    @Test
    func taskThatIsCancelledAlreadyRunsNothingToItsEnd() async throws {
        try await Self.with { _ in
        } _: { pool, _ in
            let isReady = Gate()
            let task = Task {
                await isReady.wait()
                return await pool.failure(of: Self.sleep, timeout: .seconds(50))
            }
            task.cancel()
            await isReady.open()
            #expect(await task.value?.code == .cancelled)
        }
    }
}
