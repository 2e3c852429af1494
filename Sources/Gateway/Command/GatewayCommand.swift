// Carillon · GatewayCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Glibc
import Settings
import Telemetry

/// The program `gateway`.
@main
struct GatewayCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gateway",
        abstract: "Takes API calls and holds the clients' sockets.",
        discussion: """
            Configured by environment variables, or by a file of NAME=value lines (--config).

            Examples:
              gateway serve
              gateway token --user u1 --ttl 1h
              gateway token --user my-backend --scope service
              gateway import users.jsonl
            """,
        subcommands: [ServeCommand.self, MigrateCommand.self, TokenCommand.self, ImportCommand.self]
    )

    /// Runs a command's work; a faulty configuration is printed and ends the process with 78.
    static func run(_ work: () async throws -> Void) async throws {
        // A peer that is gone shows as an error of the write, not as a signal.
        signal(SIGPIPE, SIG_IGN)
        do {
            try await work()
        } catch let faults as SettingsFaults {
            Terminal.error("gateway: \(faults)")
            throw ExitCode(SettingsFaults.exitCode)
        }
    }
}

/// Options of every command.
struct CommonOptions: ParsableArguments {
    @Option(help: ArgumentHelp("A file of NAME=value lines for what the environment leaves open.", valueName: "file"))
    var config: String?
}
