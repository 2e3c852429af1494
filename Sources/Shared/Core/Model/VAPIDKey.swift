// Carillon · VAPIDKey.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto

/// The key that identifies this server to push services (RFC 8292).
///
/// Browsers subscribe with its public half.
package struct VAPIDKey: Sendable {
    private let key: P256.Signing.PrivateKey
    /// The uncompressed point in base64url: a page's `applicationServerKey`.
    package let publicKey: String

    /// Parses a P-256 key: PEM (PKCS #8 or SEC 1, with or without leading curve parameters), or 32
    /// bytes in base64url.
    package init(file: [UInt8]) throws(FieldFault) {
        let text = String(decoding: file, as: UTF8.self)
        let trimmed = text.split { $0.isWhitespace }
        let key: P256.Signing.PrivateKey?
        if trimmed.count == 1, let word = trimmed.first, let bytes = Base64.url.decode(word.utf8) {
            key = try? P256.Signing.PrivateKey(rawRepresentation: bytes)
        } else {
            key = Self.block(in: text).flatMap { try? P256.Signing.PrivateKey(pemRepresentation: $0) }
        }
        guard let key else {
            throw FieldFault("the key is not a private key of P-256, in PEM or 32 bytes in base64url")
        }
        self.key = key
        self.publicKey = Base64.url.encode(key.publicKey.x963Representation)
    }

    /// Returns the signed token that identifies this server to one push service.
    ///
    /// - Parameters:
    ///   - audience: the service's origin.
    ///   - subject: the contact of this server; ``isSubject(_:)``.
    package func token(audience: String, subject: String, expiresAt: Timestamp) throws(FieldFault) -> String {
        var claims = JSONWriter()
        claims.beginObject()
        claims.member("aud", audience)
        claims.member("exp", expiresAt.seconds)
        claims.member("sub", subject)
        claims.endObject()
        do {
            return try JSONWebToken.signed(.es256, claims: claims.bytes) { bytes in
                try self.key.signature(for: bytes).rawRepresentation
            }
        } catch {
            throw FieldFault("the key cannot sign")
        }
    }

    /// Whether a text is a valid contact: a `mailto:` or `https:` URL (RFC 8292 section 2.1).
    package static func isSubject(_ text: String) -> Bool {
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"\"<>\\".utf8.contains($0) }) else { return false }
        let lower = text.lowercased()
        if lower.hasPrefix("https://") { return Webhook.fault(inURL: text, allowsPlain: false) == nil }
        guard lower.hasPrefix("mailto:") else { return false }
        let parts = text.dropFirst("mailto:".count).split(separator: "@", omittingEmptySubsequences: false)
        return parts.count == 2 && parts.allSatisfy { !$0.isEmpty }
    }

    /// Extracts the private key's PEM block; `openssl ecparam -genkey` writes a curve block before
    /// it.
    private static func block(in text: String) -> String? {
        let lines = text.split { $0.isNewline }
        guard let start = lines.firstIndex(where: { $0.hasPrefix("-----BEGIN ") && $0.contains("PRIVATE KEY") }),
            let end = lines[start...].firstIndex(where: { $0.hasPrefix("-----END ") })
        else { return nil }
        return lines[start...end].joined(separator: "\n")
    }
}
