// Carillon · SocketWire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore

/// A session's words in its client's dialect, over its client's transport; confined to the session's event loop.
///
/// What is said gathers until ``flush()``.
protocol SocketWire: AnyObject {
    /// Whose frames of a change the wire can share with other sockets.
    var dialect: Dialect { get }

    /// The session is open: presence is registered and the inbox was read.
    func welcome(connection: String, version: Int64)
    /// What brings the client up to date; with the reference of the message that asked for it, if one did.
    func sync(_ snapshot: InboxSnapshot, answering reference: [UInt8]?)
    /// A change of the inbox, or an event.
    func change(_ change: LoopChange)
    /// An answer to a client's message; not given where the client asked for none.
    func answer(_ answer: SocketAnswer, to reference: [UInt8]?)
    /// Whether ``requestProof(_:)`` is ever answered.
    var provesReceipt: Bool { get }
    /// Whether messages to the client are held back and not written yet.
    var hasUnwritten: Bool { get }
    /// Has the transport prove that the client has all that was said so far; ``SocketSession/proven(_:)`` tells it.
    func requestProof(_ sequence: UInt64)
    func flush()
    /// Says why, and ends the connection.
    func close(_ end: SocketEnd)
    /// Ends the connection at once.
    func drop()
    /// The token has expired.
    ///
    /// - Returns: Whether the connection may wait for a request with a fresh one; if not, it is
    ///   closed.
    func awaitsFreshToken() -> Bool
    /// What time alone brings about on the wire: its pings and timeouts. Called once a second.
    func tick(now: NIODeadline)
}

extension SocketWire {
    var provesReceipt: Bool { true }
    var hasUnwritten: Bool { false }

    func awaitsFreshToken() -> Bool { false }
}

/// What a client's message is answered with.
enum SocketAnswer: Equatable {
    case done
    /// Notifications were marked read; the unread count after it.
    case read(unread: Int32)
    case unread(Int32)
    case error(String)
    /// Nothing is wrong with the message, but it cannot be obeyed now.
    case busy(String)
}

/// Why a socket is closed.
enum SocketEnd: Equatable {
    case unauthorized(String)
    /// The token was good and has expired; its client may come back with a fresh one.
    case expired
    case policyViolation(String)
    case unsupportedData(String)
    case tooSlow
    /// The user has opened so many that this one, the oldest, is over.
    case tooManyConnections
    case tryAgainLater
    /// The node ends; the client may come back to another after a while.
    case restart(reconnectAfter: Duration)
}
