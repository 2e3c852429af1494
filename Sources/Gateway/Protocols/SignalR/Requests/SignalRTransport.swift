// Carillon · SignalRTransport.swift
// SPDX-License-Identifier: Apache-2.0

/// A way for bytes between client and server, by its name on the wire.
package enum SignalRTransport: String, Sendable, CaseIterable {
    case webSockets = "WebSockets"
    case serverSentEvents = "ServerSentEvents"
    case longPolling = "LongPolling"
}
