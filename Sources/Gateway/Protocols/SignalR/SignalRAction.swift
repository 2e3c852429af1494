// Carillon · SignalRAction.swift
// SPDX-License-Identifier: Apache-2.0

/// An action for the owner to carry out, in list order.
package enum SignalRAction: Sendable, Equatable {
    /// Write whole records to the attached transport.
    case write([UInt8])
    /// The handshake is complete: the connection accepts messages from now on.
    case opened(version: Int)
    /// Run the call, then call ``SignalRStateMachine/complete(_:_:now:)``, even if the client wants
    /// no answer.
    case invoke(SignalRCall)
    /// The connection has ended: close the transport after the written records. No action follows.
    case end(SignalREnd)
}

/// The reason why a connection ended.
package enum SignalREnd: Sendable, Equatable {
    /// The client closed it.
    case client
    /// The server closed it with ``SignalRStateMachine/close(error:allowReconnect:now:)``.
    case server
    case handshakeRefused(String)
    case handshakeTimeout
    /// The client broke a rule or exceeded a limit.
    case fault(SignalRFault)
    /// The client was silent for too long.
    case clientTimeout
    /// The client left too much unacknowledged.
    case tooSlow
    case transportLost
    /// The client did not reconnect in time.
    case detachedTooLong
}

/// The decision about a record that the server sends unprompted.
package enum SignalRAdmission: Sendable, Equatable {
    /// Write the record's bytes now, before the bytes of any later action.
    case write
    /// The client is disconnected; the record is written when it reconnects.
    case held
    /// Rejected without effect.
    case refused(Reason)

    /// Why a record is rejected.
    package enum Reason: Sendable, Equatable {
        /// The handshake is incomplete, or the connection has ended.
        case notOpen
        /// Too many bytes are unacknowledged.
        case resendBufferFull
        /// The client is disconnected, and uncounted records are not kept for it.
        case detached
    }
}
