// Carillon · SocketIOEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import NIOCore
import NIOHTTP1
import Protocols

/// Socket.IO at `/socket.io/`.
package struct SocketIOEndpoint: TransportEndpoint {
    /// The path; clients add a slash.
    package static let path = "/socket.io"

    private let engine: EngineIOEndpoint

    /// - Parameter origins: From which pages browsers may poll.
    package init(hub: SocketHub, origins: EngineIOOrigins) {
        let configuration = hub.configuration
        let connections = SocketIOConfiguration(
            connectTimeout: configuration.authentication.inMilliseconds,
            maximumAttachmentBytes: configuration.maximumMessage,
            offersRecovery: configuration.recovery
        )
        self.engine = EngineIOEndpoint(
            path: Self.path,
            configuration: EngineIOConfiguration(
                pingInterval: configuration.pingInterval.inMilliseconds,
                pingTimeout: configuration.pingTimeout.inMilliseconds,
                maximumPayload: configuration.maximumMessage,
                maximumWaiting: configuration.maximumOutbound
            ),
            origins: origins,
            maximumOutbound: configuration.maximumOutbound,
            isFull: { SocketMetrics.overflows.increment() }
        ) { opening, eventLoop in
            guard let shard = hub.shard(on: eventLoop) else { return nil }
            let wire = SocketIOWire(shard: shard, handshakeToken: Self.token(opening))
            return SocketIOPeer(wire, configuration: connections)
        }
    }

    private static func token(_ opening: EngineIOOpening) -> String? {
        if let header = opening.head.headers.first(name: "authorization"), header.lowercased().hasPrefix("bearer ") {
            return String(header.dropFirst("bearer ".count))
        }
        return opening.query.parameters.first { $0.name == "token" }?.value
    }

    package func claims(_ path: Substring) -> Bool { self.engine.claims(path) }
    package var maximumBody: Int { self.engine.maximumBody }
    package var allowsCredentials: Bool { self.engine.allowsCredentials }

    package func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        try await self.engine.admit(head, from: address)
    }

    package func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal {
        self.engine.refusal(status, reason: reason)
    }

    package func begin(_ exchange: HTTPExchange) { self.engine.begin(exchange) }
    package func handle(_ exchange: HTTPExchange) { self.engine.handle(exchange) }
}

extension Duration {
    fileprivate var inMilliseconds: Int64 { self.inMicroseconds / 1_000 }
}
