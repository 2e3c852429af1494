// Carillon · EngineIOAction.swift
// SPDX-License-Identifier: Apache-2.0

/// An action for the owner to carry out, in list order.
package enum EngineIOAction: Sendable, Equatable {
    /// Answer a request; each is answered exactly once unless it was aborted.
    case respond(EngineIOCarrier, EngineIOResponse)
    /// Send a text frame with exactly these bytes.
    case sendText(EngineIOCarrier, [UInt8])
    case sendBinary(EngineIOCarrier, [UInt8])
    /// Close a WebSocket with this code; nothing more is sent on it.
    case closeWebSocket(EngineIOCarrier, WebSocketCloseCode)
    /// The session moved to this WebSocket; messages held for a poll follow.
    case upgraded(EngineIOCarrier)
    /// A message for the layer above.
    case deliver(EngineIOMessage)
    /// The session ended; always the last action.
    case closed(EngineIOCloseReason)
}

/// An HTTP exchange or a WebSocket, identified by a number that its owner never reuses.
package struct EngineIOCarrier: Sendable, Hashable {
    let number: UInt64

    package init(_ number: UInt64) {
        self.number = number
    }
}

/// The reason why a session ended.
package enum EngineIOCloseReason: String, Sendable {
    /// The client closed it, or closed its WebSocket.
    case transportClose
    /// The WebSocket failed, or a waiting poll or a post was aborted.
    case transportError
    case pingTimeout
    /// Input that is not a packet, or that the layer above could not decode.
    case parseError
    /// A ping from the client, although only the server may ping.
    case pingFromClient
    case overlappingPolls
    case overlappingPosts
    /// A post of `application/octet-stream`.
    case invalidContentType
    /// More messages waited for a poll than ``EngineIOConfiguration/maximumWaiting`` allows.
    case tooMuchWaiting
    /// The owner closed it.
    case forcedClose
    case serverShuttingDown
    /// The owner cannot serve the client now; it may reconnect at once.
    case tryAgainLater
    /// The client's token has expired; it may reconnect at once with a new one.
    case tokenExpired

    /// Whether clients should reconnect on their own.
    var shouldReconnect: Bool { self == .serverShuttingDown || self == .tryAgainLater || self == .tokenExpired }

    /// The close code of the session's WebSocket.
    var webSocketCode: WebSocketCloseCode {
        switch self {
        case .transportClose, .forcedClose: .normal
        case .parseError, .pingFromClient: .protocolError
        case .serverShuttingDown: .serviceRestart
        case .tryAgainLater: .tryAgainLater
        case .tokenExpired: .unauthorized
        case .tooMuchWaiting, .pingTimeout: .tooSlow
        case .transportError, .overlappingPolls, .overlappingPosts, .invalidContentType: .internalError
        }
    }
}
