// Carillon · WebPushSubscription.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto

/// Where a browser's push service takes messages, and the keys that they are encrypted for.
///
/// What a page gets of `PushManager.subscribe()`; its JSON is the token of a device of Web Push.
package struct WebPushSubscription: Sendable, Equatable {
    /// What is wrong with one, in words that follow the name of its field.
    package struct Fault: Error, Sendable, Equatable, CustomStringConvertible {
        package let description: String

        init(_ description: String) {
            self.description = description
        }
    }

    /// The URL that messages are posted to; a secret, as whoever knows it may try to.
    package let endpoint: String
    /// The endpoint's scheme, host and port, as RFC 6454 section 6.2 writes them.
    package let origin: String
    /// `p256dh`: a point of P-256 in 65 bytes.
    package let publicKey: [UInt8]
    /// `auth`, in 16 bytes.
    package let secret: [UInt8]

    /// Reads what `JSON.stringify(subscription)` writes; members that are not needed are ignored.
    ///
    /// Whether the key lies on the curve is left to ``isKeyOnCurve`` and to the encryption.
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

    /// The subscription in one form, however it was written.
    package var token: String {
        var writer = JSONWriter(capacity: 512)
        writer.beginObject()
        writer.member("endpoint", self.endpoint)
        writer.key("keys")
        writer.beginObject()
        writer.member("p256dh", Base64URL.encode(self.publicKey))
        writer.member("auth", Base64URL.encode(self.secret))
        writer.endObject()
        writer.endObject()
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    /// Whether something can be encrypted with the key.
    package var isKeyOnCurve: Bool {
        (try? P256.KeyAgreement.PublicKey(x963Representation: self.publicKey)) != nil
    }

    /// Some pages write their keys by `btoa`, with the other alphabet and with padding.
    private static func bytes(_ value: JSONValue?) -> [UInt8]? {
        guard var text = value?.string.map({ Array($0.utf8) }) else { return nil }
        while text.last == UInt8(ascii: "=") { text.removeLast() }
        for (index, letter) in text.enumerated() {
            if letter == UInt8(ascii: "+") { text[index] = UInt8(ascii: "-") }
            if letter == UInt8(ascii: "/") { text[index] = UInt8(ascii: "_") }
        }
        return Base64URL.decode(text)
    }

    private static func origin(of url: String) -> String {
        let authority = url.dropFirst("https://".count).prefix { !"/?#".contains($0) }.lowercased()
        let isUsualPort = authority.hasSuffix(":443")
        return "https://" + (isUsualPort ? String(authority.dropLast(4)) : authority)
    }
}
