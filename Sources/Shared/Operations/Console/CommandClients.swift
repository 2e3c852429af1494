// Carillon · CommandClients.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import Logging
import NIOPosix
import Storage

/// Options of every command.
package struct CommonOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp("A file of NAME=value lines; the environment takes precedence.", valueName: "file"),
        completion: .file()
    )
    package var config: String?

    package init() {}

    /// Reads the environment and the file.
    package func reader() throws(SettingsFaults) -> SettingsReader {
        try SettingsReader.process(file: self.config)
    }
}

/// The output option of every command that prints results.
package struct OutputOptions: ParsableArguments {
    @Flag(help: "Prints JSON, for programs.")
    package var json = false

    package init() {}
}

extension CompletionKind {
    /// The names of the catalog's types, if the variable `CATALOG` names a readable catalog.
    package static var catalogTypes: CompletionKind {
        .custom { _, _, prefix in
            guard let path = ProcessInfo.processInfo.environment["CATALOG"],
                let catalog = try? CatalogLoader.load(path: path)
            else { return [] }
            return catalog.all.map(\.name).filter { $0.hasPrefix(prefix) }
        }
    }

    /// The lanes, the most urgent first.
    package static var lanes: CompletionKind { .list(Lane.allCases.map(\.rawValue)) }
}

/// Clients for one-off commands, from the same settings as the services.
package enum CommandClients {
    /// Returns the configuration of Redis; records faults in `reader`.
    package static func redis(_ reader: SettingsReader, name: String) -> RedisConfiguration {
        RedisSettings(reader).configuration(clientName: "carillon-\(name)")
    }

    /// Returns the configuration of PostgreSQL; records faults in `reader`.
    ///
    /// - Parameter watchesEpoch: false for a command that changes nothing, because ``EpochWatch``
    ///   begins an epoch after a restore.
    package static func database(
        _ reader: SettingsReader,
        name: String,
        watchesEpoch: Bool = true
    ) -> PostgresConfiguration {
        var configuration = PostgresConfiguration(
            connectionString: DatabaseURL.read(reader), applicationName: "carillon-\(name)")
        configuration.connections = 1
        configuration.sessionSettings = StoreSession.settings
        if watchesEpoch { EpochWatch().watch(&configuration) }
        return configuration
    }

    /// Loads the catalog, if one is set; records faults in `reader`.
    package static func catalog(_ reader: SettingsReader, isRequired: Bool) async -> Catalog? {
        let path = reader.text("CATALOG")
        if path == nil, isRequired {
            reader.fault("CATALOG", "is missing; give the path of a YAML file or a folder of them")
        }
        return await reader.load("CATALOG", isSet: path != nil) { try CatalogLoader.load(path: path ?? "") }
    }

    /// Runs `body` with a connection to Redis and closes it; fails at once if the server cannot be
    /// reached.
    ///
    /// - Throws: the errors of `body`; a `RedisError` with the server's address in its message.
    package static func withRedis<Value>(
        _ configuration: RedisConfiguration,
        _ body: (RedisClient) async throws -> Value
    ) async throws -> Value {
        var configuration = configuration
        configuration.waitsForServer = false
        let connection = try RedisClient(
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
            guard let fault = error as? RedisError, fault.code != .configuration else { throw error }
            let message = fault.message.map { "\($0) " } ?? ""
            throw RedisError(fault.code, "\(message)(\(configuration.address))")
        }
    }

    /// Runs `body` with a connection pool to PostgreSQL and closes it; fails at once if the server
    /// cannot be reached.
    package static func withDatabase<Value>(
        _ configuration: PostgresConfiguration,
        _ body: (PostgresPool) async throws -> Value
    ) async throws -> Value {
        var configuration = configuration
        configuration.waitsForServer = false
        let logger = Logger(label: configuration.applicationName) { _ in SwiftLogNoOpLogHandler() }
        let pool = try PostgresPool(configuration, logger: logger)
        defer { pool.close() }
        return try await body(pool)
    }

    /// Runs `body` with the configured database.
    ///
    /// - Parameters:
    ///   - name: the suffix of the application name in PostgreSQL.
    ///   - watchesEpoch: false for a command that changes nothing.
    package static func withDatabase<Value>(
        _ options: CommonOptions,
        name: String,
        watchesEpoch: Bool = true,
        _ body: (PostgresPool) async throws -> Value
    ) async throws -> Value {
        let reader = try options.reader()
        let configuration = self.database(reader, name: name, watchesEpoch: watchesEpoch)
        try reader.finish()
        return try await self.withDatabase(configuration, body)
    }
}
