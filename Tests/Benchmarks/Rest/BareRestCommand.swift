// Carillon · BareRestCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import HTTPTypes
import Hummingbird
import Logging
import NIOCore

/// The yardstick for REST: Hummingbird routes that return fixed JSON.
struct BareRestCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bare-rest",
        abstract: "Runs an HTTP server without Carillon as a yardstick.",
        shouldDisplay: false
    )

    @Option(help: "A path and a file with its response, as PATH=FILE.")
    var route: [String]

    func run() async throws {
        let router = Router()
        for route in self.route {
            let parts = route.split(separator: "=", maxSplits: 1)
            guard parts.count == 2 else { throw ValidationError("--route: not PATH=FILE") }
            let body = ByteBuffer(bytes: try Data(contentsOf: URL(fileURLWithPath: String(parts[1]))))
            router.get(RouterPath(String(parts[0]))) { _, _ in
                Response(
                    status: .ok,
                    headers: [.contentType: "application/json"],
                    body: ResponseBody(byteBuffer: body)
                )
            }
        }
        var logger = Logger(label: "bare-rest")
        logger.logLevel = .error
        let app = Application(
            router: router,
            configuration: ApplicationConfiguration(address: .hostname("127.0.0.1", port: 0)),
            onServerRunning: { channel in
                let line = "ready http://127.0.0.1:\(channel.localAddress?.port ?? 0)\n"
                FileHandle.standardOutput.write(Data(line.utf8))
            },
            logger: logger
        )
        try await app.runService()
    }
}
