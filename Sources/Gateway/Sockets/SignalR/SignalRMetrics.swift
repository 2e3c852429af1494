// Carillon · SignalRMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics

/// The metrics of hubs, each made once.
enum SignalRMetrics {
    /// Negotiations and connections that found the node full, or their id taken meanwhile.
    static let refused = Counter(label: "carillon.signalr.refused")
    /// Connections that went on over another WebSocket.
    static let returned = Counter(label: "carillon.signalr.returned")
    /// Offers that nobody took up in time.
    static let unused = Counter(label: "carillon.signalr.unused")
    /// Times that a WebSocket was not read for a while, as too many calls of its client waited.
    static let paused = Counter(label: "carillon.signalr.paused")
}
