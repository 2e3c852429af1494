// Carillon · EncryptedContent.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation

/// A body of the content coding `aes128gcm` (RFC 8188), taken apart but not decrypted.
package struct EncryptedContent: Sendable {
    /// Why a body is none, or does not open.
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
        guard body.count >= 21, body.count > 21 + Int(body[20]) else { throw Failure("the header is cut short") }
        self.salt = Array(body[..<16])
        self.recordSize = body[16..<20].reduce(0) { $0 << 8 | Int($1) }
        let end = 21 + Int(body[20])
        self.keyID = Array(body[21..<end])
        self.records = Array(body[end...])
        guard self.recordSize >= 18 else { throw Failure("the record size is below 18") }
    }

    /// How many records there are.
    package var recordCount: Int { (self.records.count + self.recordSize - 1) / self.recordSize }

    /// What is in it.
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
            // The record's number is taken into the last bytes of the nonce (RFC 8188 section 2.3).
            for place in 0..<8 { own[11 - place] ^= UInt8(truncatingIfNeeded: number >> (8 * place)) }
            var opened = try Self.open(record, key: key, nonce: own)
            while opened.last == 0 { opened.removeLast() }
            let delimiter: UInt8 = number == self.recordCount - 1 ? 2 : 1
            guard opened.popLast() == delimiter else { throw Failure("record \(number) has no delimiter") }
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
        else { throw Failure("a record does not open") }
        return Array(opened)
    }
}
