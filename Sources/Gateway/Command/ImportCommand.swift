// Carillon · ImportCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import FoundationEssentials
import Glibc
import HTTP
import Operations
import Storage

/// `gateway import`.
struct ImportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Brings users in: settings, preferences, devices and topics.",
        discussion: """
            Reads JSON lines, one user each: the body of PUT /v1/users/{id}, with user_id.
            A line at fault is reported on standard error by its number and left out; the
            others are stored, and the exit code is 65. The same file may be imported
            again. Needs DATABASE_URL and CATALOG, and a database that is migrated. A file
            that cannot be opened ends with 66. With REDIS_URL a device may also have a
            provider that only dispatchers know. WEBPUSH_ORIGINS and APPS hold as for a
            gateway.

            Example line:
              {"user_id":"u1","settings":{"zone":"Europe/Zurich"},"topics":["news"]}

            Examples:
              gateway import users.jsonl
              psql -XAtc 'SELECT row_to_json(u) FROM my_users u' | gateway import -
            """
    )

    /// Between two lines of progress where no terminal is; batches of 200 meet each of its multiples.
    private static let usersPerLine = 10_000

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Argument(
        help: ArgumentHelp("A file of JSON lines; - for standard input.", valueName: "file"),
        completion: .file(extensions: ["jsonl", "ndjson", "json"])
    )
    var file: String

    func run() async throws {
        try await GatewayCommand.run {
            let reader = try await self.options.reader()
            let configuration = CommandClients.database(reader, name: "import")
            let catalog = await CommandClients.catalog(reader, isRequired: true)
            var redis: RedisConfiguration?
            if reader.text("REDIS_URL") != nil { redis = await CommandClients.redis(reader, name: "import") }
            let devices = DeviceSettings(reader)
            let rules = await reader.load("APPS", isSet: true) { try devices.rules() }
            try reader.finish()
            guard let catalog, let rules else { return }
            let providers = await self.providers(redis)
            try await CommandClients.withDatabase(configuration) { pool in
                try await self.take(catalog, rules, providers, pool)
            }
        }
    }

    /// The providers that devices may have; without Redis, which an import can do without, those that everybody knows.
    private func providers(_ configuration: RedisConfiguration?) async -> KnownProviders {
        let providers = KnownProviders()
        guard let configuration else { return providers }
        do {
            let announced = try await CommandClients.withRedis(configuration) { connection in
                try await ProviderRoster(connection: connection, keys: Keyspace()).all()
            }
            providers.add(announced)
        } catch {
            let known = providers.ofDevices.map(\.rawValue).joined(separator: ", ")
            Terminal.error("no providers but \(known) are known: \(error)")
        }
        return providers
    }

    private func take(
        _ catalog: Catalog,
        _ rules: DeviceRules,
        _ providers: KnownProviders,
        _ pool: PostgresPool
    ) async throws {
        let now: @Sendable () -> Timestamp = {
            Timestamp(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
        }
        let fields = UserFields(
            catalogs: CatalogRegister(catalog, now: now), now: now, webPushOrigins: rules.origins,
            appOrigins: rules.appOrigins, providers: providers)
        let isTerminal = isatty(STDERR_FILENO) == 1
        var lines: LineReader
        do {
            lines = try LineReader(path: self.file)
        } catch {
            throw CommandFailure(ExitStatus.noInput, error.description)
        }
        defer { lines.close() }
        var users = UserImport(
            fields: fields,
            store: UserStore(pool: pool, limits: rules.limits),
            report: { Terminal.error("line \($0): \($1)") },
            progress: { tally in
                let text = "\(tally.users) users of \(tally.lines) lines"
                if isTerminal {
                    Terminal.progress(text)
                } else if tally.users.isMultiple(of: Self.usersPerLine) {
                    Terminal.error(text)
                }
            }
        )
        while let line = try lines.next() { try await users.take(line) }
        let tally = try await users.finish()
        if isTerminal { Terminal.progress("") }
        if self.output.json {
            Terminal.object { writer in
                let counts: [(String, Int)] = [
                    ("users", tally.users), ("devices", tally.devices), ("preferences", tally.preferences),
                    ("subscriptions", tally.subscriptions), ("faulty", tally.faulty),
                ]
                for (name, count) in counts {
                    writer.key(escaping: name)
                    writer.integer(count)
                }
            }
        } else {
            Terminal.line(
                "imported \(tally.users) users, \(tally.devices) devices, \(tally.preferences) preferences, "
                    + "\(tally.subscriptions) subscriptions; \(tally.faulty) lines at fault"
            )
        }
        if tally.faulty > 0 { throw ExitStatus.data }
    }
}
