// Carillon · DeadlineTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct DeadlineTests {
    private static let sleep = "SELECT pg_sleep(600)"

    /// Counts the sleeping sessions of this database with a separate pool.
    private static func sleepers(_ watcher: PostgresPool) async throws -> Int64? {
        try await watcher.number(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
    }

    private static func with<Result>(
        _ configure: (inout PostgresConfiguration) -> Void,
        _ body: (_ pool: PostgresPool, _ watcher: PostgresPool) async throws -> Result
    ) async throws -> Result {
        try await TestDatabase.with(isMigrated: false, configure) { database in
            let watcher = try PostgresPool(database.configuration(applicationName: "watcher"), logger: TestLog.logger)
            defer { watcher.close() }
            return try await body(database.pool, watcher)
        }
    }

    @Test("the server cancels a statement before the pool times out")
    func serverTimeout() async throws {
        let error = try await valueInTime("the server answers before the pool gives up") { limit in
            try await Self.with {
                $0.timeout = limit
                $0.connections = 1
            } _: { pool, _ -> PostgresError? in
                let session = try await pool.number("SELECT pg_backend_pid()::int8", timeout: longestWait)
                let error = await pool.failure(of: Self.sleep)
                guard error?.code == .server else { return nil }
                let next = try await pool.number("SELECT pg_backend_pid()::int8", timeout: longestWait)
                #expect(next == session)
                return error
            }
        }
        #expect(error.sqlState == "57014")
        #expect(!error.isRefusal)
    }

    @Test("a call may have more time than others")
    func longerDeadline() async throws {
        try await Self.with {
            $0.timeout = .seconds(1)
        } _: { pool, _ in
            try await pool.query("SELECT pg_sleep(1.5)", timeout: longestWait)
            #expect(await pool.failure(of: Self.sleep) != nil)
        }
    }

    @Test("a call that runs out of time ends alone")
    func neighbours() async throws {
        try await Self.with {
            $0.connections = 1
        } _: { pool, _ in
            let session = try await pool.number("SELECT pg_backend_pid()::int8")
            let first = Task.immediate { await pool.failure(of: Self.sleep, timeout: .seconds(3)) }
            // Waits behind it on the connection.
            let next = Task.immediate { try await pool.number("SELECT pg_backend_pid()::int8") }
            let answer = try await next.value
            #expect(answer == session)
            #expect(await first.value != nil)
        }
    }

    @Test("a call that reaches the server shortly before its deadline fails none of those behind it")
    func late() async throws {
        try await Self.with {
            $0.connections = 1
            $0.timeout = .seconds(300)
        } _: { pool, _ in
            let session = try await pool.number("SELECT pg_backend_pid()::int8")
            _ = try await valueInTime("the server runs a call at its deadline") { limit -> Bool? in
                // The first ends before the deadline of the second, which ends after it.
                let sleep = "SELECT pg_sleep(\(limit.components.seconds) / 1.5)"
                let first = Task.immediate { await pool.failure(of: sleep) }
                let late = Task.immediate { await pool.failure(of: sleep, timeout: limit) }
                let next = Task.immediate { try await pool.number("SELECT pg_backend_pid()::int8") }
                let error = await late.value
                let answer = try await next.value
                #expect(answer == session)
                #expect(await first.value == nil)
                return error?.code == .timeout ? true : nil
            }
        }
    }

    @Test("a call with more time than others has a connection of its own")
    func alone() async throws {
        try await Self.with {
            $0.connections = 2
        } _: { pool, watcher in
            let long = Task { await pool.failure(of: Self.sleep, timeout: .seconds(300)) }
            try await eventually("it runs") { try await Self.sleepers(watcher) == 1 }
            try await withThrowingTaskGroup(of: Int64?.self) { group in
                for _ in 0..<8 { group.addTask { try await pool.number("SELECT 7::int8") } }
                for try await number in group { #expect(number == 7) }
            }
            long.cancel()
            #expect(await long.value?.code == .cancelled)
        }
    }

    @Test("a call does not wait behind a slow one while the pool may open a connection")
    func slow() async throws {
        try await Self.with {
            $0.connections = 2
            $0.timeout = .seconds(300)
        } _: { pool, watcher in
            try await pool.query("SELECT 1")
            let slow = Task { await pool.failure(of: Self.sleep) }
            try await eventually("it runs") { try await Self.sleepers(watcher) == 1 }
            // The first call may still come before the other connection is open.
            let answer = try await valueInTime("the other connection answers") { limit in
                try? await pool.number("SELECT 7::int8", timeout: limit)
            }
            #expect(answer == 7)
            slow.cancel()
            #expect(await slow.value?.code == .cancelled)
        }
    }

    @Test("a call waits behind several short calls rather than behind a slow one")
    func behindShort() async throws {
        _ = try await valueInTime("calls come while no short call is slow") { limit -> Bool? in
            try await Self.with {
                $0.connections = 2
                $0.slowAfter = limit
                $0.timeout = .seconds(300)
            } _: { pool, watcher -> Bool? in
                // Opens both connections.
                try await pool.transaction { _ in _ = try await pool.query("SELECT 1") }
                let (slow, haveFailed) = try await watcher.transaction { transaction in
                    try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                    let slow = Task { await pool.failure(of: "SELECT pg_advisory_xact_lock(1)") }
                    try await eventually("it is slow") {
                        try await watcher.number(
                            """
                            SELECT count(*) FROM pg_stat_activity
                            WHERE datname = current_database() AND wait_event_type = 'Lock'
                                AND query_start < clock_timestamp() - interval '\(limit.components.seconds) s'
                            """) == 1
                    }
                    let calls = try await watcher.transaction { transaction in
                        try await transaction.query("SELECT pg_advisory_xact_lock(2)")
                        // The first stays in flight until the transaction ends.
                        return ["SELECT pg_advisory_xact_lock(2)", "SELECT 7", "SELECT 7"].map { call in
                            Task.immediate { await pool.failure(of: call, timeout: limit) }
                        }
                    }
                    var haveFailed = false
                    for call in calls {
                        if await call.value != nil { haveFailed = true }
                    }
                    return (slow, haveFailed)
                }
                #expect(await slow.value == nil)
                return haveFailed ? nil : true
            }
        }
    }

    @Test("calls with more time than others leave one connection to the others")
    func mostAlone() async throws {
        try await Self.with {
            $0.connections = 3
        } _: { pool, watcher in
            let long = (0..<4).map { _ in
                Task.immediate { await pool.failure(of: Self.sleep, timeout: .seconds(300)) }
            }
            try await eventually("two run") { try await Self.sleepers(watcher) == 2 }
            // They pass the long calls that wait.
            for _ in 0..<8 { #expect(try await pool.number("SELECT 7::int8") == 7) }
            try await pool.transaction { _ = try await $0.query("SELECT 7::int8") }
            #expect(try await Self.sleepers(watcher) == 2)
            long[0].cancel()
            #expect(await long[0].value?.code == .cancelled)
            try await eventually("the next one runs") { try await Self.sleepers(watcher) == 2 }
            for task in long.dropFirst() {
                task.cancel()
                #expect(await task.value?.code == .cancelled)
            }
        }
    }

    @Test("a call with a shorter deadline times out and is cancelled on the server")
    func shorterDeadline() async throws {
        try await Self.with { _ in
        } _: { pool, watcher in
            // Opens the connection first, since the short deadline leaves no time for that.
            try await pool.query("SELECT 1")
            let error = await pool.failure(of: Self.sleep, timeout: .milliseconds(500))
            #expect([.timeout, .unavailable].contains(error?.code) || error?.sqlState == "57014")
            #expect(try await pool.number("SELECT 1::int8") == 1)
            try await eventually("the server cancels the statement") { try await Self.sleepers(watcher) == 0 }
        }
    }

    @Test("cancelling a task cancels its statement")
    func cancelling() async throws {
        try await Self.with { _ in
        } _: { pool, watcher in
            let task = Task { await pool.failure(of: Self.sleep, timeout: .seconds(300)) }
            try await eventually("the statement sleeps") { try await Self.sleepers(watcher) == 1 }
            task.cancel()
            #expect(await task.value?.code == .cancelled)
            #expect(try await Self.sleepers(watcher) == 0)
            #expect(try await pool.number("SELECT 1::int8") == 1)
        }
    }

    @Test("a task cancelled beforehand completes no statement")
    func cancelledBefore() async throws {
        try await Self.with { _ in
        } _: { pool, _ in
            let isReady = Gate()
            let task = Task {
                await isReady.wait()
                return await pool.failure(of: Self.sleep, timeout: .seconds(300))
            }
            task.cancel()
            await isReady.open()
            #expect(await task.value?.code == .cancelled)
        }
    }
}

@Suite(.timeLimit(.minutes(10)))
struct MixedDeadlineTests {
    @Test(
        "a short deadline holds behind a call with a long one, waiting or sent",
        arguments: [(1, .unavailable), (16, .timeout)] as [(Int, PostgresError.Code)]
    )
    func shortBehindLong(depth: Int, expected: PostgresError.Code) async throws {
        try await TestDatabase.with(
            isMigrated: false,
            {
                $0.connections = 1
                $0.pipelineDepth = depth
                $0.timeout = .seconds(300)
            },
            { database in
                let pool = database.pool
                let session = try await pool.number("SELECT pg_backend_pid()::int8")
                let watcher = try PostgresPool(
                    database.configuration(applicationName: "watcher"), logger: TestLog.logger)
                defer { watcher.close() }
                let slow = try await watcher.transaction { transaction in
                    try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                    let slow = Task { await pool.failure(of: "SELECT pg_advisory_xact_lock(1)") }
                    try await eventually("the long call holds the connection") {
                        try await watcher.number(
                            "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1::int8",
                            .int8(session ?? 0)) == 1
                    }
                    let error = await pool.failure(of: "SELECT 1", timeout: .milliseconds(300))
                    #expect(error?.code == expected)
                    return slow
                }
                // The long call has not reached its own deadline.
                #expect(await slow.value == nil)
                #expect(try await pool.number("SELECT pg_backend_pid()::int8") == session)
            }
        )
    }
}
