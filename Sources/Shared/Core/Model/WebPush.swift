// Carillon · WebPush.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto

/// The key that identifies this server to push services (RFC 8292).
///
/// Browsers subscribe with its public half.
package struct VAPIDKey: Sendable {
    /// A fault of a key or a subject; never contains any part of it.
    package struct Fault: Error, Sendable, Equatable, CustomStringConvertible {
        package let description: String

        package init(_ description: String) {
            self.description = description
        }
    }

    private let key: P256.Signing.PrivateKey
    /// The uncompressed point in base64url: a page's `applicationServerKey`.
    package let publicKey: String

    /// Parses a P-256 key: PEM (PKCS #8 or SEC 1, with or without leading curve parameters), or 32
    /// bytes in base64url.
    package init(file: [UInt8]) throws(Fault) {
        let text = String(decoding: file, as: UTF8.self)
        let trimmed = text.split { $0.isWhitespace }
        let key: P256.Signing.PrivateKey?
        if trimmed.count == 1, let word = trimmed.first, let bytes = Base64.url.decode(word.utf8) {
            key = try? P256.Signing.PrivateKey(rawRepresentation: bytes)
        } else {
            key = Self.block(in: text).flatMap { try? P256.Signing.PrivateKey(pemRepresentation: $0) }
        }
        guard let key else {
            throw Fault("the key is not a private key of P-256, in PEM or 32 bytes in base64url")
        }
        self.key = key
        self.publicKey = Base64.url.encode(key.publicKey.x963Representation)
    }

    /// Returns the signed token that identifies this server to one push service.
    ///
    /// - Parameters:
    ///   - audience: the service's origin.
    ///   - subject: the contact of this server; ``isSubject(_:)``.
    package func token(audience: String, subject: String, expiresAt: Timestamp) throws(Fault) -> String {
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
            throw Fault("the key cannot sign")
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

/// A browser's push subscription: the endpoint, and the keys to encrypt for it.
///
/// This is the result of `PushManager.subscribe()`. Its JSON is the token of a Web Push device.
package struct WebPushSubscription: Sendable, Equatable {
    /// A fault of a subscription, phrased to follow the field's name.
    package struct Fault: Error, Sendable, Equatable, CustomStringConvertible {
        package let description: String

        init(_ description: String) {
            self.description = description
        }
    }

    /// The URL that messages are posted to; secret, because anyone who knows it can post.
    package let endpoint: String
    /// The endpoint's scheme, host and port (RFC 6454 section 6.2).
    package let origin: String
    /// `p256dh`: an uncompressed P-256 point, 65 bytes.
    package let publicKey: [UInt8]
    /// `auth`: 16 bytes.
    package let secret: [UInt8]

    /// Parses the output of `JSON.stringify(subscription)`; ignores other members.
    ///
    /// Does not check that the key is on the curve; see ``isKeyOnCurve``.
    package init(token: String) throws(Fault) {
        guard let value = try? JSONParser.parse(Array(token.utf8)), value.object != nil else {
            throw Fault("must be the subscription's JSON for webpush, with endpoint and keys")
        }
        guard let endpoint = value["endpoint"]?.string else { throw Fault("has no endpoint") }
        if let fault = Webhook.fault(inURL: endpoint, allowsPlain: false) {
            throw Fault("has an endpoint that \(fault)")
        }
        guard let publicKey = Self.bytes(value["keys"]?["p256dh"]), publicKey.count == 65, publicKey.first == 4 else {
            throw Fault("must have keys.p256dh, an uncompressed point of P-256 in base64url")
        }
        guard let secret = Self.bytes(value["keys"]?["auth"]), secret.count == 16 else {
            throw Fault("must have keys.auth, 16 bytes in base64url")
        }
        self.endpoint = endpoint
        self.origin = Self.origin(of: endpoint)
        self.publicKey = publicKey
        self.secret = secret
    }

    /// The subscription in canonical form.
    package var token: String {
        var writer = JSONWriter(capacity: 512)
        writer.beginObject()
        writer.member("endpoint", self.endpoint)
        writer.key("keys")
        writer.beginObject()
        writer.member("p256dh", Base64.url.encode(self.publicKey))
        writer.member("auth", Base64.url.encode(self.secret))
        writer.endObject()
        writer.endObject()
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    /// Whether messages can be encrypted with the key.
    package var isKeyOnCurve: Bool {
        (try? P256.KeyAgreement.PublicKey(x963Representation: self.publicKey)) != nil
    }

    /// Decodes base64url.
    ///
    /// Some pages encode keys with `btoa`, so it accepts `+`, `/` and padding as well.
    private static func bytes(_ value: JSONValue?) -> [UInt8]? {
        guard var text = value?.string.map({ Array($0.utf8) }) else { return nil }
        while text.last == UInt8(ascii: "=") { text.removeLast() }
        for (index, letter) in text.enumerated() {
            if letter == UInt8(ascii: "+") { text[index] = UInt8(ascii: "-") }
            if letter == UInt8(ascii: "/") { text[index] = UInt8(ascii: "_") }
        }
        return Base64.url.decode(text)
    }

    private static func origin(of url: String) -> String {
        let authority = url.dropFirst("https://".count).prefix { !"/?#".contains($0) }.lowercased()
        let isUsualPort = authority.hasSuffix(":443")
        return "https://" + (isUsualPort ? String(authority.dropLast(4)) : authority)
    }
}

/// The push services that subscriptions may use.
package struct WebPushOrigins: Sendable, Equatable {
    /// A fault of a list, phrased to follow the field's name.
    package struct Fault: Error, Sendable, Equatable, CustomStringConvertible {
        package let description: String
    }

    /// Allows every service.
    package static let any = WebPushOrigins(patterns: nil)

    /// Nil allows every origin.
    private let patterns: [Pattern]?

    private struct Pattern: Sendable, Equatable {
        /// The part after the asterisk of `https://*.push.apple.com`, otherwise the whole host and
        /// port.
        let host: String
        let isWild: Bool
    }

    private init(patterns: [Pattern]?) {
        self.patterns = patterns
    }

    /// Parses origins such as `https://fcm.googleapis.com` or `https://*.push.apple.com`, separated
    /// by commas or spaces; `*` alone allows any.
    package init(_ text: String) throws(Fault) {
        let words = text.lowercased().split { $0 == "," || $0 == " " }
        if words == ["*"] {
            self = .any
            return
        }
        var patterns: [Pattern] = []
        for word in words {
            guard let pattern = Self.pattern(word) else {
                throw Fault(
                    description: "must be origins such as https://fcm.googleapis.com or https://*.push.apple.com, "
                        + "with commas between them, or *")
            }
            patterns.append(pattern)
        }
        self.patterns = patterns
    }

    /// Whether a subscription's origin is allowed.
    package func allows(_ origin: String) -> Bool {
        guard let patterns else { return true }
        let host = origin.dropFirst("https://".count)
        return patterns.contains { $0.isWild ? host.hasSuffix($0.host) && host.count > $0.host.count : host == $0.host }
    }

    private static func pattern(_ word: Substring) -> Pattern? {
        guard word.hasPrefix("https://") else { return nil }
        var host = word.dropFirst("https://".count)
        if host.hasSuffix(":443") { host = host.dropLast(4) }
        let isWild = host.hasPrefix("*.")
        if isWild { host = host.dropFirst() }
        let isHost = host.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"/?#@*\\".utf8.contains($0) }
        return isHost && host.utf8.count > 1 ? Pattern(host: String(host), isWild: isWild) : nil
    }
}
