// Carillon · WebSocketKey.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import FoundationEssentials

/// The handshake's proof that a server speaks WebSocket (RFC 6455 section 4.2.2).
package enum WebSocketKey {
    private static let suffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

    /// Whether a client's key is 16 bytes in base64.
    package static func isValid(_ key: String) -> Bool {
        Data(base64Encoded: key)?.count == 16
    }

    /// The value of `Sec-WebSocket-Accept`.
    package static func accept(_ key: String) -> String {
        // The RFC asks for SHA-1; nothing rests on its strength.
        Data(Insecure.SHA1.hash(data: Data((key + Self.suffix).utf8))).base64EncodedString()
    }
}
