// Carillon · WebPushEncryption.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Encrypts messages for the browsers that are to get them (RFC 8291), as one record of `aes128gcm` (RFC 8188).
///
/// Each message has an ephemeral P-256 key and a salt of its own. Any number of tasks may encrypt at once.
package final class WebPushEncryption: Sendable {
    /// The longest message that fits the 4,096 bytes that a push service has to take (RFC 8291 section 4).
    package static let longestMessage = 3_993

    /// What makes two messages differ; drawn at random unless a test gives it.
    package struct Ephemeral: Sendable {
        /// 16 bytes.
        package let salt: [UInt8]
        /// A private key of P-256, 32 bytes.
        package let privateKey: [UInt8]

        package init(salt: [UInt8], privateKey: [UInt8]) {
            self.salt = salt
            self.privateKey = privateKey
        }
    }

    /// OpenSSL's objects that nobody uses now: no more of them than have ever been in use at once, which is at most a
    /// thread each, as nothing here waits.
    private let idle: Mutex<[EncryptionWorkspace]>

    /// - Throws: ``WebPushEncryptionFault/library`` if libcrypto lacks what it takes, or there is no memory.
    package init() throws(WebPushEncryptionFault) {
        self.idle = Mutex([try EncryptionWorkspace()])
    }

    /// The body of a request that carries `message`, its header included.
    ///
    /// - Parameters:
    ///   - publicKey: the subscription's `p256dh`.
    ///   - secret: the subscription's `auth`.
    /// - Throws: ``WebPushEncryptionFault`` that names what cannot be used.
    package func encrypt(
        _ message: [UInt8],
        publicKey: [UInt8],
        secret: [UInt8],
        ephemeral: Ephemeral? = nil
    ) throws(WebPushEncryptionFault) -> [UInt8] {
        guard message.count <= Self.longestMessage else { throw .message }
        guard publicKey.count == 65, publicKey.first == 4 else { throw .publicKey }
        guard secret.count == 16 else { throw .secret }
        let found = self.idle.withLock { $0.popLast() }
        let workspace: EncryptionWorkspace
        if let found { workspace = found } else { workspace = try EncryptionWorkspace() }
        defer { self.idle.withLock { $0.append(workspace) } }
        return try workspace.encrypt(message, publicKey: publicKey, secret: secret, ephemeral: ephemeral)
    }
}

/// Why a message cannot be encrypted.
package enum WebPushEncryptionFault: Error, Sendable, Equatable, CustomStringConvertible {
    /// `p256dh` is no point of P-256 in its uncompressed form.
    case publicKey
    /// `auth` has not 16 bytes.
    case secret
    /// The message is too long.
    case message
    /// A given salt or private key cannot be one.
    case ephemeral
    /// libcrypto did not do what it should.
    case library

    package var description: String {
        switch self {
        case .publicKey: "p256dh is no uncompressed point of P-256"
        case .secret: "auth must have 16 bytes"
        case .message: "the message has more than \(WebPushEncryption.longestMessage) bytes"
        case .ephemeral: "the salt must have 16 bytes, and the private key be one of P-256"
        case .library: "libcrypto failed"
        }
    }
}
