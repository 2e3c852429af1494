// Carillon · SocketIORecoveryGrant.swift
// SPDX-License-Identifier: Apache-2.0

/// What makes a joined namespace recoverable.
package struct SocketIORecoveryGrant: Sendable, Equatable {
    /// The secret by which the client may come back: the old one if it was recovered, else a new one.
    package let pid: String
    /// What the client missed, in order; sent before the reply to its CONNECT.
    package let missed: [SocketIOMissedEvent]

    package init(pid: String, missed: [SocketIOMissedEvent] = []) {
        self.pid = pid
        self.missed = missed
    }
}
