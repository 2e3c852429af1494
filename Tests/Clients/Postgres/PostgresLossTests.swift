// Carillon · PostgresLossTests.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import Logging
import Support
import Synchronization
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct PostgresLossTests {
    private static let session = "SELECT pg_backend_pid()::int8"

    private static func pool(
        _ server: PostgresServer, _ configure: (inout PostgresConfiguration) -> Void = { _ in }
    ) throws -> PostgresPool {
        var configuration = PostgresConfiguration(connectionString: server.url, applicationName: "test")
        configuration.timeout = longestWait
        configure(&configuration)
        return try PostgresPool(configuration, logger: TestLog.logger)
    }

    @Test("a terminated session is replaced")
    func terminated() async throws {
        try await TestDatabase.with(isMigrated: false) {
            $0.connections = 1
        } _: { database in
            let pool = database.pool
            let first = try #require(try await pool.number(Self.session))
            let watcher = try PostgresPool(database.configuration(), logger: TestLog.logger)
            defer { watcher.close() }
            try await watcher.query("SELECT pg_terminate_backend($1::int8::int4)", .int8(first))
            let second = try await eventualValue("another session answers") { try? await pool.number(Self.session) }
            #expect(second != first)
        }
    }

    @Test("a statement of a terminated session fails and is not a refusal")
    func terminatedStatement() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let pool = database.pool
            let task = Task { await pool.failure(of: "SELECT pg_sleep(60)", timeout: .seconds(50)) }
            let watcher = try PostgresPool(database.configuration(), logger: TestLog.logger)
            defer { watcher.close() }
            let terminate = """
                SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event = 'PgSleep'
                """
            try await eventually("the sleeper is terminated") { try await watcher.number(terminate) == 1 }
            let error = try #require(await task.value)
            #expect(error.code == .connectionLost || error.sqlState == "57P01")
            #expect(!error.isRefusal)
        }
    }

    private static let terminateSelf = "SELECT pg_terminate_backend(pg_backend_pid()); SELECT pg_sleep(60)"

    @Test("a script of a terminated session fails as a lost connection, not as a refusal")
    func terminatedScript() async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            let error = await #expect(throws: PostgresError.self) {
                try await database.pool.withScriptConnection { try $0.execute(Self.terminateSelf) }
            }
            #expect(error?.code == .connectionLost)
            #expect(error?.message?.contains("terminating connection") == true)
        }
    }

    @Test(
        "the log and the waiting call learn why a connection failed after the login",
        arguments: [("SELECT 1 / 0", "SQLSTATE 22012"), (Self.terminateSelf, "terminating connection")])
    func failsAfterLogin(script: String, reason: String) async throws {
        try await TestDatabase.with(isMigrated: false) { database in
            var configuration = database.configuration()
            configuration.waitsForServer = false
            configuration.prepare = { connection throws(PostgresError) in try connection.execute(script) }
            let lines = LogRecorder(from: .warning) { $0.metadata?["error"]?.description ?? "" }
            let pool = try PostgresPool(configuration, logger: lines.logger)
            defer { pool.close() }
            let error = await pool.failure(of: "SELECT 1")
            #expect(error?.code == .unavailable)
            #expect(error?.message?.contains(reason) == true)
            #expect(lines.all.first?.contains(reason) == true)
        }
    }

    @Test("the pool recovers after a kill and a restart")
    func restart() async throws {
        let server = try await PostgresServer.start()
        let pool = try Self.pool(server)
        defer { pool.close() }
        try await pool.query("CREATE TABLE things (n int8)")
        try await pool.query("INSERT INTO things VALUES (1)")
        try await server.kill()
        try await eventually("the loss is noticed") {
            await pool.failure(of: "SELECT 1", timeout: .milliseconds(200)) != nil
        }
        // Sent without a server, answered by the next one.
        let waiting = Task.immediate { try await pool.number("SELECT count(*) FROM things") }
        try await server.start()
        #expect(try await waiting.value == 1)
    }

    @Test("calls to a stalled server fail at the deadline; the pool recovers afterwards")
    func stalled() async throws {
        let server = try await PostgresServer.start()
        let pool = try Self.pool(server) {
            $0.connections = 1
            $0.connectTimeout = .seconds(2)
        }
        defer { pool.close() }
        #expect(try await pool.number("SELECT 1::int8") == 1)
        try await server.stall()
        let clock = ContinuousClock()
        let start = clock.now
        let sent = await pool.failure(of: "SELECT 1", timeout: .seconds(1))
        #expect(sent?.code == .timeout)
        let unsent = await pool.failure(of: "SELECT 1", timeout: .milliseconds(300))
        #expect(unsent?.code == .unavailable)
        #expect(clock.now - start < .seconds(200))
        server.resume()
        #expect(try await pool.number("SELECT 1::int8") == 1)
    }

    /// Returns a configuration whose first session stands still after the login, before a script.
    private static func stallingAfterLogin(_ server: PostgresServer, script: String = "") -> PostgresConfiguration {
        var configuration = PostgresConfiguration(connectionString: server.url, applicationName: "test")
        configuration.timeout = .seconds(1)
        let sessions = Mutex(0)
        configuration.prepare = { connection throws(PostgresError) in
            let number = sessions.withLock { sessions in
                sessions += 1
                return sessions
            }
            guard number == 1 else { return }
            let session = try connection.query("SELECT pg_backend_pid()").first.flatMap { pid_t($0) }
            if let session { kill(session, SIGSTOP) }
            if !script.isEmpty { try connection.execute(script) }
        }
        return configuration
    }

    @Test("a pool opens another connection when the server stalls after the login")
    func stalledLogin() async throws {
        let server = try await PostgresServer.start()
        defer { server.resume() }
        let pool = try PostgresPool(Self.stallingAfterLogin(server, script: "SELECT 1"), logger: TestLog.logger)
        defer { pool.close() }
        #expect(try await pool.number("SELECT 1::int8", timeout: .seconds(120)) == 1)
    }

    @Test("a listener opens another connection when the server stalls after the login")
    func stalledListener() async throws {
        let server = try await PostgresServer.start()
        defer { server.resume() }
        let isListening = Mutex(false)
        let listener = try PostgresListener(
            Self.stallingAfterLogin(server), channels: ["news"], logger: TestLog.logger
        ) { event in
            if case .listening = event { isListening.withLock { $0 = true } }
        }
        defer { listener.close() }
        try await eventually("it listens") { isListening.withLock { $0 } }
    }

    @Test("the error of an absent server names it without the password")
    func absent() async throws {
        let url = "postgresql://carillon:secret-word@127.0.0.1:\(try FreePort.next())/none"
        let configuration = PostgresConfiguration(connectionString: url, applicationName: "test")
        let pool = try PostgresPool(configuration, logger: TestLog.logger)
        defer { pool.close() }
        _ = try await valueInTime("the connection is refused before the deadline") { limit -> Void? in
            let error = try #require(await pool.failure(of: "SELECT 1", timeout: limit))
            #expect(error.code == .unavailable)
            #expect(!error.description.contains("secret-word"))
            return error.message?.contains("Connection refused") == true ? () : nil
        }
    }

    @Test("a pool that does not wait for its server fails when it is refused")
    func impatient() async throws {
        let url = "postgresql://carillon@127.0.0.1:\(try FreePort.next())/none"
        var configuration = PostgresConfiguration(connectionString: url, applicationName: "test")
        configuration.waitsForServer = false
        let pool = try PostgresPool(configuration, logger: TestLog.logger)
        defer { pool.close() }
        let start = ContinuousClock.now
        let error = await pool.failure(of: "SELECT 1", timeout: .seconds(300))
        #expect(error?.code == .unavailable)
        #expect(error?.message?.contains("Connection refused") == true)
        #expect(ContinuousClock.now - start < .seconds(200))
    }
}
