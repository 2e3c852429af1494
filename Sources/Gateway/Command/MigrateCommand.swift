// Carillon · MigrateCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Logging
import Operations
import Storage

/// `gateway migrate`.
struct MigrateCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "migrate",
        abstract: "Brings the database to this release's tables.",
        discussion: """
            Several may run at once; each migration is applied once. Needs DATABASE_URL.
            With --check nothing is applied, and the exit code is 1 if anything is
            missing.

            Examples:
              gateway migrate
              gateway migrate --check
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Only says what is missing.")
    var check = false

    func run() async throws {
        try await GatewayCommand.run {
            try await CommandClients.withDatabase(self.options, name: "migrate") { pool in
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
