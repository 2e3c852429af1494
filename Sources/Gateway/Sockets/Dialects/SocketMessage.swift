// Carillon · SocketMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a client says, whatever its dialect.
enum ClientMessage: Equatable {
    case auth(token: String)
    case resume(version: Int64)
    /// The newest unread afresh, whatever the client has.
    case resync
    /// Nil means all; `isBulk` if the client named them as a list.
    case read(ids: [NotificationID]?, isBulk: Bool = false)
    case unread
    case acknowledge(ids: [NotificationID])
    case focus(isActive: Bool)
}

/// Why a client's message was not understood.
struct ClientFault: Error, Equatable {
    let reason: String
    /// The reference that the answer repeats, in JSON.
    let reference: [UInt8]?
}
