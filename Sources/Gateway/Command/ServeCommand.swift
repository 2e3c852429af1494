// Carillon · ServeCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Glibc
import Operations

/// `gateway serve`.
struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Serves clients until SIGTERM or SIGINT.",
        discussion: """
            Applies missing migrations first. Prints `ready http://HOST:PORT` when it
            listens.

            Examples:
              gateway serve
              GATEWAY_PORT=0 gateway serve --config /etc/carillon/gateway.env
            """
    )

    @OptionGroup var options: CommonOptions

    func run() async throws {
        // Whoever renews certificates says so with it, maybe before the services run that listen to it.
        signal(SIGHUP, SIG_IGN)
        try await GatewayCommand.run {
            let reader = try await self.options.reader()
            try await GatewayComposition.run(GatewaySettings(reader), reader: reader)
        }
    }
}
