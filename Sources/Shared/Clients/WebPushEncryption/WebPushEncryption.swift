// Carillon · WebPushEncryption.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Encrypts messages for browsers (RFC 8291) as one `aes128gcm` record (RFC 8188).
///
/// Each message gets its own ephemeral P-256 key and salt. Any number of tasks may encrypt at once.
package final class WebPushEncryption: Sendable {
    /// The longest message that fits the 4,096 bytes every push service accepts (RFC 8291 section
    /// 4).
    package static let maximumMessageBytes = 3_993

    /// The random values of a message; tests may fix them.
    package struct Ephemeral: Sendable {
        /// 16 bytes.
        let salt: [UInt8]
        /// A P-256 private key, 32 bytes.
        let privateKey: [UInt8]
    }

    /// Idle workspaces; at most one a thread ever exists, because encryption never suspends.
    private let idle: Mutex<[EncryptionWorkspace]>

    /// - Throws: ``WebPushEncryptionFault/library`` if libcrypto lacks an algorithm or memory runs
    ///   out.
    package init() throws(WebPushEncryptionFault) {
        self.idle = Mutex([try EncryptionWorkspace()])
    }

    /// Returns the encrypted request body, header included.
    ///
    /// - Parameters:
    ///   - publicKey: the subscription's `p256dh`.
    ///   - secret: the subscription's `auth`.
    /// - Throws: ``WebPushEncryptionFault`` that names the unusable input.
    package func encrypt(
        _ message: [UInt8],
        publicKey: [UInt8],
        secret: [UInt8],
        ephemeral: Ephemeral? = nil
    ) throws(WebPushEncryptionFault) -> [UInt8] {
        guard message.count <= Self.maximumMessageBytes else { throw .message }
        guard publicKey.count == 65, publicKey.first == 4 else { throw .publicKey }
        guard secret.count == 16 else { throw .secret }
        let found = self.idle.withLock { $0.popLast() }
        let workspace: EncryptionWorkspace
        if let found { workspace = found } else { workspace = try EncryptionWorkspace() }
        defer { self.idle.withLock { $0.append(workspace) } }
        return try workspace.encrypt(message, publicKey: publicKey, secret: secret, ephemeral: ephemeral)
    }
}

/// The reason why a message cannot be encrypted.
package enum WebPushEncryptionFault: Error, Sendable, Equatable, CustomStringConvertible {
    /// `p256dh` is not an uncompressed P-256 point.
    case publicKey
    /// `auth` is not 16 bytes long.
    case secret
    /// The message is too long.
    case message
    /// A given salt or private key is invalid.
    case ephemeral
    /// libcrypto failed.
    case library

    package var description: String {
        switch self {
        case .publicKey: "p256dh: not an uncompressed P-256 point"
        case .secret: "auth: must be 16 bytes"
        case .message: "message: longer than \(WebPushEncryption.maximumMessageBytes) bytes"
        case .ephemeral: "the salt must be 16 bytes and the private key a P-256 key"
        case .library: "libcrypto failed"
        }
    }
}
