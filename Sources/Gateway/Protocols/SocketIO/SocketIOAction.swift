// Carillon · SocketIOAction.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// An action for the owner to carry out, in list order.
package enum SocketIOAction: Sendable, Equatable {
    /// Send these messages together, with nothing in between.
    case send([EngineIOMessage])
    /// Decide with ``SocketIOStateMachine/accept(_:sid:recovery:into:)`` or
    /// ``SocketIOStateMachine/refuse(_:message:data:into:)``.
    case connectRequested(SocketIOConnectRequest)
    /// The request was withdrawn; deciding it has no effect.
    case connectWithdrawn(SocketIOConnectRequest.Ticket)
    /// An event from the client; with an acknowledgement id the client awaits
    /// ``SocketIOStateMachine/acknowledge(_:with:in:into:)``.
    case event(namespace: String, SocketIOEventName, [SocketIOValue], acknowledgement: UInt64?)
    case left(namespace: String)
    /// Close the underlying session; no action follows.
    case close(EngineIOCloseReason)
}

/// A client's request to join a namespace, for the owner to accept or refuse.
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
    package let namespace: String
    /// The payload of the request; an empty object if it had none.
    package let auth: JSONValue
    /// Nil unless recovery is offered and requested; credentials must be checked in any case.
    package let recovery: Recovery?

    init(ticket: Ticket, namespace: String, payload: JSONValue?, offersRecovery: Bool) {
        self.ticket = ticket
        self.namespace = namespace
        self.auth = payload ?? .object([])
        if offersRecovery, let pid = payload?["pid"]?.string, let offset = payload?["offset"]?.string {
            self.recovery = Recovery(pid: pid, offset: offset)
        } else {
            self.recovery = nil
        }
    }
}

/// The data that makes a joined namespace recoverable.
package struct SocketIORecoveryGrant: Sendable, Equatable {
    /// The secret for the next recovery: the old one after a recovery, else a new one.
    let pid: String
    /// The missed events in order, sent before the reply to the client's CONNECT.
    let missed: [SocketIOMissedEvent]

    package init(pid: String, missed: [SocketIOMissedEvent] = []) {
        self.pid = pid
        self.missed = missed
    }
}

/// An event that a client missed, with its offset.
package struct SocketIOMissedEvent: Sendable, Equatable {
    let name: SocketIOEventName
    let arguments: [SocketIOValue]
    package let offset: String

    package init(_ name: SocketIOEventName, _ arguments: [SocketIOValue], offset: String) {
        self.name = name
        self.arguments = arguments
        self.offset = offset
    }
}
