// Carillon · WebSocketApplication.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols

/// What speaks over a WebSocket; confined to its event loop.
package protocol WebSocketApplication: AnyObject {
    /// The socket is up. Called first, and once.
    func webSocketOpened(_ socket: WebSocketHandler)
    func webSocketReceived(text: String)
    func webSocketReceived(binary: [UInt8])
    /// Whether a ping may be answered: clients that send too many are closed by the application.
    ///
    /// Called for a pong that answers no ping of ours too, as it counts the same.
    func webSocketReceivedPing() -> Bool
    /// A pong came that answers a ping of ours, or several.
    func webSocketReceived(pong: [UInt8])
    /// More waits for the client than the limits allow; the application closes the socket in its own words.
    func webSocketIsTooSlow()
    /// A batch of input has been handed over: what it brought about can be flushed.
    func webSocketReadComplete()
    /// The peer broke the protocol; a close frame follows.
    func webSocketFailed(_ code: WebSocketCloseCode, reason: String)
    /// The connection is gone. Called last, and once.
    func webSocketClosed()
    /// The process is about to end; whoever can, closes at leisure.
    func webSocketShouldQuiesce()
}

extension WebSocketApplication {
    package func webSocketFailed(_ code: WebSocketCloseCode, reason: String) {}
    package func webSocketShouldQuiesce() {}
}

/// The bounds of a WebSocket.
package struct WebSocketLimits: Sendable {
    /// Bytes of a client's message: closed with 1009.
    package var maximumMessage: Int
    /// Frames of a client's message: closed with 1008.
    package var maximumFragments: Int
    /// Bytes that wait for a slow reader; beyond, the application is told.
    package var maximumOutbound: Int

    package init(maximumMessage: Int, maximumFragments: Int = 256, maximumOutbound: Int = 1024 * 1024) {
        self.maximumMessage = maximumMessage
        self.maximumFragments = maximumFragments
        self.maximumOutbound = maximumOutbound
    }
}
