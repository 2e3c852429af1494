// Carillon · ScratchDatabase.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Storage

/// A database of a benchmark's own beside that of `DATABASE_URL`, with the tables in it.
struct ScratchDatabase {
    /// A connection string for it.
    let url: String
    let pool: PostgresPool
    private let name: String
    private let server: PostgresPool

    static func make() async throws -> ScratchDatabase {
        let server = try Environment.database()
        let name = "carillon_bench_\(UInt32.random(in: .min ... .max))"
        try await server.withScriptConnection { try $0.execute("CREATE DATABASE \(name)") }
        // In both of libpq's forms, what comes last overrides what came before.
        let whole = try Environment.require("DATABASE_URL")
        let url: String
        if whole.contains("://") {
            url = whole + (whole.contains("?") ? "&" : "?") + "dbname=\(name)"
        } else {
            url = "\(whole) dbname=\(name)"
        }
        var configuration = PostgresConfiguration(connectionString: url, applicationName: "benchmarks")
        configuration.sessionSettings = StoreSession.settings
        configuration.connections = 1
        configuration.timeout = .seconds(300)
        let pool = try PostgresPool(configuration, logger: Environment.logger)
        try await Migrations.apply(to: pool, logger: Environment.quiet)
        return ScratchDatabase(url: url, pool: pool, name: name, server: server)
    }

    /// Drops it.
    func drop() async throws {
        self.pool.close()
        let name = self.name
        try await self.server.withScriptConnection { try $0.execute("DROP DATABASE \(name) WITH (FORCE)") }
        self.server.close()
    }
}
