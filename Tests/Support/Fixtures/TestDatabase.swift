// Carillon · TestDatabase.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// A database of a test's own on the server that tests share: `CARILLON_TEST_DATABASE_URL`, or a private one.
package final class TestDatabase: Sendable {
    package let name: String
    /// Its URL, in libpq's syntax.
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

    /// Makes a database, migrated to the newest state, to be dropped by the caller.
    ///
    /// - Parameter isMigrated: false for an empty one.
    package static func make(
        isMigrated: Bool = true,
        _ configure: (inout PostgresConfiguration) -> Void = { _ in }
    ) async throws -> TestDatabase {
        let server = try await DatabaseServer.shared()
        let name = DatabaseServer.freshName()
        let template = isMigrated ? try await server.migratedTemplate() : "template1"
        try await server.execute("CREATE DATABASE \(name) TEMPLATE \(template)")
        let url = server.url(database: name)
        var configuration = PostgresConfiguration(connectionString: url, applicationName: "test")
        configure(&configuration)
        let pool = try PostgresPool(configuration, logger: TestLog.logger)
        return TestDatabase(name: name, url: url, pool: pool)
    }

    /// Runs `body` with a fresh database, which is dropped whatever `body` does.
    package static func with<Result>(
        isMigrated: Bool = true,
        _ configure: (inout PostgresConfiguration) -> Void = { _ in },
        _ body: (TestDatabase) async throws -> Result
    ) async throws -> Result {
        let database = try await Self.make(isMigrated: isMigrated, configure)
        do {
            let result = try await body(database)
            try await database.drop()
            return result
        } catch {
            try? await database.drop()
            throw error
        }
    }

    /// Closes the pool and drops the database, whoever is still connected to it.
    package func drop() async throws {
        self.pool.close()
        try await DatabaseServer.shared().execute("DROP DATABASE IF EXISTS \(self.name) WITH (FORCE)")
    }

    /// How another pool for it is configured.
    package func configuration(applicationName: String = "test") -> PostgresConfiguration {
        PostgresConfiguration(connectionString: self.url, applicationName: applicationName)
    }
}
