// Carillon · TestDatabase.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Dispatch
import Foundation
import Storage

/// A database for one test on the shared server: `CARILLON_TEST_DATABASE_URL`, or a private one.
package final class TestDatabase: Sendable {
    package let name: String
    /// The URL, in libpq's syntax.
    package let url: String
    package let pool: PostgresPool

    private init(name: String, url: String, pool: PostgresPool) {
        self.name = name
        self.url = url
        self.pool = pool
    }

    deinit {
        self.pool.close()
    }

    /// Creates a database; the caller drops it.
    ///
    /// - Parameters:
    ///   - isMigrated: false for an empty database.
    ///   - encoding: makes an empty database with an encoding other than the server's.
    package static func make(
        isMigrated: Bool = true,
        encoding: String? = nil,
        _ configure: (inout PostgresConfiguration) -> Void = { _ in }
    ) async throws -> TestDatabase {
        let server = try await DatabaseServer.shared()
        let name = DatabaseServer.freshName()
        var template = isMigrated ? try await server.migratedTemplate() : "template1"
        if let encoding { template = "template0 ENCODING '\(encoding)' LOCALE_PROVIDER libc LOCALE 'C'" }
        try await server.execute("CREATE DATABASE \(name) TEMPLATE \(template)")
        let url = server.url(database: name)
        var configuration = Self.patientConfiguration(url: url)
        configure(&configuration)
        let pool = try PostgresPool(configuration, logger: TestLog.logger)
        return TestDatabase(name: name, url: url, pool: pool)
    }

    /// Runs `body` with a new database, which is dropped afterwards.
    package static func with<Result>(
        isMigrated: Bool = true,
        encoding: String? = nil,
        _ configure: (inout PostgresConfiguration) -> Void = { _ in },
        _ body: (TestDatabase) async throws -> Result
    ) async throws -> Result {
        let database = try await Self.make(isMigrated: isMigrated, encoding: encoding, configure)
        return try await withCleanUp({ try await database.drop() }) { try await body(database) }
    }

    /// Closes the pool and drops the database, even if others are connected.
    package func drop() async throws {
        self.pool.close()
        try await DatabaseServer.shared().execute("DROP DATABASE IF EXISTS \(self.name) WITH (FORCE)")
    }

    /// Returns the configuration of another pool on this database.
    package func configuration(applicationName: String = "test") -> PostgresConfiguration {
        Self.patientConfiguration(url: self.url, applicationName: applicationName)
    }

    /// The configuration of a fixture's pool, which waits longer for a busy machine.
    package static func patientConfiguration(
        url: String,
        applicationName: String = "test"
    ) -> PostgresConfiguration {
        var configuration = PostgresConfiguration(connectionString: url, applicationName: applicationName)
        configuration.timeout = fixturePatience
        configuration.connectTimeout = fixturePatience / 2
        return configuration
    }
}

/// Creates and drops databases on the PostgreSQL server that tests share.
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

    /// Returns a random database name.
    static func freshName() -> String {
        "carillon_test_\(String(UInt64.random(in: .min ... .max), radix: 36))"
    }

    /// Returns the URL of another database on this server.
    nonisolated func url(database: String) -> String {
        guard self.administrator.hasPrefix("postgres"), var parts = URLComponents(string: self.administrator) else {
            // libpq uses the last value of a repeated key.
            return self.administrator + " dbname=\(database)"
        }
        parts.path = "/" + database
        return parts.string ?? self.administrator
    }

    /// Runs a script in the administrator's database.
    nonisolated func execute(_ script: String) async throws {
        try await self.withPool(self.administrator) { pool in
            try await pool.withScriptConnection { try $0.execute(script) }
        }
    }

    /// Returns the name of a fully migrated database, created once per process as a template.
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
        // PostgreSQL refuses a template with open connections, and a closed pool disconnects a
        // little later.
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
        // A script's connection is opened once; the machine may stand still meanwhile.
        configuration.connectTimeout = configuration.timeout
        let pool = try PostgresPool(configuration, logger: TestLog.logger)
        defer { pool.close() }
        return try await body(pool)
    }

    /// Drops the template at exit; blocks for at most 5 s.
    private nonisolated func dropAtExit(_ name: String) {
        let done = DispatchSemaphore(value: 0)
        Task {
            try? await self.execute("DROP DATABASE IF EXISTS \(name) WITH (FORCE)")
            done.signal()
        }
        _ = done.wait(timeout: .now() + 5)
    }
}

extension DeviceStore {
    /// Registers one device.
    package func register(_ device: Device, silenced: Bool? = nil) async throws(PostgresError) -> Registration {
        try await self.register([device], silenced: silenced)[0]
    }
}
