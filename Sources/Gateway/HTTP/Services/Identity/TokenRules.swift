// Carillon · TokenRules.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a token's claims must say (RFC 7519 section 4.1), and what they mean.
package struct TokenRules: Sendable {
    /// For how long a token without `exp` is good, from its `iat` on.
    private static let longestWithoutEnd: Duration = .seconds(30 * 86_400)

    package var issuer: String?
    package var audience: String?
    package var userClaim = "sub"
    /// How far the clocks of who issues tokens and who reads them may differ.
    package var skew: Duration = .seconds(30)

    package init() {}

    /// Whom claims speak for, if they hold now.
    func caller(_ claims: JSONValue, now: Timestamp) throws(TokenFault) -> Caller {
        let expiry = try Self.moment(claims, "exp").map { $0 + self.skew }
        if let expiry, expiry <= now { throw TokenFault("the token has expired") }
        if let start = try Self.moment(claims, "nbf"), start > now + self.skew {
            throw TokenFault("the token is not valid yet")
        }
        let issuedAt = try Self.moment(claims, "iat")
        // One from the future would outlive every revocation until then.
        if let issuedAt, issuedAt > now + self.skew { throw TokenFault("the token was issued in the future") }
        if let issuer, !Self.isSame(claims["iss"]?.string, issuer) {
            throw TokenFault("the token's issuer is not accepted")
        }
        if let audience {
            let named = claims["aud"]?.strings ?? claims["aud"]?.string.map { [$0] } ?? []
            guard named.contains(where: { Self.isSame($0, audience) }) else {
                throw TokenFault("the token is for another audience")
            }
        }
        let claim = claims[self.userClaim]
        guard let user = claim?.string ?? claim?.integer.map({ String($0) }), Self.isUser(user) else {
            throw TokenFault("the token's claim \(self.userClaim) is no user id")
        }
        let words = claims["scope"]?.strings ?? claims["scope"]?.string?.split(separator: " ").map { String($0) } ?? []
        let scopes = Set(words.compactMap { Caller.Scope(rawValue: $0) })
        // In users' tokens these claims mean nothing; their issuer may use them for something else.
        let allowance = scopes.isEmpty ? JobAllowance() : try JobAllowance(claims: claims)
        // One without any end would be good for as long as its key.
        guard let end = expiry ?? issuedAt.map({ $0 + Self.longestWithoutEnd + self.skew }) else {
            throw TokenFault("the token has neither exp nor iat")
        }
        guard end > now else { throw TokenFault("the token has no exp and was issued over 30 days ago") }
        return Caller(user: user, scopes: scopes, issuedAt: issuedAt, expiresAt: end, allowance: allowance)
    }

    /// By code points; `String` would take canonically equivalent texts for the same.
    private static func isSame(_ text: String?, _ other: String) -> Bool {
        text.map { ExactText($0) == ExactText(other) } ?? false
    }

    private static func isUser(_ user: String) -> Bool {
        (1...JobLimits.user).contains(user.unicodeScalars.count) && !user.utf8.contains(0)
    }

    /// A NumericDate, whole or with a fraction.
    private static func moment(_ claims: JSONValue, _ name: String) throws(TokenFault) -> Timestamp? {
        guard let claim = claims[name] else { return nil }
        guard case .number(let text) = claim, let value = Double(text), abs(value) < 1e12 else {
            throw TokenFault("the token's claim \(name) is no time")
        }
        return Timestamp(microseconds: Int64(value * 1_000_000))
    }
}
