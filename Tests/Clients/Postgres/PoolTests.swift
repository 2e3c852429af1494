// Carillon · PoolTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Synchronization
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct PoolTests {
    /// Runs `body` while a transaction holds the only connection; opening the gate releases it.
    private static func withConnectionHeld(
        _ configure: (inout PostgresConfiguration) -> Void = { _ in },
        _ body: (PostgresPool, _ release: Gate) async throws -> Void
    ) async throws {
        try await TestDatabase.with(isMigrated: false) {
            $0.connections = 1
            configure(&$0)
        } _: { database in
            let pool = database.pool
            let isHeld = Gate()
            let release = Gate()
            async let held: Void = pool.transaction { _ in
                await isHeld.open()
                await release.wait()
            }
            await isHeld.wait()
            try await withCleanUp({ await release.open() }) { try await body(pool, release) }
            try await held
        }
    }

    @Test("a server that has become a standby gets no further statements on the same connection")
    func standby() async throws {
        try await TestDatabase.with(isMigrated: false) {
            $0.connections = 1
        } _: { database in
            let pool = database.pool
            try await pool.query("CREATE TABLE kept (number int8)")
            let session = try await pool.number("SELECT pg_backend_pid()::int8")
            // SQLSTATE 25006, as from a standby.
            try await pool.query("SET default_transaction_read_only = on")
            let error = await #expect(throws: PostgresError.self) {
                try await pool.query("INSERT INTO kept VALUES (1)")
            }
            #expect(error?.code == .server && error?.sqlState == "25006")
            try await pool.query("INSERT INTO kept VALUES (2)")
            #expect(try await pool.number("SELECT pg_backend_pid()::int8") != session)
        }
    }

    @Test("the server notices within a minute that a client has vanished")
    func serverKeepalives() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let result = try await database.pool.query(
                """
                SELECT inet_client_addr() IS NULL, current_setting('tcp_keepalives_idle'),
                    current_setting('tcp_keepalives_interval'), current_setting('tcp_keepalives_count'),
                    current_setting('tcp_user_timeout')
                """
            )
            let row = try #require(result.first)
            let settings = try (1...4).map { try row.text($0) }
            // On a Unix socket they have no effect.
            let expected = try row.bool(0) ? ["0", "0", "0", "0"] : ["30", "10", "3", "15000"]
            #expect(settings == expected)
        }
    }

    @Test("concurrent calls each get their own rows")
    func concurrent() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let pool = database.pool
            let correct = try await withThrowingTaskGroup(of: Bool.self) { group in
                for number in 0..<1_000 as Range<Int64> {
                    group.addTask { try await pool.number("SELECT $1::int8", .int8(number)) == number }
                }
                return try await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(correct == 1_000)
            let sessions = try await pool.number(
                """
                SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'test'
                """)
            #expect(try #require(sessions) <= 4)
        }
    }

    @Test("a pool that gets no thread to connect on tries again, and its calls wait")
    func noThread() async throws {
        let starts = Mutex(0)
        try await TestDatabase.with(isMigrated: false) { database in
            var configuration = database.configuration(applicationName: "patient")
            configuration.connections = 1
            configuration.startThread = { name, body in
                let number = starts.withLock { starts in
                    starts += 1
                    return starts
                }
                return number > 2 && DetachedThread.run(name: name, body)
            }
            let pool = try PostgresPool(configuration, logger: TestLog.logger)
            defer { pool.close() }
            #expect(try await pool.number("SELECT 7::int8") == 7)
            #expect(starts.withLock { $0 } == 3)
        }
    }

    @Test("a statement whose cancellation gets no thread runs to its end, and its connection goes on")
    func noThreadToCancel() async throws {
        let refused = Mutex(0)
        try await TestDatabase.with(isMigrated: false) { database in
            var configuration = database.configuration(applicationName: "cancelling")
            configuration.connections = 1
            configuration.startThread = { name, body in
                guard name != "pg-cancel" else {
                    refused.withLock { $0 += 1 }
                    return false
                }
                return DetachedThread.run(name: name, body)
            }
            let pool = try PostgresPool(configuration, logger: TestLog.logger)
            defer { pool.close() }
            let session = try await pool.number("SELECT pg_backend_pid()::int8")
            let slow = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                let slow = Task { await pool.failure(of: "SELECT pg_advisory_xact_lock(1)") }
                try await eventually("it waits for the lock") {
                    try await database.pool.number(
                        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1::int8", .int8(session ?? 0)) == 1
                }
                slow.cancel()
                try await eventually("its cancellation was tried") { refused.withLock { $0 } > 0 }
                return slow
            }
            _ = await slow.value
            #expect(try await pool.number("SELECT pg_backend_pid()::int8") == session)
        }
    }

    @Test("waiting calls are served in order")
    func order() async throws {
        try await TestDatabase.with(isMigrated: false) {
            $0.connections = 1
        } _: { database in
            let pool = database.pool
            try await pool.query("CREATE TABLE log (place serial, n int8)")
            let isHeld = Gate()
            let release = Gate()
            async let held: Void = pool.transaction { _ in
                await isHeld.open()
                await release.wait()
            }
            await isHeld.wait()
            let insert = "INSERT INTO log (n) VALUES ($1)"
            // Each task runs at once until it suspends, and is then in the queue.
            let tasks = (0..<20 as Range<Int64>).map { number in
                Task.immediate {
                    if number.isMultiple(of: 3) {
                        _ = try await pool.transaction { try await $0.query(insert, .int8(number)) }
                    } else {
                        try await pool.query(insert, .int8(number))
                    }
                }
            }
            await release.open()
            try await held
            for task in tasks { try await task.value }
            let order = try await pool.query("SELECT n FROM log ORDER BY place").map { try $0.int8(0) }
            #expect(order == Array(0..<20))
        }
    }

    @Test("a failed call leaves the one behind it, which has the same new statement, unharmed")
    func failedNeighbour() async throws {
        try await Self.withConnectionHeld { pool, release in
            let new = "SELECT 7::int8 AS new"
            let failing = [PostgresStatement("SELECT 1 / 0", []), PostgresStatement(new, [])]
            let first = Task.immediate { await pool.failure(of: failing) }
            let second = Task.immediate { try await pool.number(new) }
            await release.open()
            #expect(await first.value?.sqlState == "22012")
            let answer = try await second.value
            #expect(answer == 7)
        }
    }

    @Test("a commit that fails ends its call, and the next one gets its own answer")
    func failedCommit() async throws {
        try await TestDatabase.with(isMigrated: false) {
            $0.connections = 1
        } _: { database in
            let pool = database.pool
            try await pool.query("CREATE TABLE kept (number int8 UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            try await pool.query("INSERT INTO kept VALUES (1)")
            let error = await pool.failure(of: "INSERT INTO kept VALUES (1)")
            #expect(error?.sqlState == "23505")
            let answer = try await pool.number("SELECT 7::int8")
            #expect(answer == 7)
        }
    }

    @Test("a refused connection fails no call that an open one can serve, also if calls do not wait for the server")
    func refusedConnection() async throws {
        let sessions = Mutex(0)
        try await Self.withConnectionHeld {
            $0.connections = 2
            $0.waitsForServer = false
            $0.prepare = { _ throws(PostgresError) in
                let number = sessions.withLock { sessions in
                    sessions += 1
                    return sessions
                }
                guard number == 1 else { throw PostgresError(.server, sqlState: "53300") }
            }
        } _: { pool, release in
            let waiting = Task.immediate { try await pool.number("SELECT 7::int8") }
            // The third attempt follows the failure of the second.
            try await eventually("a connection was refused") { sessions.withLock { $0 } > 2 }
            await release.open()
            let answer = try await waiting.value
            #expect(answer == 7)
        }
    }

    @Test("calls beyond the limit are refused at once")
    func overloaded() async throws {
        try await Self.withConnectionHeld {
            $0.maximumWaiting = 3
        } _: { pool, release in
            let tasks = (0..<5).map { _ in Task.immediate { await pool.failure(of: "SELECT 1")?.code } }
            #expect(await tasks[3].value == .overloaded)
            #expect(await tasks[4].value == .overloaded)
            await release.open()
            for task in tasks.prefix(3) { #expect(await task.value == nil) }
        }
    }

    @Test("a waiting call fails at its own deadline")
    func waitingDeadline() async throws {
        try await Self.withConnectionHeld { pool, _ in
            let patient = Task.immediate { await pool.failure(of: "SELECT 1", timeout: .seconds(50)) }
            let clock = ContinuousClock()
            let start = clock.now
            let error = await pool.failure(of: "SELECT 1", timeout: .milliseconds(200))
            #expect(error?.code == .unavailable)
            #expect(clock.now - start >= .milliseconds(200))
            // The other call, which is to wait longer, still waits.
            patient.cancel()
            #expect(await patient.value?.code == .cancelled)
        }
    }

    @Test("closing fails waiting and later calls")
    func closing() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let pool = try PostgresPool(database.configuration(), logger: TestLog.logger)
            let sleeping = Task.immediate { await pool.failure(of: "SELECT pg_sleep(60)") }
            pool.close()
            #expect(await sleeping.value?.code == .closed)
            #expect(await pool.failure(of: "SELECT 1")?.code == .closed)
        }
    }
}
