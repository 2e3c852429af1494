// Carillon · SocketIODisconnectReason.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a namespace was left, in the words that the protocol's servers report.
package enum SocketIODisconnectReason: String, Sendable, CaseIterable {
    case transportError = "transport error"
    case transportClose = "transport close"
    case forcedClose = "forced close"
    case pingTimeout = "ping timeout"
    case parseError = "parse error"
    case serverShuttingDown = "server shutting down"
    case forcedServerClose = "forced server close"
    case clientNamespaceDisconnect = "client namespace disconnect"
    case serverNamespaceDisconnect = "server namespace disconnect"

    /// Whether a client that comes back may be given what it missed.
    package var isRecoverable: Bool {
        switch self {
        case .transportError, .transportClose, .forcedClose, .pingTimeout, .serverShuttingDown, .forcedServerClose: true
        case .parseError, .clientNamespaceDisconnect, .serverNamespaceDisconnect: false
        }
    }

    /// What the end of the session below means for the namespaces.
    package init(_ reason: EngineIOCloseReason) {
        switch reason {
        case .transportClose: self = .transportClose
        case .pingTimeout: self = .pingTimeout
        case .parseError: self = .parseError
        case .forcedClose, .tryAgainLater, .tokenExpired: self = .forcedClose
        case .serverShuttingDown: self = .serverShuttingDown
        case .transportError, .pingFromClient, .overlappingPolls, .overlappingPosts, .invalidContentType,
            .tooMuchWaiting:
            self = .transportError
        }
    }
}
