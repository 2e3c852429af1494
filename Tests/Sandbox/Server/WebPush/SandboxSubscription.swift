// Carillon · SandboxSubscription.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation

/// A browser's subscription at the sandbox; its keys are derived from its name.
package struct SandboxSubscription: Sendable {
    static let path = "/push/"

    /// The name in the endpoint, which may choose a fault.
    package let id: String
    package let endpoint: String
    package let keys: Keys

    /// The private keys of the browser.
    package struct Keys: Sendable {
        package let privateKey: P256.KeyAgreement.PrivateKey
        package let secret: [UInt8]

        /// Derives the keys from a name.
        package init(id: String) {
            var seed = SHA256.hash(data: Data("sandbox browser key \(id)".utf8))
            // About one hash in four billion is not a valid private key.
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
            else { throw EncryptedContent.Failure("no sender key, or more than one record") }
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
    ///   - applicationServerKey: the public key of the sender, as a page passes it to `subscribe`.
    init(id: String, origin: String, applicationServerKey: [UInt8]) {
        self.id = id
        self.endpoint = "\(origin)\(Self.path)\(id)/\(Self.mark(applicationServerKey))"
        self.keys = Keys(id: id)
    }

    /// The result of `JSON.stringify(subscription)` in a browser.
    package var json: String {
        let point = Self.base64URL(self.keys.privateKey.publicKey.x963Representation)
        return #"{"endpoint":"\#(self.endpoint)","expirationTime":null,"keys":{"p256dh":"\#(point)","#
            + #""auth":"\#(Self.base64URL(Data(self.keys.secret)))"}}"#
    }

    /// Returns the hash of the sender's key that is part of the endpoint.
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

/// A parsed but still encrypted body with the content coding `aes128gcm` (RFC 8188).
package struct EncryptedContent: Sendable {
    /// A reason why a body is malformed or cannot be decrypted.
    package struct Failure: Error, Sendable, CustomStringConvertible {
        package let description: String

        init(_ description: String) {
            self.description = description
        }
    }

    private static let tagLength = 16

    package let salt: [UInt8]
    package let recordSize: Int
    package let keyID: [UInt8]
    private let records: [UInt8]

    package init(_ body: [UInt8]) throws(Failure) {
        guard body.count >= 21, body.count > 21 + Int(body[20]) else { throw Failure("the header is truncated") }
        self.salt = Array(body[..<16])
        self.recordSize = body[16..<20].reduce(0) { $0 << 8 | Int($1) }
        let end = 21 + Int(body[20])
        self.keyID = Array(body[21..<end])
        self.records = Array(body[end...])
        guard self.recordSize >= 18 else { throw Failure("the record size is below 18") }
    }

    /// The number of records.
    package var recordCount: Int { (self.records.count + self.recordSize - 1) / self.recordSize }

    /// Decrypts the content.
    ///
    /// - Parameter material: the input keying material (RFC 8188 section 2.2).
    package func open(material: [UInt8]) throws(Failure) -> [UInt8] {
        func derive(_ label: String, _ count: Int) -> SymmetricKey {
            HKDF<SHA256>.deriveKey(
                inputKeyMaterial: SymmetricKey(data: material), salt: self.salt, info: Data((label + "\0").utf8),
                outputByteCount: count)
        }
        let key = derive("Content-Encoding: aes128gcm", 16)
        let nonce = derive("Content-Encoding: nonce", 12).withUnsafeBytes { Array($0) }
        var plain: [UInt8] = []
        for number in 0..<self.recordCount {
            let record = self.records[(number * self.recordSize)...].prefix(self.recordSize)
            var own = nonce
            // The nonce is XORed with the record number (RFC 8188 section 2.3).
            for place in 0..<8 { own[11 - place] ^= UInt8(truncatingIfNeeded: number >> (8 * place)) }
            var opened = try Self.open(record, key: key, nonce: own)
            while opened.last == 0 { opened.removeLast() }
            let delimiter: UInt8 = number == self.recordCount - 1 ? 2 : 1
            guard opened.popLast() == delimiter else { throw Failure("record \(number) has a wrong delimiter") }
            plain += opened
        }
        return plain
    }

    private static func open(
        _ record: ArraySlice<UInt8>, key: SymmetricKey, nonce: [UInt8]
    ) throws(Failure) -> [UInt8] {
        guard record.count > Self.tagLength, let nonce = try? AES.GCM.Nonce(data: nonce),
            let box = try? AES.GCM.SealedBox(
                nonce: nonce, ciphertext: record.dropLast(Self.tagLength), tag: record.suffix(Self.tagLength)),
            let opened = try? AES.GCM.open(box, using: key)
        else { throw Failure("a record cannot be decrypted") }
        return Array(opened)
    }
}
