// Carillon · SocketConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics

/// The limits of sockets.
package struct SocketConfiguration: Sendable {
    /// The time for a socket to send a credential; a late one is closed with 4401.
    var authentication: Duration = .seconds(10)
    /// The silence after which a socket is pinged.
    var pingInterval: Duration = .seconds(25)
    /// The time for the pong; without it, the connection is dropped.
    var pingTimeout: Duration = .seconds(20)
    /// The most bytes of a client's message; a longer one closes the socket with 1009.
    var maximumMessage = 64 * 1024
    /// The most bytes that may wait for a slow reader; more close the socket with 4408.
    var maximumOutbound = 1024 * 1024
    /// The most messages that a client may send in a burst and per second; more close the socket
    /// with 1008.
    ///
    /// The burst leaves room for one message about each notification of a sync.
    var messageBurst = 120
    var messagesPerSecond = 20
    /// The messages between checks of the user's rate over all sockets; above that rate, the socket
    /// is closed with 1008.
    var messagesPerReport = 16
    /// The most sockets and streams of one user on this node; one more closes the oldest with 4409.
    package var connectionsPerUser = 32
    /// The most sockets that may wait for presence and inbox; further ones are closed with 1013.
    var waitingOpenings = 50_000
    /// The most changes that may wait for an event loop; above it, its sockets catch up from their
    /// inboxes.
    ///
    /// The same number of events for everyone may wait; further ones are dropped.
    var changesPerLoop = 50_000
    /// The most deliveries (events for everyone times sockets) that may wait for an event loop;
    /// further events are dropped.
    var eventDeliveries = 15_000_000
    /// The time that a change may wait for an earlier one before the socket catches up.
    var holdTime: Duration = .milliseconds(200)
    /// Whether Socket.IO clients may recover missed events after a lost connection (connection
    /// state recovery).
    package var recovery = false
    /// The interval of the check that presence lists every socket and no ended connection.
    var audit: Duration = .seconds(300)
    /// The time over which a shutdown spreads the closing of sockets.
    var drain: Duration = .seconds(5)

    package init() {}
}

/// Socket metrics, each created once.
enum SocketMetrics {
    static let open = Meter(label: "carillon.sockets.open")
    static let accepted = Counter(label: "carillon.sockets.accepted")
    /// Upgrades refused because no credential was valid.
    static let refused = Counter(label: "carillon.sockets.refused")
    /// Sockets closed because their client read too slowly.
    static let slowReaders = Counter(label: "carillon.sockets.slow")
    /// Sockets closed because their user opened too many newer ones.
    static let crowded = Counter(label: "carillon.sockets.crowded")
    /// Confirmed receipts.
    static let proofs = Counter(label: "carillon.sockets.proofs")
    /// Proofs, requests or departures dropped because their queue was full.
    static let overflows = Counter(label: "carillon.sockets.overflows")
    /// Changes dropped because too many waited on their socket, which reads them from the inbox
    /// instead; and events that cannot be sent to Socket.IO clients, which are lost.
    static let dropped = Counter(label: "carillon.sockets.dropped")
    /// Changes dropped because they lack the shape that the socket needs and are in no inbox.
    static let incomplete = Counter(label: "carillon.sockets.incomplete")
    /// Notifications sent without a proof of receipt because too many proofs were pending; push
    /// goes out instead.
    static let unproven = Counter(label: "carillon.sockets.unproven")
    /// Changes withheld from a loop that was too far behind, or received after the lease lapsed.
    ///
    /// Sockets get them from their inboxes. Also counts events for everyone beyond the limit, which
    /// are lost.
    static let shed = Counter(label: "carillon.sockets.shed")
    /// Frames received over pub/sub.
    static let frames = Counter(label: "carillon.sockets.frames")
    /// Stale presence entries that were removed.
    static let ghosts = Counter(label: "carillon.sockets.ghosts")
    /// Last visits that were not recorded.
    static let unseen = Counter(label: "carillon.presence.unseen")
    /// Sockets that caught up from the inbox.
    static let filled = Counter(label: "carillon.sockets.filled")
}
