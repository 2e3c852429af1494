// Carillon · DispatcherCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Operations

/// The program `dispatcher`.
@main
struct DispatcherCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dispatcher",
        abstract: "Takes jobs from Redis streams, stores notifications and sends them on their way.",
        discussion: """
            Configured by environment variables, or by a file of NAME=value lines
            (--config). `docs/command-line.md` has every command, its exit codes and what
            --json prints.

            Examples:
              dispatcher doctor
              dispatcher run
              dispatcher enqueue --user u1 --type payment_received --title "Paid"
              dispatcher broadcast --topic news --type breaking_news --title "Extra"
              dispatcher lag --watch
              dispatcher --generate-completion-script bash > dispatcher.bash
            """,
        version: CommandFrame.version,
        subcommands: [
            RunCommand.self, EnqueueCommand.self, BroadcastCommand.self, SendTestCommand.self, SchedulesCommand.self,
            DeadCommand.self, TraceCommand.self, SimulateCommand.self, LagCommand.self, DoctorCommand.self,
            OutboxSQLCommand.self,
        ]
    )

    static func main() async { await CommandFrame.main(Self.self) }

    /// Runs a command's work; what ends it early becomes a line on standard error and an exit code.
    static func run(_ work: () async throws -> Void) async throws {
        try await CommandFrame.run("dispatcher", work)
    }
}
