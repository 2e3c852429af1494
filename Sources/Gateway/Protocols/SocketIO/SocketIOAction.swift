// Carillon · SocketIOAction.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// An action for the owner to carry out, in list order.
package enum SocketIOAction: Sendable, Equatable {
    /// Send these packets together, with nothing in between.
    case send([[UInt8]])
    /// Decide with ``SocketIOStateMachine/accept(_:sid:recovery:into:)`` or
    /// ``SocketIOStateMachine/refuse(_:message:data:into:)``.
    case connectRequested(SocketIOConnectRequest)
    /// The request was withdrawn; deciding it has no effect.
    case connectWithdrawn(SocketIOConnectRequest.Ticket)
    /// An event from the client; with an acknowledgement id the client awaits
    /// ``SocketIOStateMachine/acknowledge(_:with:into:)``.
    case event(String, [JSONValue], acknowledgement: UInt64?)
    case left
    /// Close the underlying session; no action follows.
    case close(EngineIOCloseReason)
}

/// A client's request to join, for the owner to accept or refuse.
package struct SocketIOConnectRequest: Sendable, Equatable {
    /// Identifies one request of one connection, so that a late decision cannot hit another.
    package struct Ticket: Sendable, Hashable {
        let number: UInt32
    }

    /// The client's state before it lost its connection.
    package struct Recovery: Sendable, Equatable {
        /// The secret from the earlier connection.
        package let pid: String
        /// The offset of the last event that the client has.
        package let offset: String
    }

    package let ticket: Ticket
    /// The payload of the request; an empty object if it had none.
    package let auth: JSONValue
    /// Nil unless recovery is offered and requested; credentials must be checked in any case.
    package let recovery: Recovery?

    init(ticket: Ticket, payload: JSONValue?, offersRecovery: Bool) {
        self.ticket = ticket
        self.auth = payload ?? .object([])
        if offersRecovery, let pid = payload?["pid"]?.string, let offset = payload?["offset"]?.string {
            self.recovery = Recovery(pid: pid, offset: offset)
        } else {
            self.recovery = nil
        }
    }
}

/// The data that makes a client recoverable.
package struct SocketIORecoveryGrant: Sendable, Equatable {
    /// The secret for the next recovery: the old one after a recovery, else a new one.
    let pid: String
    /// The packets of the missed events in order, each with its offset as the last argument.
    let missed: [[UInt8]]

    package init(pid: String, missed: [[UInt8]] = []) {
        self.pid = pid
        self.missed = missed
    }
}
