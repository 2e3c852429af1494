// Carillon · GatewayCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Operations

/// The program `gateway`.
@main
struct GatewayCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gateway",
        abstract: "Takes API calls and holds the clients' sockets.",
        discussion: """
            Configured by environment variables, or by a file of NAME=value lines
            (--config). `docs/command-line.md` has every command, its exit codes and what
            --json prints.

            Examples:
              gateway doctor
              gateway serve
              gateway token --user u1 --ttl 1h
              gateway token --user my-backend --scope service
              gateway import users.jsonl
              gateway --generate-completion-script zsh > ~/.zsh/completions/_gateway
            """,
        version: CommandFrame.version,
        subcommands: [
            ServeCommand.self, MigrateCommand.self, TokenCommand.self, ImportCommand.self, DoctorCommand.self,
        ]
    )

    static func main() async { await CommandFrame.main(Self.self) }

    /// Runs a command's work; what ends it early becomes a line on standard error and an exit code.
    static func run(_ work: () async throws -> Void) async throws {
        try await CommandFrame.run("gateway", work)
    }
}
