// Carillon · TransportEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOHTTP1

/// Answers the requests of some paths on their event loop, without a task for each.
package protocol TransportEndpoint: Sendable {
    /// Whether requests to a path, without its query, belong to this endpoint.
    func claims(_ path: Substring) -> Bool

    /// The most bytes of a request's body; a longer one is answered with 413.
    var maximumBody: Int { get }

    /// Whether pages may send credentials and read the answers even if every page is allowed: for
    /// clients that send credentials by default, on paths where no cookie identifies the caller.
    var allowsCredentials: Bool { get }

    /// Decides about a WebSocket with a valid handshake.
    ///
    /// - Throws: ``TransportRefusal``; any other error is answered with 503.
    func admit(_ head: HTTPRequestHead) async throws -> WebSocketAdmission

    /// The answer to an invalid handshake or a failed admission.
    func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal

    /// Sees a request without a WebSocket once its head has arrived, perhaps before its body;
    /// called on its event loop.
    ///
    /// It may answer, and set ``HTTPExchange/onBody`` and ``HTTPExchange/onAbort``, but must not
    /// begin an answer in pieces.
    func begin(_ exchange: HTTPExchange)

    /// Answers a request without a WebSocket, with its body, unless it was answered already or
    /// ``HTTPExchange/onBody`` is set; called on its event loop.
    func handle(_ exchange: HTTPExchange)
}

extension TransportEndpoint {
    package var maximumBody: Int { 0 }

    package var allowsCredentials: Bool { false }

    package func admit(_ head: HTTPRequestHead) async throws -> WebSocketAdmission {
        throw self.refusal(.badRequest, reason: "this path opens no WebSockets")
    }

    package func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal {
        .problem(status, reason)
    }

    package func begin(_ exchange: HTTPExchange) {}

    package func handle(_ exchange: HTTPExchange) {
        guard exchange.head.method == .GET else { return exchange.respond(.onlyGet("open a WebSocket with GET")) }
        exchange.respond(.problem(.upgradeRequired, "this path is for WebSockets only"))
    }
}

/// An admitted WebSocket.
package struct WebSocketAdmission: Sendable {
    let subprotocol: String?
    let limits: WebSocketLimits
    /// Makes the application's side, on the connection's event loop; nil if the loop cannot serve
    /// it.
    let open: @Sendable (any EventLoop) -> (any WebSocketApplication)?

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

/// A refusal, sent as the answer.
package struct TransportRefusal: Error, Sendable {
    let status: HTTPResponseStatus
    var headers: HTTPHeaders
    let body: [UInt8]

    init(_ status: HTTPResponseStatus, headers: HTTPHeaders, body: [UInt8]) {
        self.status = status
        self.headers = headers
        self.headers.addRetryAfter(status)
        self.body = body
    }
}

extension HTTPHeaders {
    /// Adds `Retry-After` (RFC 9110, section 10.2.3) to the headers of a 429 or a 503.
    mutating func addRetryAfter(_ status: HTTPResponseStatus) {
        guard status == .tooManyRequests || status == .serviceUnavailable else { return }
        self.replaceOrAdd(name: "retry-after", value: "5")
    }
}

extension TransportRefusal {
    /// Makes a problem document (RFC 9457).
    static func problem(_ status: HTTPResponseStatus, _ reason: String) -> TransportRefusal {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("type", "about:blank")
        writer.member("title", status.reasonPhrase)
        writer.member("status", status.code)
        writer.member("detail", reason)
        writer.endObject()
        var headers: HTTPHeaders = ["content-type": "application/problem+json"]
        if status == .unauthorized { headers.add(name: "www-authenticate", value: "Bearer") }
        return TransportRefusal(status, headers: headers, body: writer.bytes)
    }

    /// Returns the answer to another method on a path that serves only GET.
    static func onlyGet(_ reason: String) -> TransportRefusal {
        var refusal = Self.problem(.methodNotAllowed, reason)
        refusal.headers.add(name: "allow", value: "GET")
        return refusal
    }
}
