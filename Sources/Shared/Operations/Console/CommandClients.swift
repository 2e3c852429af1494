// Carillon · CommandClients.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import NIOPosix
import Storage

/// What commands that do one thing and end talk to, by the same settings as the services.
package enum CommandClients {
    /// How Redis is reached; faults stay with the reader.
    package static func redis(_ reader: SettingsReader, name: String) async -> RedisConfiguration? {
        let address = await reader.load("REDIS_URL", isSet: true) {
            try RedisAddress(url: reader.text("REDIS_URL") ?? "redis://127.0.0.1:6379/0")
        }
        guard let address else { return nil }
        var configuration = RedisConfiguration(address: address, clientName: "carillon-\(name)")
        configuration.certificateAuthorityFile = reader.text("REDIS_CA")
        return configuration
    }

    /// How PostgreSQL is reached; faults stay with the reader.
    package static func database(_ reader: SettingsReader, name: String) -> PostgresConfiguration {
        let database = reader.text("DATABASE_URL")
        if database == nil { reader.fault("DATABASE_URL", "is missing; give postgresql://user@host/database") }
        var configuration = PostgresConfiguration(
            connectionString: database ?? "", applicationName: "carillon-\(name)")
        configuration.connections = 1
        configuration.sessionSettings = StoreSession.settings
        EpochWatch().watch(&configuration)
        return configuration
    }

    /// The catalog, if one is named; faults stay with the reader.
    package static func catalog(_ reader: SettingsReader, isRequired: Bool) async -> Catalog? {
        let path = reader.text("CATALOG")
        if path == nil, isRequired {
            reader.fault("CATALOG", "is missing; give the path of a YAML file or a folder of them")
        }
        return await reader.load("CATALOG", isSet: path != nil) { try CatalogLoader.load(path: path ?? "") }
    }

    /// Runs `body` with a connection to Redis, which ends with it.
    package static func withRedis<Value>(
        _ configuration: RedisConfiguration,
        _ body: (RedisConnection) async throws -> Value
    ) async throws -> Value {
        let connection = try RedisConnection(
            configuration,
            on: MultiThreadedEventLoopGroup.singleton.next(),
            logger: Logger(label: configuration.clientName) { _ in SwiftLogNoOpLogHandler() }
        )
        do {
            let value = try await body(connection)
            await connection.close()
            return value
        } catch {
            await connection.close()
            throw error
        }
    }

    /// Runs `body` with connections to PostgreSQL, which end with it.
    package static func withDatabase<Value>(
        _ configuration: PostgresConfiguration,
        _ body: (PostgresPool) async throws -> Value
    ) async throws -> Value {
        let logger = Logger(label: configuration.applicationName) { _ in SwiftLogNoOpLogHandler() }
        let pool = try PostgresPool(configuration, logger: logger)
        defer { pool.close() }
        return try await body(pool)
    }

    /// Runs `body` with the configured database alone.
    ///
    /// - Parameter name: what PostgreSQL knows the command by.
    package static func withDatabase<Value>(
        _ options: CommonOptions,
        name: String,
        _ body: (PostgresPool) async throws -> Value
    ) async throws -> Value {
        let reader = try await options.reader()
        let configuration = self.database(reader, name: name)
        try reader.finish()
        return try await self.withDatabase(configuration, body)
    }
}
