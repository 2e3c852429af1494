// Carillon · TokenIssuer.swift
// SPDX-License-Identifier: Apache-2.0

import JWTKit
package import Model

/// Makes tokens with the configured secret, for operators and tests.
package enum TokenIssuer {
    private struct Claims: JWTPayload {
        let sub: String
        let scope: String?
        let iat: Int64
        let exp: Int64
        let iss: String?
        let aud: String?

        func verify(using algorithm: some JWTAlgorithm) async throws {}
    }

    /// A signed HS256 token.
    package static func issue(
        user: String,
        scope: Caller.Scope?,
        lifetime: Duration,
        secret: String,
        issuer: String?,
        audience: String?,
        now: Timestamp
    ) async throws -> String {
        let keys = JWTKeyCollection()
        await keys.add(hmac: HMACKey(from: secret), digestAlgorithm: .sha256)
        return try await keys.sign(
            Claims(
                sub: user,
                scope: scope?.rawValue,
                iat: now.seconds,
                exp: (now + lifetime).seconds,
                iss: issuer,
                aud: audience
            )
        )
    }
}
