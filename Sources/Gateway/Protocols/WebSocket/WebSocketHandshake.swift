// Carillon · WebSocketHandshake.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import NIOHTTP1

/// The request that opens a WebSocket (RFC 6455 section 4.2).
package enum WebSocketHandshake {
    /// Whether the request asks for a WebSocket, valid or not.
    package static func isRequested(by head: HTTPRequestHead) -> Bool {
        Self.list(head.headers["upgrade"], names: "websocket")
    }

    /// Whether a comma-separated header names an option, in any letter case.
    ///
    /// Compares bytes, because ``HTTPHeaders/markFault`` may not have checked the request yet.
    private static func list(_ fields: [String], names option: String) -> Bool {
        let name = option.utf8
        let isBlank = { (byte: UInt8) in byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        return fields.contains { field in
            field.utf8.split(separator: UInt8(ascii: ",")).contains { item in
                let item = item.drop(while: isBlank)
                return item.prefix(name.count).elementsEqual(name) { $0 | 0x20 == $1 }
                    && item.dropFirst(name.count).allSatisfy(isBlank)
            }
        }
    }

    /// Returns the fault of the request (section 4.2.1); nil if it is valid.
    package static func fault(_ head: HTTPRequestHead) -> (status: HTTPResponseStatus, reason: String)? {
        if let fault = head.headers.markFault { return (.badRequest, fault) }
        guard head.method == .GET, head.version == .http1_1 else {
            return (.badRequest, "the handshake must be GET over HTTP/1.1")
        }
        guard head.headers["host"].count == 1 else {
            return (.badRequest, "the Host header must appear exactly once")
        }
        guard Self.list(head.headers["connection"], names: "upgrade") else {
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

    /// Returns the answer that accepts the request (section 4.2.2).
    package static func acceptance(of head: HTTPRequestHead, subprotocol: String?) -> HTTPResponseHead {
        var headers: HTTPHeaders = [
            "upgrade": "websocket", "connection": "upgrade",
            "sec-websocket-accept": WebSocketKey.accept(head.headers.first(name: "sec-websocket-key") ?? ""),
        ]
        if let subprotocol { headers.add(name: "sec-websocket-protocol", value: subprotocol) }
        return HTTPResponseHead(version: .http1_1, status: .switchingProtocols, headers: headers)
    }
}

extension HTTPHeaders {
    /// The fault of a field with too many combining marks in a row; nil if there is none.
    package var markFault: String? {
        self.contains { CombiningMarks.areTooMany(in: $0.value) } ? "a header \(CombiningMarks.fault)" : nil
    }
}

/// The key exchange of the handshake (RFC 6455 section 4.2.2).
enum WebSocketKey {
    private static let suffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

    /// Whether the client's key is 16 bytes in base64.
    static func isValid(_ key: String) -> Bool {
        Base64.standard.decodePadded(key.utf8)?.count == 16
    }

    /// Returns the value of `Sec-WebSocket-Accept`.
    static func accept(_ key: String) -> String {
        // The RFC requires SHA-1; security does not depend on it.
        Base64.standard.encode(Insecure.SHA1.hash(data: Array((key + Self.suffix).utf8)))
    }
}
