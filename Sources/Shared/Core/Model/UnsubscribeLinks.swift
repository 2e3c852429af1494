// Carillon · UnsubscribeLinks.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import FoundationEssentials

/// Tokens of links that switch off a user's e-mail without a login (RFC 8058).
///
/// A token holds the user, the type and their HMAC-SHA256. HKDF (RFC 5869) derives the key from the
/// secret under its own label, so a token grants nothing else. Tokens do not expire, because users
/// read mail late and a token can only stop mail. Removing a secret invalidates its tokens.
package struct UnsubscribeLinks: Sendable {
    /// The e-mail that a link switches off.
    package struct Target: Sendable, Equatable {
        package let user: String
        /// The type; nil for all e-mail.
        package let type: String?

        package init(user: String, type: String?) {
            self.user = user
            self.type = type
        }
    }

    /// The longest possible token, for a user and a type of 128 characters each.
    package static let longestToken = 1_500

    private static let format: UInt8 = 1
    private static let label = "carillon unsubscribe link 1"

    private let key: SymmetricKey
    private let previousKey: SymmetricKey?

    /// - Parameters:
    ///   - secret: signs tokens.
    ///   - previousSecret: the secret before it; its tokens are still valid.
    package init(secret: String, previousSecret: String? = nil) {
        self.key = Self.key(of: secret)
        self.previousKey = previousSecret.map { Self.key(of: $0) }
    }

    private static func key(of secret: String) -> SymmetricKey {
        HKDF<SHA256>.deriveKey(
            inputKeyMaterial: SymmetricKey(data: Data(secret.utf8)),
            info: Data(Self.label.utf8),
            outputByteCount: 32
        )
    }

    /// Returns the URL-safe token of a target.
    package func token(for target: Target) -> String {
        let user = Array(target.user.utf8)
        var bytes = [Self.format, UInt8(truncatingIfNeeded: user.count >> 8), UInt8(truncatingIfNeeded: user.count)]
        bytes += user
        bytes += (target.type ?? "").utf8
        bytes += HMAC<SHA256>.authenticationCode(for: bytes, using: self.key)
        return Base64.url.encode(bytes)
    }

    /// Returns the target of a token; nil if the token is not valid.
    package func target(of token: String) -> Target? {
        guard token.utf8.count <= Self.longestToken, let bytes = Base64.url.decode(token.utf8),
            bytes.count > 3 + SHA256.byteCount
        else { return nil }
        let body = bytes.dropLast(SHA256.byteCount)
        let code = bytes.suffix(SHA256.byteCount)
        let isOurs = [self.key, self.previousKey].compactMap(\.self).contains { key in
            HMAC<SHA256>.isValidAuthenticationCode(code, authenticating: body, using: key)
        }
        guard isOurs, body[0] == Self.format else { return nil }
        let count = Int(body[1]) << 8 | Int(body[2])
        guard body.count >= 3 + count, let user = String(validating: body[3..<3 + count], as: UTF8.self),
            let type = String(validating: body[(3 + count)...], as: UTF8.self)
        else { return nil }
        return Target(user: user, type: type.isEmpty ? nil : type)
    }
}
