// Carillon · SocketIOEmissionResult.swift
// SPDX-License-Identifier: Apache-2.0

/// What became of an event.
package enum SocketIOEmissionResult: Sendable, Equatable {
    case sent
    /// The answer will come as ``SocketIOAction/acknowledged(namespace:_:_:)`` with this id, or never.
    case awaiting(UInt64)
    /// The namespace is not joined; nothing was sent.
    case notJoined
    /// ``SocketIOConfiguration/maximumAwaitedAcknowledgements`` is reached; nothing was sent.
    case tooManyAwaited
}
