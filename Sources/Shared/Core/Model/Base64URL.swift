// Carillon · Base64URL.swift
// SPDX-License-Identifier: Apache-2.0

/// Base64 with the URL alphabet and without padding (RFC 4648 section 5, RFC 7515 section 2).
package enum Base64URL {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
    private static let values: [UInt8] = {
        var values = [UInt8](repeating: 0xFF, count: 256)
        for (value, letter) in Self.alphabet.enumerated() { values[Int(letter)] = UInt8(value) }
        return values
    }()

    /// Decodes `text`; nil for a foreign character, an impossible length, or unused bits that are
    /// set.
    package static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count * 3 / 4)
        var gathered: UInt32 = 0
        var bits: UInt32 = 0
        for letter in text {
            let value = Self.values[Int(letter)]
            guard value != 0xFF else { return nil }
            gathered = gathered << 6 | UInt32(value)
            bits += 6
            if bits >= 8 {
                bits -= 8
                bytes.append(UInt8(truncatingIfNeeded: gathered >> bits))
            }
        }
        guard bits < 6, gathered & (1 << bits - 1) == 0 else { return nil }
        return bytes
    }

    package static func encode(_ bytes: some Sequence<UInt8>) -> String {
        var text: [UInt8] = []
        var gathered: UInt32 = 0
        var bits: UInt32 = 0
        for byte in bytes {
            gathered = gathered << 8 | UInt32(byte)
            bits += 8
            while bits >= 6 {
                bits -= 6
                text.append(Self.alphabet[Int(gathered >> bits & 0x3F)])
            }
        }
        if bits > 0 { text.append(Self.alphabet[Int(gathered << (6 - bits) & 0x3F)]) }
        return String(decoding: text, as: UTF8.self)
    }
}
