// Carillon · SocketIOMembership.swift
// SPDX-License-Identifier: Apache-2.0

/// What a connection knows of one namespace.
struct SocketIOMembership: Sendable {
    let ticket: SocketIOConnectRequest.Ticket
    /// Before, the owner's decision is awaited.
    var isJoined = false
    var isRecoverable = false
    /// The server's own count; the client's is another.
    var nextAcknowledgement: UInt64 = 0
    /// The ids that the client has not answered yet, ascending.
    var awaited: [UInt64] = []

    /// Takes an id off the awaited ones; false if it is not among them.
    mutating func settle(_ id: UInt64) -> Bool {
        guard let index = self.awaited.firstIndex(of: id) else { return false }
        self.awaited.remove(at: index)
        // An idle connection keeps no storage.
        if self.awaited.isEmpty { self.awaited = [] }
        return true
    }
}
