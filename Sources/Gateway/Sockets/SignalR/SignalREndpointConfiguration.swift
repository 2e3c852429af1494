// Carillon · SignalREndpointConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// How a hub is reached, and its bounds.
package struct SignalREndpointConfiguration: Sendable {
    /// The hub's path; `/negotiate` follows it.
    package var path: String
    package var connection: SignalRConfiguration
    package var polling = SignalRPollingState.Limits()
    package var webSocket: WebSocketLimits
    /// The transports on offer, the preferred first.
    package var transports: [SignalRTransport] = [.webSockets, .serverSentEvents, .longPolling]
    package var allowsStatefulReconnect = true
    /// Whether a WebSocket whose id names nothing here begins a connection: another node may have handed the id out.
    package var acceptsForeignWebSockets = false
    /// The origins of pages whose browsers may call; `*` stands for all.
    package var allowedOrigins: Set<String> = []
    /// Connections and offers that may be there at once; more are answered with 503.
    package var maximumConnections = 1_000_000
    /// Over Server-Sent Events and long polling, how long no request may come after the handshake
    /// until the server's first messages are written.
    package var openingQuiet: TimeAmount = .milliseconds(200)
    /// How often time is looked at.
    package var tick: TimeAmount = .seconds(1)

    package init(path: String, connection: SignalRConfiguration, webSocket: WebSocketLimits) {
        self.path = path
        self.connection = connection
        self.webSocket = webSocket
    }
}
