// Carillon · NativeEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import NIOCore
import NIOHTTP1
import Protocols

/// Native sockets at `/v1/socket`.
package struct NativeEndpoint: TransportEndpoint {
    /// The path.
    package static let path = "/v1/socket"
    /// The subprotocol of the native dialect; a browser adds its token as a second one, `bearer.<token>`.
    static let subprotocol = "carillon.v1"

    private let hub: SocketHub
    private let backend: any SocketBackend

    package init(hub: SocketHub, backend: any SocketBackend) {
        self.hub = hub
        self.backend = backend
    }

    package func claims(_ path: Substring) -> Bool { path == Self.path }

    package func handle(_ exchange: HTTPExchange) {
        guard exchange.head.method == .GET else {
            var refusal = TransportRefusal.problem(.methodNotAllowed, "a WebSocket begins with GET")
            refusal.headers.add(name: "allow", value: "GET")
            return exchange.respond(refusal)
        }
        exchange.respond(.problem(.upgradeRequired, "this path is for WebSockets only"))
    }

    package func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        let offered = head.headers[canonicalForm: "sec-websocket-protocol"].map { String($0) }
        let query = try RequestQuery(of: head)
        let since = try query.version("resume")
        var credentials = SocketCredentials(head.headers)
        credentials.token = offered.first { $0.hasPrefix("bearer.") }.map { String($0.dropFirst("bearer.".count)) }
        credentials.ticket = query["ticket"]
        let admitted: SocketIdentity?
        do {
            admitted = try await self.backend.authenticate(credentials)
        } catch let refusal as SocketRefusal {
            SocketMetrics.refused.increment()
            throw self.refusal(HTTPResponseStatus(statusCode: refusal.status), reason: refusal.reason)
        }
        let hub = self.hub
        return WebSocketAdmission(
            subprotocol: offered.contains(Self.subprotocol) ? Self.subprotocol : nil,
            limits: hub.configuration.webSocketLimits
        ) { eventLoop in
            guard let shard = hub.shard(on: eventLoop) else { return nil }
            return NativeWire(
                session: SocketSession(
                    connection: RandomName.make(),
                    identity: admitted,
                    since: since,
                    shard: shard
                )
            )
        }
    }
}

extension SocketConfiguration {
    var webSocketLimits: WebSocketLimits {
        WebSocketLimits(maximumMessage: self.maximumMessage, maximumOutbound: self.maximumOutbound)
    }
}
