// Carillon · SignalREnd.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a connection is over.
package enum SignalREnd: Sendable, Equatable {
    /// The client said so.
    case client
    /// ``SignalRConnection/close(error:allowReconnect:now:)``.
    case server
    case handshakeRefused(String)
    case handshakeTimeout
    /// The client broke a rule, or a limit was reached.
    case fault(SignalRFault)
    /// Nothing was heard for too long.
    case clientTimeout
    case transportLost
    /// The client did not come back in time.
    case detachedTooLong
}
