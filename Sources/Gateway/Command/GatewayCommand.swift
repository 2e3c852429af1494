// Carillon · GatewayCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Logging
import Operations
import Storage

/// The program `gateway`.
@main
struct GatewayCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gateway",
        abstract: "Serves the API and the clients' sockets.",
        discussion: """
            Reads its settings from environment variables, or from a file of NAME=value
            lines (--config). `docs/command-line.md` lists every command, its exit codes
            and the output of --json.

            Examples:
              gateway doctor
              gateway serve
              gateway token --user u1 --ttl 1h
              gateway token --user my-backend --scope service
              gateway import users.jsonl
              gateway --generate-completion-script zsh > ~/.zsh/completions/_gateway
            """,
        version: Release.version,
        subcommands: [
            ServeCommand.self, MigrateCommand.self, TokenCommand.self, ImportCommand.self, DoctorCommand.self,
            OpenAPICommand.self,
        ]
    )

    static func main() async {
        let dispatcher = [
            "run", "enqueue", "broadcast", "send-test", "schedules", "dead", "job", "trace", "user", "presence",
            "events", "simulate", "lag", "catalog", "parts", "outbox-sql",
        ]
        await CommandFrame.main(Self.self, other: ("dispatcher", dispatcher))
    }

    /// Runs a command's work; an error becomes a line on standard error and an exit code.
    static func run(_ work: () async throws -> Void) async throws {
        try await CommandFrame.run("gateway", work)
    }
}

/// `gateway serve`.
struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Serves clients until SIGTERM or SIGINT.",
        discussion: """
            Applies missing migrations first. Prints `ready http://HOST:PORT` once it
            listens.

            Examples:
              gateway serve
              GATEWAY_PORT=0 gateway serve --config /etc/carillon/gateway.env
            """
    )

    @OptionGroup var options: CommonOptions

    func run() async throws {
        CommandFrame.handleEarlySignals()
        try await GatewayCommand.run {
            let reader = try self.options.reader()
            try await GatewayComposition.run(GatewaySettings(reader), reader: reader)
        }
    }
}

/// `gateway migrate`.
struct MigrateCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "migrate",
        abstract: "Migrates the database to this release.",
        discussion: """
            Several may run at once; each migration is applied once. Needs DATABASE_URL.
            With --check it applies nothing and exits with 1 if a migration is missing.

            Examples:
              gateway migrate
              gateway migrate --check
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Only lists the missing migrations.")
    var check = false

    func run() async throws {
        try await GatewayCommand.run {
            let reader = try self.options.reader()
            let log = CommonSettings.log(reader)
            let database = CommandClients.database(reader, name: "migrate", watchesEpoch: !self.check)
            try reader.finish()
            LogOutput.bootstrap(format: log.format, level: log.level)
            try await CommandClients.withDatabase(database) { pool in
                guard !self.check else {
                    let state = try await Migrations.state(of: pool)
                    self.show("missing", state.missing)
                    if !state.missing.isEmpty { throw ExitStatus.no }
                    return
                }
                let logger = Logger(label: "carillon.migrate")
                self.show("applied", try await Migrations.apply(to: pool, logger: logger))
            }
        }
    }

    private func show(_ word: String, _ names: [String]) {
        guard !self.output.json else {
            return Terminal.object { writer in
                writer.key(escaping: word)
                writer.beginArray()
                for name in names { writer.string(name) }
                writer.endArray()
            }
        }
        if names.isEmpty { Terminal.line("nothing to do") }
        for name in names { Terminal.line("\(word) \(name)") }
    }
}
