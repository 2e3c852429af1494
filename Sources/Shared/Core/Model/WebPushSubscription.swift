// Carillon · WebPushSubscription.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto

/// A browser's push subscription: the endpoint, and the keys to encrypt for it.
///
/// This is the result of `PushManager.subscribe()`. Its JSON is the token of a Web Push device.
package struct WebPushSubscription: Sendable, Equatable {
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
    package init(token: String) throws(FieldFault) {
        guard let value = try? JSONParser.parse(Array(token.utf8)), value.object != nil else {
            throw FieldFault("must be the subscription's JSON for webpush, with endpoint and keys")
        }
        guard let endpoint = value["endpoint"]?.string else { throw FieldFault("has no endpoint") }
        if let fault = Webhook.fault(inURL: endpoint, allowsPlain: false) {
            throw FieldFault("has an endpoint that \(fault)")
        }
        guard let publicKey = Self.bytes(value["keys"]?["p256dh"]), publicKey.count == 65, publicKey.first == 4 else {
            throw FieldFault("must have keys.p256dh, an uncompressed point of P-256 in base64url")
        }
        guard let secret = Self.bytes(value["keys"]?["auth"]), secret.count == 16 else {
            throw FieldFault("must have keys.auth, 16 bytes in base64url")
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
    package init(_ text: String) throws(FieldFault) {
        let words = text.lowercased().split { $0 == "," || $0 == " " }
        if words == ["*"] {
            self = .any
            return
        }
        var patterns: [Pattern] = []
        for word in words {
            guard let pattern = Self.pattern(word) else {
                throw FieldFault(
                    "must be origins such as https://fcm.googleapis.com or https://*.push.apple.com, "
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
