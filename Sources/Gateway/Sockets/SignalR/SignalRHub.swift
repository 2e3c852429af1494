// Carillon · SignalRHub.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1

/// A hub's door: who may come in, and what speaks with whom.
package protocol SignalRHub: Sendable {
    /// Decides about the caller of any request, before anything is said about connections.
    ///
    /// - Throws: ``TransportRefusal``; any other error is answered with 503.
    func admit(_ caller: SignalRCaller) async throws -> SignalRPermit
}

/// Who asks, in the words of one request.
package struct SignalRCaller: Sendable {
    /// The bearer token of the header, or else the query's `access_token`.
    package let accessToken: String?
    package let head: HTTPRequestHead
    package let address: SocketAddress?
}

/// A caller who is let in.
package struct SignalRPermit: Sendable {
    /// Whom a connection belongs to: requests for it by others are answered as if it were not there.
    package let owner: String
    /// Makes what speaks with a connection, on the connection's event loop; nil if the loop cannot serve it.
    package let open: @Sendable (SignalRSession) -> (any SignalRApplication)?
    /// Has what speaks with a connection of the owner's go on by this caller's credential, on the connection's event loop.
    package var renew: @Sendable (any SignalRApplication) -> Void = { _ in }

    package init(owner: String, open: @escaping @Sendable (SignalRSession) -> (any SignalRApplication)?) {
        self.owner = owner
        self.open = open
    }
}
