// Carillon · VAPIDKey.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto

/// The key by which push services know this server (RFC 8292), and whose public half browsers subscribe with.
package struct VAPIDKey: Sendable {
    /// What is wrong with a key or a subject; never holds any of it.
    package struct Fault: Error, Sendable, Equatable, CustomStringConvertible {
        package let description: String

        package init(_ description: String) {
            self.description = description
        }
    }

    private static let header = Base64URL.encode(#"{"typ":"JWT","alg":"ES256"}"#.utf8)

    private let key: P256.Signing.PrivateKey
    /// The point in its uncompressed form, in base64url: a page's `applicationServerKey`.
    package let publicKey: String

    /// Reads a P-256 key as tools write it: PEM (PKCS #8 or SEC 1, with or without the curve's parameters before it), or
    /// its 32 bytes in base64url.
    package init(file: [UInt8]) throws(Fault) {
        let text = String(decoding: file, as: UTF8.self)
        let trimmed = text.split { $0.isWhitespace }
        let key: P256.Signing.PrivateKey?
        if trimmed.count == 1, let word = trimmed.first, let bytes = Base64URL.decode(word.utf8) {
            key = try? P256.Signing.PrivateKey(rawRepresentation: bytes)
        } else {
            key = Self.block(in: text).flatMap { try? P256.Signing.PrivateKey(pemRepresentation: $0) }
        }
        guard let key else {
            throw Fault("the key is not a private key of P-256, in PEM or 32 bytes in base64url")
        }
        self.key = key
        self.publicKey = Base64URL.encode(key.publicKey.x963Representation)
    }

    /// The token that names us to one push service.
    ///
    /// - Parameters:
    ///   - audience: the service's origin.
    ///   - subject: whom the service may turn to; ``isSubject(_:)``.
    package func token(audience: String, subject: String, expiresAt: Timestamp) throws(Fault) -> String {
        var claims = JSONWriter()
        claims.beginObject()
        claims.member("aud", audience)
        claims.member("exp", expiresAt.seconds)
        claims.member("sub", subject)
        claims.endObject()
        let signed = Self.header + "." + Base64URL.encode(claims.bytes)
        guard let signature = try? self.key.signature(for: Array(signed.utf8)) else {
            throw Fault("the key cannot sign")
        }
        return signed + "." + Base64URL.encode(signature.rawRepresentation)
    }

    /// Whether push services take `text` for a contact: a `mailto:` or `https:` URL (RFC 8292 section 2.1).
    package static func isSubject(_ text: String) -> Bool {
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"\"<>\\".utf8.contains($0) }) else { return false }
        let lower = text.lowercased()
        if lower.hasPrefix("https://") { return Webhook.fault(inURL: text, allowsPlain: false) == nil }
        guard lower.hasPrefix("mailto:") else { return false }
        let parts = text.dropFirst("mailto:".count).split(separator: "@", omittingEmptySubsequences: false)
        return parts.count == 2 && parts.allSatisfy { !$0.isEmpty }
    }

    /// The block of PEM that holds a private key: `openssl ecparam -genkey` writes the curve in one before it.
    private static func block(in text: String) -> String? {
        let lines = text.split { $0.isNewline }
        guard let start = lines.firstIndex(where: { $0.hasPrefix("-----BEGIN ") && $0.contains("PRIVATE KEY") }),
            let end = lines[start...].firstIndex(where: { $0.hasPrefix("-----END ") })
        else { return nil }
        return lines[start...end].joined(separator: "\n")
    }
}
