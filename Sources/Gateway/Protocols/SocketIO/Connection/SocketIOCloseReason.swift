// Carillon · SocketIOCloseReason.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a connection wants the session below closed.
package enum SocketIOCloseReason: Sendable, Equatable {
    case fault(SocketIOFault)
    /// No namespace was joined in time.
    case connectTimeout
    /// The owner's wish.
    case forced
    case serverShuttingDown
    /// The client cannot be served now; it may come back at once.
    case tryAgainLater
    /// The client's credential has expired; it may come back at once with a fresh one.
    case tokenExpired

    /// The reason to close the session with.
    package var session: EngineIOCloseReason {
        switch self {
        case .fault: .parseError
        case .connectTimeout, .forced: .forcedClose
        case .serverShuttingDown: .serverShuttingDown
        case .tryAgainLater: .tryAgainLater
        case .tokenExpired: .tokenExpired
        }
    }

    /// The reason to report for each joined namespace.
    var namespace: SocketIODisconnectReason {
        switch self {
        case .fault: .parseError
        case .connectTimeout, .forced, .tryAgainLater, .tokenExpired: .forcedServerClose
        case .serverShuttingDown: .serverShuttingDown
        }
    }
}
