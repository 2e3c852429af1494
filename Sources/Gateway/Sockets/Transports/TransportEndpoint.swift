// Carillon · TransportEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1

/// What answers the requests of some paths itself, on their event loop and without a task for each.
package protocol TransportEndpoint: Sendable {
    /// Whether requests to a path, without its query, are this endpoint's.
    func claims(_ path: Substring) -> Bool

    /// Bytes of a request's body; more is answered with 413.
    var maximumBody: Int { get }

    /// Whether pages may send credentials and read the answers also where every page is allowed: for clients that send them unless
    /// told otherwise, on paths where no cookie says who calls.
    var allowsCredentials: Bool { get }

    /// Decides about a WebSocket whose handshake is in order.
    ///
    /// - Throws: ``TransportRefusal``; any other error is answered with 503.
    func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission

    /// The answer to a handshake that is not in order, or to an admission that failed.
    func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal

    /// Sees a request that asks for no WebSocket as soon as its head is there, its body perhaps not; called on its event
    /// loop.
    ///
    /// It may answer, and set ``HTTPExchange/onBody`` and ``HTTPExchange/onAbort``, but begin no answer in pieces.
    func begin(_ exchange: HTTPExchange)

    /// Answers a request that asks for no WebSocket, with its body; called on its event loop, unless it is answered already
    /// or ``HTTPExchange/onBody`` is set.
    func handle(_ exchange: HTTPExchange)
}

extension TransportEndpoint {
    package var maximumBody: Int { 0 }

    package var allowsCredentials: Bool { false }

    package func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal {
        .problem(status, reason)
    }

    package func begin(_ exchange: HTTPExchange) {}

    package func handle(_ exchange: HTTPExchange) {
        exchange.respond(.problem(.upgradeRequired, "this path is for WebSockets only"))
    }
}

/// A WebSocket that is let in.
package struct WebSocketAdmission: Sendable {
    package let subprotocol: String?
    package let limits: WebSocketLimits
    /// Makes what speaks over it, on the connection's event loop; nil if the loop cannot serve it.
    package let open: @Sendable (any EventLoop) -> (any WebSocketApplication)?

    package init(
        subprotocol: String? = nil,
        limits: WebSocketLimits,
        open: @escaping @Sendable (any EventLoop) -> (any WebSocketApplication)?
    ) {
        self.subprotocol = subprotocol
        self.limits = limits
        self.open = open
    }
}

/// An answer instead of what was asked for.
package struct TransportRefusal: Error, Sendable {
    package let status: HTTPResponseStatus
    package var headers: HTTPHeaders
    package let body: [UInt8]

    package init(_ status: HTTPResponseStatus, headers: HTTPHeaders, body: [UInt8]) {
        self.status = status
        self.headers = headers
        self.body = body
    }
}
