// Carillon · SignalRAdmission.swift
// SPDX-License-Identifier: Apache-2.0

/// What becomes of a record that the server sends on its own.
package enum SignalRAdmission: Sendable, Equatable {
    /// The caller writes the record's bytes now, before any later action's.
    case write
    /// The client is away; the record is written when it is back.
    case held
    /// Nothing changed.
    case refused(Reason)

    package enum Reason: Sendable, Equatable {
        /// Before the handshake or after the end.
        case notOpen
        /// Too much is unacknowledged.
        case resendBufferFull
        /// The client is away, and what is not counted is not kept for it.
        case detached
        /// Too many invocations wait for their results.
        case tooManyClientResults
    }
}
