// Carillon · RunCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Operations

/// `dispatcher run`.
struct RunCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run",
        abstract: "Works until SIGTERM or SIGINT, then finishes what it took.",
        discussion: """
            Applies missing migrations first. Start as many as you like, they share the
            work. Prints `ready http://HOST:PORT`, where its metrics are, when it works.

            Examples:
              dispatcher run
              dispatcher run --config /etc/carillon/dispatcher.env
            """
    )

    @OptionGroup var options: CommonOptions

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try await self.options.reader()
            try await DispatcherComposition.run(DispatcherSettings(reader), reader: reader)
        }
    }
}
