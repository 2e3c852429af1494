// Carillon · JSONWebToken.swift
// SPDX-License-Identifier: Apache-2.0

/// Signs JSON Web Tokens in compact form (RFC 7515 section 7.1).
package enum JSONWebToken {
    /// An algorithm's name in a token's header (RFC 7518 section 3.1).
    package enum Algorithm: String {
        case hs256 = "HS256"
        case rs256 = "RS256"
        case es256 = "ES256"
    }

    /// Returns a token with these claims.
    ///
    /// - Parameters:
    ///   - keyID: names the key to the receiver; nil if it knows only one.
    ///   - claims: a JSON object.
    ///   - sign: returns the signature of the bytes in the algorithm's form; for ES256 that is the
    ///     raw form of RFC 7518 section 3.4.
    /// - Throws: what `sign` throws.
    package static func signed<Signature: Sequence<UInt8>, Failure: Error>(
        _ algorithm: Algorithm,
        keyID: String? = nil,
        claims: [UInt8],
        sign: (_ bytes: [UInt8]) throws(Failure) -> Signature
    ) throws(Failure) -> String {
        var header = JSONWriter()
        header.beginObject()
        header.member("alg", algorithm.rawValue)
        header.member("typ", "JWT")
        if let keyID { header.member("kid", keyID) }
        header.endObject()
        let text = Base64.url.encode(header.bytes) + "." + Base64.url.encode(claims)
        return text + "." + Base64.url.encode(try sign(Array(text.utf8)))
    }
}
