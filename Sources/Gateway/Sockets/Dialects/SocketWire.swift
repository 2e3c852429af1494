// Carillon · SocketWire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import NIOCore
import NIOHTTP1

/// Writes a session's messages in its client's dialect over its transport; confined to the
/// session's event loop.
///
/// Messages gather until ``flush()``.
protocol SocketWire: AnyObject {
    /// Decides which encoded changes the wire shares with other sockets.
    var dialect: Dialect { get }

    /// Tells the client that the session is open: presence is registered and the inbox was read.
    func welcome(connection: String, version: Int64)
    /// Brings the client up to date; `reference` is that of the client's message, if it asked.
    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?)
    /// Sends a change of the inbox or an event.
    func change(_ change: LoopChange)
    /// Answers a client's message, if the client asked for an answer.
    func answer(_ answer: SocketAnswer, to reference: [UInt8]?)
    /// Whether the client ever answers ``requestProof(_:)``.
    var provesReceipt: Bool { get }
    /// Whether messages to the client are held back and not yet written.
    var hasUnwritten: Bool { get }
    /// Whether the connection waits for a client that may be gone.
    var isAway: Bool { get }
    /// Asks the client to prove that it has everything sent so far; ``SocketSession/proven(_:)``
    /// takes the proof.
    func requestProof(_ sequence: UInt64)
    func flush()
    /// Tells the client why and ends the connection.
    func close(_ end: SocketEnd)
    /// Ends the connection at once.
    func drop()
    /// Handles an expired token.
    ///
    /// - Returns: whether the connection may wait for a request with a fresh token; otherwise it is
    ///   closed.
    func awaitsFreshToken() -> Bool
    /// Handles pings and timeouts of the wire. Called once a second.
    func tick(now: NIODeadline)
}

extension SocketWire {
    var provesReceipt: Bool { true }
    var hasUnwritten: Bool { false }
    var isAway: Bool { false }

    func awaitsFreshToken() -> Bool { false }
}

/// The answer to a client's message.
enum SocketAnswer: Equatable {
    case done
    /// Notifications were marked read; carries the unread count after it.
    case read(unread: Int32)
    case unread(Int32)
    case error(String)
    /// The message is valid but cannot be handled now.
    case busy(String)
}

/// The reason why a socket is closed.
enum SocketEnd: Equatable {
    case unauthorized(String)
    /// The token has expired; the client may return with a fresh one.
    case expired
    case policyViolation(String)
    case tooSlow
    /// The user opened too many sockets, and this is one of the oldest.
    case tooManyConnections
    case tryAgainLater
    /// The node shuts down; the client may connect to another after a delay.
    case restart(reconnectAfter: Duration)
}

/// A client's message in any dialect.
enum ClientMessage: Equatable {
    case auth(token: String)
    case resume(version: Int64)
    /// Requests the newest unread notifications, whatever the client has.
    case resync
    /// Nil means all; `isBulk` if the client sent a list.
    case read(ids: [NotificationID]?, isBulk: Bool = false)
    case unread
    case acknowledge(ids: [NotificationID])
    case focus(isActive: Bool)
}

/// A client's message that was not understood.
struct ClientFault: Error, Equatable {
    let reason: String
    /// Returned with the answer, in JSON.
    let reference: [UInt8]?
}

extension SocketRefusal {
    /// Counts the refusal of a request, and returns its answer.
    func counted() -> TransportRefusal {
        SocketMetrics.refused.increment()
        return .problem(HTTPResponseStatus(statusCode: self.status), self.reason)
    }
}
