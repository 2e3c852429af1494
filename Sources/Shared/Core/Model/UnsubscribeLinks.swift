// Carillon · UnsubscribeLinks.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import FoundationEssentials

/// Tokens of links that switch a user's e-mail off without a login (RFC 8058).
///
/// A token holds user and type and an HMAC-SHA256 of them, by a key that HKDF (RFC 5869) derives from the secret under a
/// label of its own: it opens nothing else. It never expires: mail is read late, and all that it can do is send less of it.
/// One made with a secret that is no longer known is void.
package struct UnsubscribeLinks: Sendable {
    /// What a link switches off.
    package struct Target: Sendable, Equatable {
        package let user: String
        /// E-mail of this type; all e-mail if nil.
        package let type: String?

        package init(user: String, type: String?) {
            self.user = user
            self.type = type
        }
    }

    /// The longest token there can be, for a user and a type of 128 characters each.
    package static let longestToken = 1_500

    private static let format: UInt8 = 1
    private static let label = "carillon unsubscribe link 1"

    private let key: SymmetricKey
    private let previousKey: SymmetricKey?

    /// - Parameters:
    ///   - secret: the secret that tokens are signed with.
    ///   - previousSecret: the one before it, whose tokens still count.
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

    /// The token for a target, in characters that a URL takes as they are.
    package func token(for target: Target) -> String {
        let user = Array(target.user.utf8)
        var bytes = [Self.format, UInt8(truncatingIfNeeded: user.count >> 8), UInt8(truncatingIfNeeded: user.count)]
        bytes += user
        bytes += (target.type ?? "").utf8
        bytes += HMAC<SHA256>.authenticationCode(for: bytes, using: self.key)
        return Base64URL.encode(bytes)
    }

    /// What a token stands for; nil if it is none of ours.
    package func target(of token: String) -> Target? {
        guard token.utf8.count <= Self.longestToken, let bytes = Base64URL.decode(token.utf8),
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
