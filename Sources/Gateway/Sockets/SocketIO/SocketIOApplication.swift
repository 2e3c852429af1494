// Carillon · SocketIOApplication.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols

/// What speaks over a connection of Socket.IO; confined to the connection's event loop.
package protocol SocketIOApplication: AnyObject {
    /// The connection is up, no namespace joined. Called first, and once.
    func socketIOOpened(_ peer: SocketIOPeer)
    /// Decide by ``SocketIOPeer/accept(_:sid:recovery:)`` or ``SocketIOPeer/refuse(_:message:data:)``, now or later.
    func socketIOConnectRequested(_ request: SocketIOConnectRequest)
    func socketIOConnectWithdrawn(_ ticket: SocketIOConnectRequest.Ticket)
    /// With an acknowledgement id the client waits for ``SocketIOPeer/acknowledge(_:with:in:)``.
    func socketIOReceived(
        _ name: SocketIOEventName, _ arguments: [SocketIOValue], in namespace: String, acknowledgement: UInt64?)
    /// The client's answer to an event that was emitted as ``SocketIOEmission/acknowledged``; once for each id, or never.
    func socketIOAcknowledged(_ id: UInt64, with arguments: [SocketIOValue], in namespace: String)
    func socketIOLeft(_ namespace: String, _ reason: SocketIODisconnectReason)
    func socketIOReadComplete()
    func socketIOProven(_ sequence: UInt64)
    /// The client sent something, whatever it is: whether it may be taken. Whoever gets too much closes the connection.
    func socketIOHeard() -> Bool
    func socketIOIsTooSlow()
    func socketIOShouldQuiesce()
    /// The connection is over. Called last, and once.
    func socketIOClosed(_ reason: EngineIOCloseReason)
}

extension SocketIOApplication {
    package func socketIOConnectWithdrawn(_ ticket: SocketIOConnectRequest.Ticket) {}
    package func socketIOAcknowledged(_ id: UInt64, with arguments: [SocketIOValue], in namespace: String) {}
    package func socketIOLeft(_ namespace: String, _ reason: SocketIODisconnectReason) {}
    package func socketIOReadComplete() {}
    package func socketIOProven(_ sequence: UInt64) {}
    package func socketIOHeard() -> Bool { true }
    package func socketIOShouldQuiesce() {}
    package func socketIOClosed(_ reason: EngineIOCloseReason) {}
}
