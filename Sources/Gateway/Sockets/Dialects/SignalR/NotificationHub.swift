// Carillon · NotificationHub.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Crypto
import NIOHTTP1
import Protocols

/// The SignalR hub at `/hubs/notifications`.
package struct NotificationHub: SignalRHub {
    /// The path.
    package static let path = "/hubs/notifications"

    private let hub: SocketHub
    private let backend: any SocketBackend

    /// The endpoint that serves it.
    ///
    /// - Parameter allowedOrigins: Of the pages whose browsers may call.
    package static func endpoint(
        hub: SocketHub,
        backend: any SocketBackend,
        allowedOrigins: Set<String> = []
    ) -> SignalREndpoint {
        var configuration = SignalREndpointConfiguration(
            path: Self.path,
            connection: SignalRConfiguration(maximumMessageBytes: hub.configuration.maximumMessage),
            webSocket: hub.configuration.webSocketLimits
        )
        configuration.acceptsForeignWebSockets = true
        configuration.polling.bufferBytes = hub.configuration.maximumOutbound
        configuration.allowedOrigins = allowedOrigins
        return SignalREndpoint(
            hub: NotificationHub(hub: hub, backend: backend),
            configuration: configuration,
            makeID: { RandomName.make() }
        )
    }

    private init(hub: SocketHub, backend: any SocketBackend) {
        self.hub = hub
        self.backend = backend
    }

    /// Tells a user's clients apart as well as their requests allow; clients say nothing of who
    /// they were before.
    private static func client(_ headers: HTTPHeaders) -> String {
        let digest = SHA256.hash(data: Array((headers.first(name: "user-agent") ?? "").utf8))
        return digest.prefix(8).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    package func admit(_ caller: SignalRCaller) async throws -> SignalRPermit {
        guard let token = caller.accessToken else {
            SocketMetrics.refused.increment()
            throw TransportRefusal.problem(
                .unauthorized, "a bearer token is required, in the header or as access_token")
        }
        let identity: SocketIdentity
        do {
            identity = try await self.backend.authenticate(token: token)
        } catch let refusal as SocketRefusal {
            SocketMetrics.refused.increment()
            throw TransportRefusal.problem(HTTPResponseStatus(statusCode: refusal.status), refusal.reason)
        }
        let hub = self.hub
        let client = Self.client(caller.head.headers)
        var permit = SignalRPermit(owner: identity.user) { session in
            guard let shard = hub.shard(on: session.eventLoop) else { return nil }
            return SignalRWire(
                session: SocketSession(
                    connection: RandomName.make(),
                    identity: identity,
                    since: nil,
                    client: client,
                    shard: shard
                )
            )
        }
        permit.renew = { application in (application as? SignalRWire)?.renew(identity) }
        return permit
    }
}
