// Carillon · DatabaseServer.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Dispatch
import Foundation
import Storage

/// Makes and drops databases on the server that tests share.
actor DatabaseServer {
    private static let starting = Task {
        DatabaseServer(url: try await SharedServers.shared.databaseURL())
    }

    private nonisolated let administrator: String
    private var template: Task<String, any Error>?

    private init(url: String) {
        self.administrator = url
    }

    static func shared() async throws -> DatabaseServer {
        try await Self.starting.value
    }

    /// A name that no other test uses.
    static func freshName() -> String {
        "carillon_test_\(String(UInt64.random(in: .min ... .max), radix: 36))"
    }

    /// The URL of another database of this server.
    nonisolated func url(database: String) -> String {
        guard self.administrator.hasPrefix("postgres"), var parts = URLComponents(string: self.administrator) else {
            // In key=value pairs the last of a key counts.
            return self.administrator + " dbname=\(database)"
        }
        parts.path = "/" + database
        return parts.string ?? self.administrator
    }

    /// Runs a script on the administrator's database.
    nonisolated func execute(_ script: String) async throws {
        try await self.withPool(self.administrator) { pool in
            try await pool.withScriptConnection { try $0.execute(script) }
        }
    }

    /// The name of a database in the newest state, migrated once in this process and copied for each test.
    func migratedTemplate() async throws -> String {
        let task = self.template ?? Task { try await self.makeTemplate() }
        self.template = task
        return try await task.value
    }

    private nonisolated func makeTemplate() async throws -> String {
        let name = Self.freshName()
        try await self.execute("CREATE DATABASE \(name)")
        ExitHandlers.add { self.dropAtExit(name) }
        try await self.withPool(self.url(database: name)) { pool in
            try await Migrations.apply(to: pool, logger: TestLog.logger)
        }
        // A template must have no connections, and a pool's end only some time after it was closed.
        try await self.execute("ALTER DATABASE \(name) ALLOW_CONNECTIONS false")
        try await self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '\(name)'")
        return name
    }

    @discardableResult
    private nonisolated func withPool<Result>(
        _ url: String, _ body: (PostgresPool) async throws -> Result
    ) async throws -> Result {
        var configuration = PostgresConfiguration(connectionString: url, applicationName: "test administrator")
        configuration.connections = 1
        configuration.timeout = .seconds(60)
        let pool = try PostgresPool(configuration, logger: TestLog.logger)
        defer { pool.close() }
        return try await body(pool)
    }

    /// Blocks the exiting process for some seconds at most.
    private nonisolated func dropAtExit(_ name: String) {
        let done = DispatchSemaphore(value: 0)
        Task {
            try? await self.execute("DROP DATABASE IF EXISTS \(name) WITH (FORCE)")
            done.signal()
        }
        _ = done.wait(timeout: .now() + 5)
    }
}
