// Carillon · DispatcherCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Glibc
import Settings
import Telemetry

/// The program `dispatcher`.
@main
struct DispatcherCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dispatcher",
        abstract: "Takes jobs from Redis streams, stores notifications and sends them on their way.",
        discussion: """
            Configured by environment variables, or by a file of NAME=value lines (--config).

            Examples:
              dispatcher run
              dispatcher enqueue --user u1 --type payment_received --title "Payment received"
              dispatcher broadcast --topic news --type breaking_news --title "Extra"
              dispatcher send-test --user u1
              dispatcher schedules list
            """,
        subcommands: [
            RunCommand.self, EnqueueCommand.self, BroadcastCommand.self, SchedulesCommand.self, OutboxSQLCommand.self,
            DeadCommand.self, SendTestCommand.self,
        ]
    )

    /// Runs a command's work; a faulty configuration is printed and ends the process with 78.
    static func run(_ work: () async throws -> Void) async throws {
        // A peer that is gone shows as an error of the write, not as a signal.
        signal(SIGPIPE, SIG_IGN)
        do {
            try await work()
        } catch let faults as SettingsFaults {
            Terminal.error("dispatcher: \(faults)")
            throw ExitCode(SettingsFaults.exitCode)
        }
    }
}

/// Options of every command.
struct CommonOptions: ParsableArguments {
    @Option(help: ArgumentHelp("A file of NAME=value lines for what the environment leaves open.", valueName: "file"))
    var config: String?
}
