// Carillon · SocketIdentity+Caller.swift
// SPDX-License-Identifier: Apache-2.0

import Sockets

// What sockets call the parts of identity, which they do not know.

extension SocketIdentity {
    init(_ caller: Caller) {
        self.init(user: caller.user, issuedAt: caller.issuedAt, expiresAt: caller.expiresAt)
    }
}

extension SocketRefusal {
    init(_ fault: TokenFault) {
        self.init(status: fault.status, reason: fault.description)
    }
}

extension PresentedCredentials {
    /// Those of a socket or a stream.
    package init(_ credentials: SocketCredentials) {
        self.init()
        self.authorization = credentials.authorization
        self.token = credentials.token
        self.ticket = credentials.ticket
    }
}
