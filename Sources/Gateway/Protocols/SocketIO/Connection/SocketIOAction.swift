// Carillon · SocketIOAction.swift
// SPDX-License-Identifier: Apache-2.0

/// What a connection wants done, in the order of the list that it adds to.
package enum SocketIOAction: Sendable, Equatable {
    /// Send these messages together, nothing between them.
    case send([EngineIOMessage])
    /// Decide by ``SocketIOConnection/accept(_:sid:recovery:into:)`` or ``SocketIOConnection/refuse(_:message:data:into:)``.
    case connectRequested(SocketIOConnectRequest)
    /// The wish is off; an answer to it does nothing.
    case connectWithdrawn(SocketIOConnectRequest.Ticket)
    /// An event of the client; with an acknowledgement id the client waits for
    /// ``SocketIOConnection/acknowledge(_:with:in:into:)``.
    case event(namespace: String, SocketIOEventName, [SocketIOValue], acknowledgement: UInt64?)
    /// The client's answer to an event of ours.
    case acknowledged(namespace: String, UInt64, [SocketIOValue])
    case left(namespace: String, SocketIODisconnectReason)
    /// Close the session below; nothing follows.
    case close(SocketIOCloseReason)
}
