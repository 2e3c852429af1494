// Carillon · EngineIOEcho.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols
import Sockets

/// `/engine.io/`: sends every message back, text as text and binary as binary.
final class EngineIOEcho: EngineIOApplication {
    private var connection: EngineIOConnection?

    static func endpoint(_ options: ConformanceOptions) -> EngineIOEndpoint {
        EngineIOEndpoint(path: "/engine.io", configuration: options.engineIO, origins: .any) { _, _ in EngineIOEcho() }
    }

    func engineIOOpened(_ connection: EngineIOConnection) {
        self.connection = connection
        connection.welcome()
    }
    func engineIOReceived(_ message: EngineIOMessage) { self.connection?.send([message]) }
    func engineIOIsTooSlow() { self.connection?.drop() }
    func engineIOClosed(_ reason: EngineIOCloseReason) { self.connection = nil }
}

extension ConformanceOptions {
    var engineIO: EngineIOConfiguration {
        EngineIOConfiguration(
            pingInterval: Int64(self.pingInterval),
            pingTimeout: Int64(self.pingTimeout),
            maximumPayload: self.maximumPayload,
            // What comes in at its largest goes out again.
            maximumWaiting: 16 * self.maximumPayload
        )
    }
}
