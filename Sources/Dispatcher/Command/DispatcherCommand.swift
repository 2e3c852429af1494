// Carillon · DispatcherCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Operations
import Storage

/// The program `dispatcher`.
@main
struct DispatcherCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dispatcher",
        abstract: "Takes jobs from Redis streams, stores and delivers notifications.",
        discussion: """
            Reads its settings from environment variables, or from a file of NAME=value
            lines (--config). `docs/command-line.md` lists every command, its exit codes
            and the output of --json.

            Examples:
              dispatcher doctor
              dispatcher run
              dispatcher enqueue --user u1 --type payment_received --title "Paid"
              dispatcher broadcast --topic news --type breaking_news --title "Extra"
              dispatcher lag --watch
              dispatcher --generate-completion-script bash > dispatcher.bash
            """,
        version: Release.version,
        subcommands: [
            RunCommand.self, EnqueueCommand.self, BroadcastCommand.self, SendTestCommand.self, SchedulesCommand.self,
            DeadCommand.self, JobCommand.self, TraceCommand.self, UserCommand.self, PresenceCommand.self,
            EventsCommand.self, SimulateCommand.self, LagCommand.self, CatalogCommand.self, PartsCommand.self,
            DoctorCommand.self, OutboxSQLCommand.self,
        ]
    )

    static func main() async {
        let gateway = ["serve", "migrate", "token", "import", "openapi"]
        await CommandFrame.main(Self.self, other: ("gateway", gateway))
    }

    /// Runs a command; an error becomes a line on standard error and an exit code.
    static func run(_ work: () async throws -> Void) async throws {
        try await CommandFrame.run("dispatcher", work)
    }
}

/// `dispatcher run`.
struct RunCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run",
        abstract: "Processes jobs until SIGTERM or SIGINT, then finishes the work that it took.",
        discussion: """
            Applies missing migrations first. Start as many as you like; they share the
            work. Prints `ready http://HOST:PORT`, the address of its metrics, once it runs.

            Examples:
              dispatcher run
              dispatcher run --config /etc/carillon/dispatcher.env
            """
    )

    @OptionGroup var options: CommonOptions

    func run() async throws {
        CommandFrame.handleEarlySignals()
        try await DispatcherCommand.run {
            let reader = try self.options.reader()
            try await DispatcherComposition.run(DispatcherSettings(reader), reader: reader)
        }
    }
}

/// `dispatcher outbox-sql`.
struct OutboxSQLCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "outbox-sql",
        abstract: "Prints the SQL that gives a database an outbox.",
        discussion: """
            For databases other than Carillon's own, which has one. May be run again.

            Examples:
              dispatcher outbox-sql | psql -v ON_ERROR_STOP=1 postgresql://owner@host/shop
            """
    )

    func run() async throws {
        Terminal.line(Migrations.outboxScript)
    }
}
