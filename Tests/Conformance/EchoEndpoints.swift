// Carillon · EchoEndpoints.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Protocols
import Sockets

/// The options of the program; times are in milliseconds.
struct ConformanceOptions: Sendable {
    let pingInterval: Int
    let pingTimeout: Int
    let maximumPayload: Int
    let allowsRecovery: Bool
}

/// `/echo`: echoes every message as text or binary, up to 16 MiB.
struct EchoEndpoint: TransportEndpoint {
    private static let limits = WebSocketLimits(
        maximumMessage: 16 * 1024 * 1024,
        maximumFragments: 1 << 20,
        maximumOutbound: 256 * 1024 * 1024
    )

    func claims(_ path: Substring) -> Bool { path == "/echo" }

    func admit(_ head: HTTPRequestHead) async throws -> WebSocketAdmission {
        WebSocketAdmission(limits: Self.limits) { _ in EchoApplication() }
    }
}

private final class EchoApplication: WebSocketApplication {
    private var socket: WebSocketHandler?

    func webSocketOpened(_ socket: WebSocketHandler) { self.socket = socket }
    func webSocketReceived(text: String) { self.socket?.send(text: Array(text.utf8)) }
    func webSocketReceived(binary: [UInt8]) { self.socket?.send(binary: binary) }
    func webSocketReceivedPing() -> Bool { true }
    func webSocketProven(_ sequence: UInt64) {}
    func webSocketIsTooSlow() { self.socket?.drop() }
    func webSocketReadComplete() {}
    func webSocketClosed() { self.socket = nil }
}

/// `/engine.io/`: echoes every message as text or binary.
final class EngineIOEcho: EngineIOApplication {
    private var connection: EngineIOConnection?

    static func endpoint(_ options: ConformanceOptions) -> EngineIOEndpoint {
        EngineIOEndpoint(path: "/engine.io", configuration: options.engineIO) { _, _ in EngineIOEcho() }
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
            // The largest message must also fit on its way back.
            maximumWaiting: 16 * self.maximumPayload
        )
    }
}
