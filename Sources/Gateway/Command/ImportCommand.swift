// Carillon · ImportCommand.swift
// SPDX-License-Identifier: Apache-2.0

import API
import ArgumentParser
import Catalog
import FoundationEssentials
import Glibc
import Logging
import Model
import Postgres
import Settings
import Stores
import Telemetry

/// `gateway import`.
struct ImportCommand: AsyncParsableCommand {
    /// What sysexits.h calls faulty data.
    private static let dataFault: Int32 = 65

    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Brings users in: settings, preferences, devices and topics.",
        discussion: """
            Reads JSON lines, one user each: the body of PUT /v1/users/{id}, with user_id. A line at fault is reported on
            standard error by its number and left out; the others are stored, and the exit code is 65. The same file may be
            imported again. Needs DATABASE_URL and CATALOG, and a database that is migrated.

            Example line:
              {"user_id":"u1","settings":{"zone":"Europe/Zurich"},"devices":[{"platform":"android","token":"t1"}]}

            Examples:
              gateway import users.jsonl
              psql -XAtc 'SELECT row_to_json(u) FROM my_users u' | gateway import -
            """
    )

    @OptionGroup var options: CommonOptions

    @Argument(help: ArgumentHelp("A file of JSON lines; - for standard input.", valueName: "file"))
    var file: String

    func run() async throws {
        try await GatewayCommand.run {
            let reader = try await SettingsReader.process(file: self.options.config)
            let database = reader.text("DATABASE_URL")
            if database == nil { reader.fault("DATABASE_URL", "is missing; give postgresql://user@host/database") }
            let path = reader.text("CATALOG")
            if path == nil { reader.fault("CATALOG", "is missing; give the path of a YAML file or a folder of them") }
            let catalog = await reader.load("CATALOG", isSet: path != nil) { try CatalogLoader.load(path: path ?? "") }
            try reader.finish()
            guard let catalog else { return }
            var configuration = PostgresConfiguration(
                connectionString: database ?? "",
                applicationName: "carillon-import"
            )
            configuration.sessionSettings = StoreSession.settings
            let pool = try PostgresPool(configuration, logger: Logger(label: "carillon.import"))
            defer { pool.close() }
            try await self.take(catalog, pool)
        }
    }

    private func take(_ catalog: Catalog, _ pool: PostgresPool) async throws {
        let now: @Sendable () -> Timestamp = {
            Timestamp(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
        }
        let fields = UserFields(catalogs: CatalogRegister(catalog, now: now), now: now)
        let isTerminal = isatty(STDERR_FILENO) == 1
        var lines: LineReader
        do {
            lines = try LineReader(path: self.file)
        } catch {
            throw ValidationError(error.description)
        }
        defer { lines.close() }
        var users = UserImport(
            fields: fields,
            store: UserStore(pool: pool),
            report: { Terminal.error("line \($0): \($1)") },
            progress: { tally in
                if isTerminal { Terminal.progress("\(tally.users) users of \(tally.lines) lines") }
            }
        )
        while let line = try lines.next() { try await users.take(line) }
        let tally = try await users.finish()
        if isTerminal { Terminal.progress("") }
        Terminal.line(
            "imported \(tally.users) users, \(tally.devices) devices, \(tally.preferences) preferences, "
                + "\(tally.subscriptions) subscriptions; \(tally.faulty) lines at fault"
        )
        if tally.faulty > 0 { throw ExitCode(Self.dataFault) }
    }
}
