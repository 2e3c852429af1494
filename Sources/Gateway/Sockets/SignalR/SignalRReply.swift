// Carillon · SignalRReply.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Protocols

/// An HTTP request that waits for its answer, as seen from any event loop.
struct SignalRReply: Sendable {
    private let exchange: LoopReference<HTTPExchange>
    private let headers: HTTPHeaders

    /// Called on the exchange's loop.
    init(_ exchange: HTTPExchange, headers: HTTPHeaders) {
        self.exchange = LoopReference(exchange, eventLoop: exchange.eventLoop)
        self.headers = headers
    }

    func send(_ response: SignalRResponse) {
        let headers = self.headers
        self.exchange.call { Self.send(response, headers, to: $0) }
    }

    static func send(_ response: SignalRResponse, _ common: HTTPHeaders, to exchange: HTTPExchange) {
        var headers = common
        if !response.body.isEmpty { headers.add(name: "content-type", value: response.contentType) }
        headers.add(name: "cache-control", value: SignalRResponse.cacheControl)
        if response.status == 405 { headers.add(name: "allow", value: "GET, POST, DELETE, OPTIONS") }
        exchange.respond(
            HTTPResponseStatus(statusCode: response.status),
            headers: headers,
            body: ByteBuffer(bytes: response.body)
        )
    }
}
