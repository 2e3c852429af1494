// Carillon · SocketConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

/// The bounds of sockets, and what happens there.
package struct SocketConfiguration: Sendable {
    /// How long a socket without a credential may wait before its first message: closed with 4401.
    package var authentication: Duration = .seconds(10)
    /// How long a socket may be silent before it is pinged.
    package var pingInterval: Duration = .seconds(25)
    /// How long the pong may take: the connection is dropped.
    package var pingTimeout: Duration = .seconds(20)
    /// Bytes of a client's message: closed with 1009.
    package var maximumMessage = 64 * 1024
    /// Bytes that wait for a slow reader: closed with 4408.
    package var maximumOutbound = 1024 * 1024
    /// Messages a client may send in a burst, and how many more a second: closed with 1008.
    package var messageBurst = 60
    package var messagesPerSecond = 20
    /// After how many messages the user's rate over all of its sockets is asked: beyond it, closed with 1008.
    package var messagesPerReport = 16
    /// Sockets and streams of one user on this node: beyond, the oldest is closed with 4409.
    package var connectionsPerUser = 32
    /// Sockets that may wait for their presence and their inbox: beyond, closed with 1013.
    package var waitingOpenings = 50_000
    /// Changes that may wait for an event loop: beyond, its sockets get what they miss from their inboxes.
    package var changesPerLoop = 50_000
    /// How long a change may wait for the one before it until the hole is filled from the inbox.
    package var holdTime: Duration = .milliseconds(200)
    /// Whether clients of Socket.IO that lost their connection are given what they missed (connection state recovery).
    package var recovery = false
    /// How often it is looked whether presence names every socket.
    package var audit: Duration = .seconds(300)
    /// Over how long the closing of all sockets is spread on shutdown.
    package var drain: Duration = .seconds(5)

    package init() {}
}
