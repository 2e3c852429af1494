// Carillon · TokenVerifier.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials
import JSON
import JWTKit
package import Model

/// Checks JSON Web Tokens (RFC 7519): HS256 with a secret, RS256 and ES256 with a key set (RFC 7517).
///
/// The algorithm decides which keys are asked, so that a public key is never taken for a secret.
package struct TokenVerifier: Sendable {
    private static let longestToken = 8_192
    /// How far clocks may differ, in seconds.
    private static let leeway: Int64 = 30

    private struct Unread: JWTPayload {
        func verify(using algorithm: some JWTAlgorithm) async throws {}
    }

    private let secretKeys: JWTKeyCollection?
    private let publicKeys: JWTKeyCollection?
    private let issuer: String?
    private let audience: String?
    private let userClaim: String
    private let now: @Sendable () -> Timestamp

    /// - Parameters:
    ///   - secret: for HS256.
    ///   - keySet: a JWKS document, for RS256 and ES256.
    /// - Throws: ``TokenFault`` if the key set cannot be used.
    package init(
        secret: String?,
        keySet: String?,
        issuer: String?,
        audience: String?,
        userClaim: String,
        now: @escaping @Sendable () -> Timestamp
    ) async throws(TokenFault) {
        if let secret {
            let keys = JWTKeyCollection()
            await keys.add(hmac: HMACKey(from: secret), digestAlgorithm: .sha256)
            self.secretKeys = keys
        } else {
            self.secretKeys = nil
        }
        if let keySet {
            let keys = JWTKeyCollection()
            do {
                try await keys.add(jwksJSON: keySet)
            } catch {
                throw TokenFault("the key set is not a JWKS document with usable keys")
            }
            self.publicKeys = keys
        } else {
            self.publicKeys = nil
        }
        self.issuer = issuer
        self.audience = audience
        self.userClaim = userClaim
        self.now = now
    }

    /// Who a token speaks for.
    ///
    /// - Throws: ``TokenFault`` with the reason.
    package func verify(_ token: String) async throws(TokenFault) -> Caller {
        guard token.utf8.count <= Self.longestToken else { throw TokenFault("the token is too long") }
        let parts = token.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 3, let header = Self.json(parts[0]), let claims = Self.json(parts[1]) else {
            throw TokenFault("the token is not a JSON Web Token")
        }
        let keys: JWTKeyCollection?
        switch header["alg"]?.string {
        case "HS256": keys = self.secretKeys
        case "RS256", "ES256": keys = self.publicKeys
        default: throw TokenFault("the token's algorithm is not accepted")
        }
        guard let keys else { throw TokenFault("the token's algorithm is not accepted") }
        do {
            _ = try await keys.verify(
                token, as: Unread.self, iteratingKeys: header["kid"] == nil || keys === self.secretKeys)
        } catch {
            throw TokenFault("the token's signature is not valid")
        }
        return try self.caller(claims)
    }

    private static func json(_ part: Substring) -> JSONValue? {
        var text = String(part.map { $0 == "-" ? "+" : $0 == "_" ? "/" : $0 })
        text += String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        guard let bytes = Data(base64Encoded: text), let value = try? JSONParser.parse(Array(bytes)),
            value.object != nil
        else { return nil }
        return value
    }

    private func caller(_ claims: JSONValue) throws(TokenFault) -> Caller {
        let now = self.now().seconds
        let expiry = try Self.seconds(claims, "exp")
        if let expiry, expiry + Self.leeway <= now { throw TokenFault("the token has expired") }
        if let start = try Self.seconds(claims, "nbf"), start - Self.leeway > now {
            throw TokenFault("the token is not valid yet")
        }
        if let issuer, claims["iss"]?.string != issuer { throw TokenFault("the token's issuer is not accepted") }
        if let audience {
            let named = claims["aud"]?.strings ?? claims["aud"]?.string.map { [$0] } ?? []
            guard named.contains(audience) else { throw TokenFault("the token is for another audience") }
        }
        let claim = claims[self.userClaim]
        guard let user = claim?.string ?? claim?.integer.map({ String($0) }), Self.isUser(user) else {
            throw TokenFault("the token's claim \(self.userClaim) is no user id")
        }
        let scopes = claims["scope"]?.strings ?? claims["scope"]?.string?.split(separator: " ").map { String($0) } ?? []
        return Caller(
            user: user,
            scopes: Set(scopes.compactMap { Caller.Scope(rawValue: $0) }),
            expiresAt: expiry.map { Timestamp(seconds: $0 + Self.leeway) }
        )
    }

    private static func isUser(_ user: String) -> Bool {
        (1...JobLimits.user).contains(user.unicodeScalars.count) && !user.utf8.contains(0)
    }

    /// A NumericDate, whole or with a fraction.
    private static func seconds(_ claims: JSONValue, _ name: String) throws(TokenFault) -> Int64? {
        guard let claim = claims[name] else { return nil }
        guard case .number(let text) = claim, let value = Double(text), abs(value) < 1e12 else {
            throw TokenFault("the token's claim \(name) is no time")
        }
        return Int64(value)
    }
}
