// Carillon · EncryptionWorkspace.swift
// SPDX-License-Identifier: Apache-2.0

import COpenSSL

/// OpenSSL objects for one message at a time, reused because looking up algorithms is expensive.
///
/// `@unchecked Sendable` is sound: a user takes a workspace out of the pool and has it alone until
/// it is returned; the pool's lock orders one user's work before the next one's.
final class EncryptionWorkspace: @unchecked Sendable {
    private static let pointLength = 65
    private static let fieldLength = 32
    private static let saltLength = 16
    private static let tagLength = 16
    /// Salt, record size, key id length, and the public key as key id (RFC 8188 section 2.1).
    private static let headerLength = 86
    private static let recordSize: [UInt8] = [0, 0, 0x10, 0]

    private let group: OpaquePointer
    private let numbers: OpaquePointer
    private let scalar: OpaquePointer
    private let coordinate: OpaquePointer
    private let peer: OpaquePointer
    private let product: OpaquePointer
    private let authenticator: OpaquePointer
    private let cipher: OpaquePointer

    init() throws(WebPushEncryptionFault) {
        // Objects created before a failure leak; failure means no memory or a libcrypto without
        // these algorithms.
        guard CryptoLibrary.isReady, let group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1),
            let numbers = BN_CTX_new(),
            let scalar = BN_new(), let coordinate = BN_new(), let peer = EC_POINT_new(group),
            let product = EC_POINT_new(group), let authenticator = Self.makeAuthenticator(),
            let cipher = EVP_CIPHER_CTX_new(),
            EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), nil, nil, nil) == 1
        else { throw .library }
        // Makes multiplications constant-time for the private key.
        BN_set_flags(scalar, BN_FLG_CONSTTIME)
        self.group = group
        self.numbers = numbers
        self.scalar = scalar
        self.coordinate = coordinate
        self.peer = peer
        self.product = product
        self.authenticator = authenticator
        self.cipher = cipher
    }

    deinit {
        EVP_CIPHER_CTX_free(self.cipher)
        EVP_MAC_CTX_free(self.authenticator)
        EC_POINT_free(self.product)
        EC_POINT_free(self.peer)
        BN_free(self.coordinate)
        BN_clear_free(self.scalar)
        BN_CTX_free(self.numbers)
        EC_GROUP_free(self.group)
    }

    func encrypt(
        _ message: [UInt8],
        publicKey: [UInt8],
        secret: [UInt8],
        ephemeral: WebPushEncryption.Ephemeral?
    ) throws(WebPushEncryptionFault) -> [UInt8] {
        // Rejects points off the curve. P-256 has no small subgroups, so every point on it is safe.
        guard EC_POINT_oct2point(self.group, self.peer, publicKey, publicKey.count, self.numbers) == 1 else {
            throw .publicKey
        }
        defer { BN_clear(self.scalar) }
        let salt = try self.begin(ephemeral)
        let ownKey = try self.ownPublicKey()
        let shared = try self.sharedSecret()

        // RFC 8291 section 3.4, then RFC 8188 sections 2.2 and 2.3.
        let pairing = try self.authenticate(shared, key: secret)
        let material = try self.authenticate(Self.pairingLabel + publicKey + ownKey + [1], key: pairing)
        let root = try self.authenticate(material, key: salt)
        let contentKey = try self.authenticate(Self.keyLabel, key: root).prefix(16)
        let nonce = try self.authenticate(Self.nonceLabel, key: root).prefix(12)

        var body: [UInt8] = []
        body.reserveCapacity(Self.headerLength + message.count + 1 + Self.tagLength)
        body += salt
        body += Self.recordSize
        body.append(UInt8(Self.pointLength))
        body += ownKey
        body += message
        // The delimiter of the last record, without padding (RFC 8188 section 2).
        body.append(2)
        try self.seal(&body, from: Self.headerLength, key: Array(contentKey), nonce: Array(nonce))
        return body
    }

    private static let pairingLabel = Array("WebPush: info\0".utf8)
    private static let keyLabel = Array("Content-Encoding: aes128gcm\0\u{1}".utf8)
    private static let nonceLabel = Array("Content-Encoding: nonce\0\u{1}".utf8)

    /// Sets the private key and returns the salt.
    private func begin(_ ephemeral: WebPushEncryption.Ephemeral?) throws(WebPushEncryptionFault) -> [UInt8] {
        let order = EC_GROUP_get0_order(self.group)
        if let ephemeral {
            let key = ephemeral.privateKey
            guard ephemeral.salt.count == Self.saltLength, key.count == Self.fieldLength,
                BN_bin2bn(key, CInt(key.count), self.scalar) != nil, BN_is_zero(self.scalar) == 0,
                BN_cmp(self.scalar, order) < 0
            else { throw .ephemeral }
            return ephemeral.salt
        }
        var salt = [UInt8](repeating: 0, count: Self.saltLength)
        guard RAND_bytes(&salt, CInt(salt.count)) == 1 else { throw .library }
        repeat {
            guard BN_priv_rand_range(self.scalar, order) == 1 else { throw .library }
        } while BN_is_zero(self.scalar) != 0
        return salt
    }

    private func ownPublicKey() throws(WebPushEncryptionFault) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Self.pointLength)
        guard EC_POINT_mul(self.group, self.product, self.scalar, nil, nil, self.numbers) == 1,
            EC_POINT_point2oct(
                self.group, self.product, POINT_CONVERSION_UNCOMPRESSED, &bytes, bytes.count, self.numbers
            ) == bytes.count
        else { throw .library }
        return bytes
    }

    /// Returns the x coordinate of our private key times the browser's public key.
    private func sharedSecret() throws(WebPushEncryptionFault) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Self.fieldLength)
        guard EC_POINT_mul(self.group, self.product, nil, self.peer, self.scalar, self.numbers) == 1,
            EC_POINT_get_affine_coordinates(self.group, self.product, self.coordinate, nil, self.numbers) == 1,
            BN_bn2binpad(self.coordinate, &bytes, CInt(bytes.count)) == CInt(bytes.count)
        else { throw .library }
        BN_clear(self.coordinate)
        return bytes
    }

    /// Computes HMAC-SHA256, the building block of HKDF (RFC 5869); every output here is one block.
    private func authenticate(_ text: [UInt8], key: [UInt8]) throws(WebPushEncryptionFault) -> [UInt8] {
        var code = [UInt8](repeating: 0, count: Self.fieldLength)
        var length = 0
        guard EVP_MAC_init(self.authenticator, key, key.count, nil) == 1,
            EVP_MAC_update(self.authenticator, text, text.count) == 1,
            EVP_MAC_final(self.authenticator, &code, &length, code.count) == 1, length == code.count
        else { throw .library }
        return code
    }

    /// Encrypts the bytes from `start` on in place and appends the tag.
    private func seal(
        _ body: inout [UInt8],
        from start: Int,
        key: [UInt8],
        nonce: [UInt8]
    ) throws(WebPushEncryptionFault) {
        let count = body.count - start
        body += [UInt8](repeating: 0, count: Self.tagLength)
        let isSealed = body.withUnsafeMutableBufferPointer { bytes in
            guard let base = bytes.baseAddress else { return false }
            // In bounds: `count` bytes and room for the tag follow `start`.
            let text = base + start
            var written: CInt = 0
            guard EVP_EncryptInit_ex(self.cipher, nil, nil, key, nonce) == 1,
                EVP_EncryptUpdate(self.cipher, text, &written, text, CInt(count)) == 1, Int(written) == count,
                EVP_EncryptFinal_ex(self.cipher, text + count, &written) == 1, written == 0
            else { return false }
            return EVP_CIPHER_CTX_ctrl(
                self.cipher, EVP_CTRL_AEAD_GET_TAG, CInt(Self.tagLength), text + count) == 1
        }
        guard isSealed else { throw .library }
    }

    /// Creates an HMAC-SHA256 context without a key.
    private static func makeAuthenticator() -> OpaquePointer? {
        guard let method = EVP_MAC_fetch(nil, OSSL_MAC_NAME_HMAC, nil) else { return nil }
        // The context keeps a reference to the method.
        defer { EVP_MAC_free(method) }
        guard let context = EVP_MAC_CTX_new(method) else { return nil }
        var name = Array("SHA256".utf8CString)
        let isSet = name.withUnsafeMutableBufferPointer { name in
            // Borrowing is sound: both are read only during the call.
            let parameters = [
                OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name.baseAddress, 0),
                OSSL_PARAM_construct_end(),
            ]
            return EVP_MAC_CTX_set_params(context, parameters) == 1
        }
        if isSet { return context }
        EVP_MAC_CTX_free(context)
        return nil
    }
}
