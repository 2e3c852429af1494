// Carillon · WebhookSignature.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto

/// Proves to a webhook's receiver that a request is ours, and when it was made.
package enum WebhookSignature {
    /// The header that carries it.
    package static let header = "carillon-signature"

    /// `t=<seconds>,v1=<hex>`: HMAC-SHA256 by the secret over the seconds, a full stop and the body.
    package static func make(secret: String, body: [UInt8], at moment: Timestamp) -> String {
        var code = HMAC<SHA256>(key: SymmetricKey(data: Array(secret.utf8)))
        code.update(data: Array("\(moment.seconds).".utf8))
        code.update(data: body)
        let digits = code.finalize().map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }
        return "t=\(moment.seconds),v1=" + digits.joined()
    }
}
