// Carillon · MigrateCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Logging
import Postgres
import Settings
import Stores
import Telemetry

/// `gateway migrate`.
struct MigrateCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "migrate",
        abstract: "Brings the database to this release's tables.",
        discussion: "Several may run at once; each migration is applied once. Needs DATABASE_URL."
    )

    @OptionGroup var options: CommonOptions

    func run() async throws {
        try await GatewayCommand.run {
            let reader = try await SettingsReader.process(file: self.options.config)
            let database = reader.text("DATABASE_URL")
            if database == nil { reader.fault("DATABASE_URL", "is missing; give postgresql://user@host/database") }
            try reader.finish()
            let configuration = PostgresConfiguration(
                connectionString: database ?? "",
                applicationName: "carillon-migrate"
            )
            let logger = Logger(label: "carillon.migrate")
            let pool = try PostgresPool(configuration, logger: logger)
            defer { pool.close() }
            let applied = try await Migrations.apply(to: pool, logger: logger)
            if applied.isEmpty { Terminal.line("nothing to do") }
            for name in applied { Terminal.line("applied \(name)") }
        }
    }
}
