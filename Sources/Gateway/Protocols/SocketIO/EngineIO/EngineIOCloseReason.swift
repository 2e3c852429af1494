// Carillon · EngineIOCloseReason.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a session ended.
package enum EngineIOCloseReason: String, Sendable, CaseIterable {
    /// The client said so, or its WebSocket closed.
    case transportClose
    /// The WebSocket failed, or a waiting poll or a post was aborted.
    case transportError
    case pingTimeout
    /// Something that is no packet, or that the layer above could not read.
    case parseError
    /// A ping from the client; only the server pings.
    case pingFromClient
    case overlappingPolls
    case overlappingPosts
    /// A post of `application/octet-stream`.
    case invalidContentType
    /// More waited for a poll than ``EngineIOConfiguration/maximumWaiting``.
    case tooMuchWaiting
    /// The owner closed it.
    case forcedClose
    case serverShuttingDown
    /// The owner cannot serve the client now; it may come back at once.
    case tryAgainLater
    /// The credential of the client has expired; it may come back at once with a fresh one.
    case tokenExpired

    /// Whether clients are to come back by themselves.
    var isToComeBack: Bool { self == .serverShuttingDown || self == .tryAgainLater || self == .tokenExpired }

    /// The code with which the session's WebSocket is closed.
    package var webSocketCode: UInt16 {
        switch self {
        case .transportClose, .forcedClose: 1000
        case .parseError, .pingFromClient: 1002
        case .serverShuttingDown: 1012
        case .tooMuchWaiting, .tryAgainLater: 1013
        case .tokenExpired: 4401
        case .pingTimeout: 4408
        case .transportError, .overlappingPolls, .overlappingPosts, .invalidContentType: 1011
        }
    }
}
