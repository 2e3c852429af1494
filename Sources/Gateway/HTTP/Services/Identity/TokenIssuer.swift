// Carillon · TokenIssuer.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto

/// Makes tokens with the configured secret, for operators and tests.
package enum TokenIssuer {
    /// A signed HS256 token.
    ///
    /// - Parameters:
    ///   - types: the types of which it may send jobs; nil for all.
    ///   - audiences: whom it may send jobs to; nil for all.
    package static func issue(
        user: String,
        scope: Caller.Scope?,
        lifetime: Duration,
        secret: String,
        issuer: String?,
        audience: String?,
        types: [String]? = nil,
        audiences: [JobAllowance.Audience]? = nil,
        now: Timestamp
    ) -> String {
        var claims = JSONWriter()
        claims.beginObject()
        claims.member("sub", user)
        let words: [(StaticString, String?)] = [("scope", scope?.rawValue), ("iss", issuer), ("aud", audience)]
        for case (let name, .some(let text)) in words {
            claims.key(name)
            claims.string(text)
        }
        let lists: [(StaticString, [String]?)] = [("types", types), ("audiences", audiences?.map(\.rawValue))]
        for case (let name, .some(let texts)) in lists {
            claims.key(name)
            claims.beginArray()
            for text in texts { claims.string(text) }
            claims.endArray()
        }
        claims.member("iat", now.seconds)
        claims.member("exp", (now + lifetime).seconds)
        claims.endObject()
        let header = Base64URL.encode(#"{"alg":"HS256","typ":"JWT"}"#.utf8)
        let signed = header + "." + Base64URL.encode(claims.bytes)
        let code = HMAC<SHA256>.authenticationCode(
            for: Array(signed.utf8), using: SymmetricKey(data: Array(secret.utf8)))
        return signed + "." + Base64URL.encode(code)
    }
}
