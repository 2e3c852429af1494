// Carillon · SessionStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Storage

/// Sessions of processes that stalled in the middle of a transaction.
@Suite(.timeLimit(.minutes(10)))
struct SessionStoreTests {
    /// A session whose process does nothing more.
    private struct Session {
        let connection: BlockingConnection
        /// The id of the server's process.
        let process: String
    }

    /// Opens a session and runs a script in it; the end of the script may fail.
    private static func open(
        _ database: TestDatabase,
        program: String = "carillon-dispatcher",
        _ script: String
    ) async throws -> Session {
        let pool = try PostgresPool(database.configuration(applicationName: program), logger: TestLog.logger)
        defer { pool.close() }
        return try await pool.withScriptConnection { connection in
            let process = try connection.query("SELECT pg_backend_pid()").first ?? ""
            try connection.execute("CREATE TEMPORARY TABLE things (n int4)")
            // COPY leaves libpq's call unfinished, which counts as an error.
            try? connection.execute(script)
            return Session(connection: connection, process: process)
        }
    }

    /// Whether sessions are still there.
    private static func areOpen(_ sessions: [Session], _ pool: PostgresPool) async throws -> Bool {
        try await pool.query(
            "SELECT FROM pg_stat_activity WHERE pid::text = ANY ($1)", .texts(sessions.map(\.process))
        ).count == sessions.count
    }

    /// As long as it is held, every cancellation fails.
    private static let lock = "BEGIN; \(CancellationSQL.beforeStoring.sql);"

    @Test(
        "a process that stalls between two statements or within one holds up no cancellation",
        arguments: ["", "COPY things FROM STDIN"])
    func stalled(statement: String) async throws {
        try await TestDatabase.with { database in
            let stores = Database(database.pool)
            let session = try await Self.open(database, Self.lock + statement)
            defer { withExtendedLifetime(session.connection) {} }
            let early = try await stores.sessions.endStalled(after: .seconds(3_600))
            #expect(early == [])
            let ended = try await eventualValue("the session is ended") {
                try await stores.sessions.endStalled(after: .zero).first
            }
            #expect("\(ended.process)" == session.process)
            #expect(ended.program == "carillon-dispatcher")
            try await stores.cancellations.record(.init(org: "", id: "j"), at: Samples.start)
        }
    }

    @Test("finds the program behind a pooler that adds its client's host")
    func pooler() async throws {
        try await TestDatabase.with { database in
            let session = try await Self.open(database, program: "carillon-gateway - 10.0.0.1:6432", Self.lock)
            defer { withExtendedLifetime(session.connection) {} }
            let ended = try await eventualValue("the session is ended") {
                try await Database(database.pool).sessions.endStalled(after: .zero).first
            }
            #expect("\(ended.process)" == session.process)
        }
    }

    @Test("leaves sessions that work, hold no transaction or belong to other programs or databases")
    func others() async throws {
        try await TestDatabase.with { database in
            try await TestDatabase.with(isMigrated: false) { another in
                let sessions = [
                    try await Self.open(database, program: "carillon-gateway", "SELECT 1"),
                    try await Self.open(database, program: "carillon-gateway", "BEGIN; SELECT 1; COMMIT"),
                    try await Self.open(database, program: "shop", Self.lock),
                    try await Self.open(another, "BEGIN"),
                ]
                defer { withExtendedLifetime(sessions) {} }
                let working = try PostgresPool(
                    database.configuration(applicationName: "carillon-dispatcher"), logger: TestLog.logger)
                defer { working.close() }
                let stores = Database(database.pool)
                let work = try await database.pool.transaction { transaction in
                    try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                    let work = Task {
                        try await working.query("SELECT pg_advisory_xact_lock(1)", timeout: .seconds(60))
                    }
                    try await eventually("it works") { try await Samples.areWaiting(1, stores) }
                    let ended = try await stores.sessions.endStalled(after: .zero)
                    #expect(ended == [])
                    return work
                }
                _ = try await work.value
                let areOpen = try await Self.areOpen(sessions, database.pool)
                #expect(areOpen)
            }
        }
    }
}
