// Carillon · WebSocketHandshake.swift
// SPDX-License-Identifier: Apache-2.0

import NIOHTTP1

/// The request that opens a WebSocket (RFC 6455 section 4.2).
package enum WebSocketHandshake {
    /// Whether a request asks for one, rightly or not.
    package static func isAskedFor(by head: HTTPRequestHead) -> Bool {
        head.headers[canonicalForm: "upgrade"].contains { $0.lowercased() == "websocket" }
    }

    /// What is wrong with it (section 4.2.1); nil if nothing is.
    package static func fault(_ head: HTTPRequestHead) -> (status: HTTPResponseStatus, reason: String)? {
        guard head.method == .GET, head.version == .http1_1 else {
            return (.badRequest, "a socket begins with GET and HTTP/1.1")
        }
        guard head.headers["host"].count == 1 else {
            return (.badRequest, "the Host header must be there once")
        }
        guard head.headers[canonicalForm: "connection"].contains(where: { $0.lowercased() == "upgrade" }) else {
            return (.badRequest, "the Connection header must name upgrade")
        }
        guard head.headers.first(name: "sec-websocket-version") == "13" else {
            return (.upgradeRequired, "Sec-WebSocket-Version must be 13")
        }
        let keys = head.headers["sec-websocket-key"]
        guard keys.count == 1, WebSocketKey.isValid(keys[0]) else {
            return (.badRequest, "Sec-WebSocket-Key must be 16 bytes in base64")
        }
        return nil
    }

    /// The answer that accepts it (section 4.2.2).
    package static func acceptance(of head: HTTPRequestHead, subprotocol: String?) -> HTTPResponseHead {
        var headers: HTTPHeaders = [
            "upgrade": "websocket", "connection": "upgrade",
            "sec-websocket-accept": WebSocketKey.accept(head.headers.first(name: "sec-websocket-key") ?? ""),
        ]
        if let subprotocol { headers.add(name: "sec-websocket-protocol", value: subprotocol) }
        return HTTPResponseHead(version: .http1_1, status: .switchingProtocols, headers: headers)
    }
}
