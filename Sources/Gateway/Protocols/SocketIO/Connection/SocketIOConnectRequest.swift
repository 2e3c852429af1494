// Carillon · SocketIOConnectRequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A client's wish to join a namespace, for the owner to accept or refuse.
package struct SocketIOConnectRequest: Sendable, Equatable {
    /// Names one wish of one connection, so that a late answer never meets another one.
    package struct Ticket: Sendable, Hashable {
        let number: UInt32
    }

    /// What the client had before it was cut off.
    package struct Recovery: Sendable, Equatable {
        /// The secret that the earlier connection was given.
        package let pid: String
        /// The offset of the last event that it has.
        package let offset: String
    }

    package let ticket: Ticket
    package let namespace: String
    /// What the client sent with it: an object, empty if it sent none.
    package let auth: JSONValue
    /// Nil unless recovery is offered and asked for; credentials are to be checked all the same.
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
