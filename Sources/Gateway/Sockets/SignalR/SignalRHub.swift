// Carillon · SignalRHub.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOHTTP1
import Protocols

/// Admits the callers of a hub and opens its side of their connections.
package protocol SignalRHub: Sendable {
    /// Decides about the caller of any request, before the answer says anything about connections.
    ///
    /// - Throws: ``TransportRefusal``; any other error is answered with 503.
    func admit(_ caller: SignalRCaller) async throws -> SignalRPermit
}

/// The caller of one request.
package struct SignalRCaller: Sendable {
    /// The bearer token of the header, or else the query's `access_token`.
    let accessToken: String?
    let head: HTTPRequestHead
}

/// An admitted caller.
package struct SignalRPermit: Sendable {
    /// The owner of a connection; requests for it by others are answered as if it did not exist.
    let owner: String
    /// Opens the hub's side of a connection, on the connection's event loop; nil if the loop cannot
    /// serve it.
    let open: @Sendable (SignalRConnection) -> (any SignalRApplication)?
    /// Gives the owner's connection this caller's credential, on the connection's event loop.
    var renew: @Sendable (any SignalRApplication) -> Void = { _ in }

    package init(owner: String, open: @escaping @Sendable (SignalRConnection) -> (any SignalRApplication)?) {
        self.owner = owner
        self.open = open
    }
}

/// The hub's side of one connection; confined to its connection's event loop.
package protocol SignalRApplication: AnyObject {
    /// The handshake is complete. Called once, before any call but ``signalRClosed()``.
    func signalROpened(_ connection: SignalRConnection)
    /// Handles a call and answers it with ``SignalRConnection/complete(_:_:)``, now or later.
    func signalRInvoked(_ call: SignalRCall)
    /// The client sent a message of any kind, part of one, or a ping of its WebSocket; calls follow
    /// with ``signalRInvoked(_:)``.
    func signalRHeard()
    /// The client polled.
    func signalRPolled()
    /// A batch of input was delivered; flush what it produced.
    func signalRReadComplete()
    /// The client has everything sent before ``SignalRConnection/requestProof(_:)`` with this
    /// number.
    func signalRProven(_ sequence: UInt64)
    /// The transport was lost; the client may return to this connection or open another one.
    func signalRLost()
    /// A client that was away is back on this connection.
    func signalRReturned()
    /// The client ends the connection on purpose; ``signalRClosed()`` follows.
    func signalRStopped()
    /// Output exceeds the limit; the application closes the connection.
    func signalRIsTooSlow()
    /// The connection has closed. Called last, and once, even if the handshake never came.
    func signalRClosed()
}

extension SignalRApplication {
    package func signalRHeard() {}
    package func signalRPolled() {}
    package func signalRReadComplete() {}
    package func signalRProven(_ sequence: UInt64) {}
    package func signalRLost() {}
    package func signalRReturned() {}
    package func signalRStopped() {}
}

/// The address and the limits of a hub.
package struct SignalREndpointConfiguration: Sendable {
    /// The hub's path; `/negotiate` follows it.
    var path: String
    var connection: SignalRConfiguration
    /// Its ``WebSocketLimits/maximumOutbound`` also limits the output of the other transports.
    package var webSocket: WebSocketLimits
    package var allowsStatefulReconnect = true
    /// Negotiations and connections of one owner that may wait for their handshake.
    var openingsPerOwner = Int.max
    /// A clock that all nodes share, because another node may have issued an id.
    let wallClock: @Sendable () -> Timestamp
    /// Interval of the timer that serves a loop's connections.
    package var tick: TimeAmount = .seconds(1)

    package init(
        path: String,
        connection: SignalRConfiguration,
        webSocket: WebSocketLimits,
        wallClock: @escaping @Sendable () -> Timestamp
    ) {
        self.path = path
        self.connection = connection
        self.webSocket = webSocket
        self.wallClock = wallClock
    }
}
