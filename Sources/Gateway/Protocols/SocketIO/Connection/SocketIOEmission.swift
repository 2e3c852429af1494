// Carillon · SocketIOEmission.swift
// SPDX-License-Identifier: Apache-2.0

/// How an event is sent.
package enum SocketIOEmission: Sendable, Equatable {
    /// Without more. A recoverable client never gets it again, and takes a text at its end for an offset.
    case plain
    /// With an offset by which a recoverable client says later what it has; left out for others.
    case recoverable(offset: String)
    /// The client shall answer.
    case acknowledged
}
