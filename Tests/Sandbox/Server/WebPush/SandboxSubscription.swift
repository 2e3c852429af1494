// Carillon · SandboxSubscription.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation

/// A browser's subscription at the sandbox: its keys follow from its name, so that nothing is kept of it.
package struct SandboxSubscription: Sendable {
    static let path = "/push/"

    /// Its name in the endpoint, which may choose a fault.
    package let id: String
    package let endpoint: String
    package let keys: Keys

    /// What the browser keeps to itself.
    package struct Keys: Sendable {
        package let privateKey: P256.KeyAgreement.PrivateKey
        package let secret: [UInt8]

        /// Those of a name.
        package init(id: String) {
            var seed = SHA256.hash(data: Data("sandbox browser key \(id)".utf8))
            // All but one of four thousand million hashes are a private key.
            while true {
                if let key = try? P256.KeyAgreement.PrivateKey(rawRepresentation: Data(seed)) {
                    self.privateKey = key
                    break
                }
                seed = SHA256.hash(data: Data(seed))
            }
            self.secret = Array(SHA256.hash(data: Data("sandbox browser secret \(id)".utf8)).prefix(16))
        }

        package init(privateKey: P256.KeyAgreement.PrivateKey, secret: [UInt8]) {
            self.privateKey = privateKey
            self.secret = secret
        }

        /// Decrypts a message's body (RFC 8291 section 3).
        package func open(_ body: [UInt8]) throws(EncryptedContent.Failure) -> [UInt8] {
            let content = try EncryptedContent(body)
            guard content.keyID.count == 65, content.recordCount == 1,
                let sender = try? P256.KeyAgreement.PublicKey(x963Representation: content.keyID),
                let shared = try? self.privateKey.sharedSecretFromKeyAgreement(with: sender)
            else { throw EncryptedContent.Failure("there is no sender's key, or more than one record") }
            var info = Data("WebPush: info\0".utf8)
            info += self.privateKey.publicKey.x963Representation
            info += content.keyID
            let material = shared.hkdfDerivedSymmetricKey(
                using: SHA256.self, salt: self.secret, sharedInfo: info, outputByteCount: 32)
            return try content.open(material: material.withUnsafeBytes { Array($0) })
        }
    }

    /// - Parameters:
    ///   - origin: the sandbox's TLS address.
    ///   - applicationServerKey: whose messages it takes, as a page passes it to `subscribe`.
    init(id: String, origin: String, applicationServerKey: [UInt8]) {
        self.id = id
        self.endpoint = "\(origin)\(Self.path)\(id)/\(Self.mark(applicationServerKey))"
        self.keys = Keys(id: id)
    }

    /// What `JSON.stringify(subscription)` makes of it in a browser.
    package var json: String {
        let point = Self.base64URL(self.keys.privateKey.publicKey.x963Representation)
        return #"{"endpoint":"\#(self.endpoint)","expirationTime":null,"keys":{"p256dh":"\#(point)","#
            + #""auth":"\#(Self.base64URL(Data(self.keys.secret)))"}}"#
    }

    /// What an endpoint says about the key of its subscription.
    static func mark(_ applicationServerKey: [UInt8]) -> String {
        self.base64URL(Data(SHA256.hash(data: applicationServerKey).prefix(16)))
    }

    static func isID(_ text: some StringProtocol) -> Bool {
        (1...128).contains(text.utf8.count) && text.utf8.allSatisfy(self.isBase64URL)
    }

    static func isBase64URL(_ byte: UInt8) -> Bool {
        (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7A || byte >= 0x30 && byte <= 0x39 || byte == 0x2D || byte == 0x5F
    }

    static func base64URL(_ data: Data) -> String {
        data.base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}
