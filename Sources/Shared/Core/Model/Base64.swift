// Carillon · Base64.swift
// SPDX-License-Identifier: Apache-2.0

/// Base64 (RFC 4648).
package struct Base64: Sendable {
    /// The URL alphabet, without padding (section 5; RFC 7515 section 2).
    package static let url = Base64("-_", isPadded: false)
    /// The standard alphabet, with padding (section 4).
    package static let standard = Base64("+/", isPadded: true)

    private static let padding = UInt8(ascii: "=")
    private static let foreign: UInt8 = 0xFF

    private let alphabet: [UInt8]
    private let values: [UInt8]
    private let isPadded: Bool

    private init(_ last: String, isPadded: Bool) {
        self.alphabet = Array(("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + last).utf8)
        var values = [UInt8](repeating: Self.foreign, count: 256)
        for (value, letter) in self.alphabet.enumerated() { values[Int(letter)] = UInt8(value) }
        self.values = values
        self.isPadded = isPadded
    }

    /// The length of the padded text of `count` bytes.
    package static func length(of count: Int) -> Int { (count + 2) / 3 * 4 }

    package func encode(_ bytes: some Sequence<UInt8>) -> String {
        var text: [UInt8] = []
        self.append(Array(bytes), to: &text)
        return String(decoding: text, as: UTF8.self)
    }

    package func append(_ bytes: [UInt8], to text: inout [UInt8]) {
        text.reserveCapacity(text.count + Self.length(of: bytes.count))
        var gathered: UInt32 = 0
        var bits: UInt32 = 0
        for byte in bytes {
            gathered = gathered << 8 | UInt32(byte)
            bits += 8
            while bits >= 6 {
                bits -= 6
                text.append(self.alphabet[Int(gathered >> bits & 0x3F)])
            }
        }
        guard bits > 0 else { return }
        text.append(self.alphabet[Int(gathered << (6 - bits) & 0x3F)])
        // Two bits are left over from one byte, four from two.
        if self.isPadded { text += [UInt8](repeating: Self.padding, count: bits == 2 ? 2 : 1) }
    }

    /// Decodes `text`, which has no padding.
    ///
    /// - Returns: nil for a foreign character, an impossible length, or unused bits that are set.
    package func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        guard let (bytes, bits, rest) = self.bytes(Array(text)[...]) else { return nil }
        return bits < 6 && rest == 0 ? bytes : nil
    }

    /// Decodes padded text without line breaks, ignoring unused bits.
    ///
    /// - Returns: nil for a foreign character or an impossible length.
    package func decodePadded(_ text: some Collection<UInt8>) -> [UInt8]? {
        let text = Array(text)
        guard text.count.isMultiple(of: 4) else { return nil }
        let padding = text.suffix(2).reversed().prefix { $0 == Self.padding }.count
        return self.bytes(text.dropLast(padding))?.bytes
    }

    /// Decodes text as clients write it: with or without padding and line breaks, ignoring unused
    /// bits.
    ///
    /// - Returns: nil for a foreign character or an impossible length.
    package func decodeLeniently(_ text: ArraySlice<UInt8>) -> [UInt8]? {
        let letters = text.filter { $0 != 0x0A && $0 != 0x0D }
        let end = letters.firstIndex(of: Self.padding) ?? letters.endIndex
        guard letters[end...].allSatisfy({ $0 == Self.padding }) else { return nil }
        return self.bytes(letters[..<end]).flatMap { $0.bits < 6 ? $0.bytes : nil }
    }

    /// Returns the bytes, the number of unused bits, and those bits.
    ///
    /// Not generic, unlike its callers, which other modules run unspecialised: a generic loop would
    /// allocate for each byte.
    private func bytes(_ text: ArraySlice<UInt8>) -> (bytes: [UInt8], bits: UInt32, rest: UInt32)? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count * 3 / 4)
        var gathered: UInt32 = 0
        var bits: UInt32 = 0
        for letter in text {
            let value = self.values[Int(letter)]
            guard value != Self.foreign else { return nil }
            gathered = gathered << 6 | UInt32(value)
            bits += 6
            guard bits >= 8 else { continue }
            bits -= 8
            bytes.append(UInt8(truncatingIfNeeded: gathered >> bits))
        }
        return (bytes, bits, gathered & (1 << bits - 1))
    }
}
