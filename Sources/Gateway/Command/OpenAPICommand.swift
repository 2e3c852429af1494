// Carillon · OpenAPICommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import HTTP
import Operations

/// `gateway openapi`.
struct OpenAPICommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "openapi",
        abstract: "Prints the REST API as OpenAPI 3.1.",
        discussion: """
            Needs no settings, no stores and no running gateway, which serves the same as
            /openapi.json and /openapi/compatibility.json.

            Examples:
              gateway openapi > openapi.json
              gateway openapi --compatibility > compatibility.json
            """
    )

    @Flag(help: "Prints the paths of other systems instead.")
    var compatibility = false

    func run() async throws {
        try await GatewayCommand.run {
            let document = try await OfflineServices.document(compatibility: self.compatibility)
            Terminal.line(String(decoding: document, as: UTF8.self))
        }
    }
}
