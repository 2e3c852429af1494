// Carillon · EngineIOExchange.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Protocols

/// A request of polling, as the session sees it from its own event loop.
struct EngineIOExchange: Sendable {
    let carrier: EngineIOCarrier
    private let exchange: LoopReference<HTTPExchange>
    private let headers: HTTPHeaders

    /// Called on the exchange's loop.
    init(_ exchange: HTTPExchange, carrier: EngineIOCarrier, headers: HTTPHeaders) {
        self.carrier = carrier
        self.exchange = LoopReference(exchange, eventLoop: exchange.eventLoop)
        self.headers = headers
    }

    func respond(_ response: EngineIOResponse) {
        let headers = self.headers
        self.exchange.call { exchange in
            var headers = headers
            headers.add(name: "cache-control", value: "no-store")
            if let type = response.contentType { headers.add(name: "content-type", value: type.rawValue) }
            exchange.respond(
                HTTPResponseStatus(statusCode: response.status), headers: headers,
                body: ByteBuffer(bytes: response.body))
        }
    }
}
