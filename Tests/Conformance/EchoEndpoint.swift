// Carillon · EchoEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Protocols
import Sockets

/// `/echo`: sends every message back, text as text and binary as binary, up to 16 MiB.
struct EchoEndpoint: TransportEndpoint {
    private static let limits = WebSocketLimits(
        maximumMessage: 16 * 1024 * 1024,
        maximumFragments: 1 << 20,
        maximumOutbound: 256 * 1024 * 1024
    )

    func claims(_ path: Substring) -> Bool { path == "/echo" }

    func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        WebSocketAdmission(limits: Self.limits) { _ in EchoApplication() }
    }
}

private final class EchoApplication: WebSocketApplication {
    private var socket: WebSocketHandler?

    func webSocketOpened(_ socket: WebSocketHandler) { self.socket = socket }
    func webSocketReceived(text: String) { self.socket?.send(text: Array(text.utf8)) }
    func webSocketReceived(binary: [UInt8]) { self.socket?.send(binary: binary) }
    func webSocketReceivedPing() -> Bool { true }
    func webSocketReceived(pong: [UInt8]) {}
    func webSocketIsTooSlow() { self.socket?.drop() }
    func webSocketReadComplete() {}
    func webSocketClosed() { self.socket = nil }
}
