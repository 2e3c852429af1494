// Carillon · SocketMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics

/// The metrics of sockets, each made once.
enum SocketMetrics {
    /// Sockets that are open.
    static let open = Meter(label: "carillon.sockets.open")
    static let accepted = Counter(label: "carillon.sockets.accepted")
    /// Upgrades that were refused for want of a credential.
    static let refused = Counter(label: "carillon.sockets.refused")
    /// Sockets closed because their reader was too slow.
    static let slowReaders = Counter(label: "carillon.sockets.slow")
    /// Sockets closed because their user has too many newer ones.
    static let crowded = Counter(label: "carillon.sockets.crowded")
    /// Proofs of receipt.
    static let proofs = Counter(label: "carillon.sockets.proofs")
    /// Proofs, requests or departures that found their queue full.
    static let overflows = Counter(label: "carillon.sockets.overflows")
    /// Changes that found too many waiting at their socket; they are read from the inbox instead.
    static let dropped = Counter(label: "carillon.sockets.dropped")
    /// Changes that are in no inbox and came without the shape that a socket needs.
    static let incomplete = Counter(label: "carillon.sockets.incomplete")
    /// Notifications of whose receipt no proof was asked, as too many waited for theirs; push goes out instead.
    static let unproven = Counter(label: "carillon.sockets.unproven")
    /// Changes that were kept from a loop that is too far behind, or came when the lease had
    /// lapsed; sockets get them from their inboxes.
    static let shed = Counter(label: "carillon.sockets.shed")
    /// Frames that came over pub/sub.
    static let frames = Counter(label: "carillon.sockets.frames")
    /// Presences that stayed behind and were removed.
    static let ghosts = Counter(label: "carillon.sockets.ghosts")
    /// Sockets whose hole was filled from the inbox.
    static let filled = Counter(label: "carillon.sockets.filled")
}
