// Carillon · Base64.swift
// SPDX-License-Identifier: Apache-2.0

/// The standard alphabet (RFC 4648 section 4), as polling writes binary packets.
enum Base64 {
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    private static let padding = UInt8(ascii: "=")
    private static let foreign: UInt8 = 0xFF

    private static let values: [UInt8] = {
        var values = [UInt8](repeating: Self.foreign, count: 256)
        for (value, letter) in Self.alphabet.enumerated() { values[Int(letter)] = UInt8(value) }
        return values
    }()

    /// The length of the text of so many bytes.
    static func length(of count: Int) -> Int { (count + 2) / 3 * 4 }

    static func append(_ bytes: [UInt8], to text: inout [UInt8]) {
        text.reserveCapacity(text.count + Self.length(of: bytes.count))
        var index = 0
        while index < bytes.count {
            let left = bytes.count - index
            let second = left > 1 ? bytes[index + 1] : 0
            let third = left > 2 ? bytes[index + 2] : 0
            text.append(Self.alphabet[Int(bytes[index] >> 2)])
            text.append(Self.alphabet[Int(bytes[index] & 0x03) << 4 | Int(second >> 4)])
            text.append(left > 1 ? Self.alphabet[Int(second & 0x0F) << 2 | Int(third >> 6)] : Self.padding)
            text.append(left > 2 ? Self.alphabet[Int(third & 0x3F)] : Self.padding)
            index += 3
        }
    }

    /// The bytes of a text, or nil if it has a foreign letter or ends in the middle of a byte.
    ///
    /// Clients differ in how they write it, so line breaks, absent padding and bits that no byte
    /// takes pass, as with the reference server: the Java client breaks lines after 76 letters.
    static func decode(_ text: ArraySlice<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count / 4 * 3 + 2)
        var bits: UInt32 = 0
        var count = 0
        var letters = 0
        var isPadded = false
        for letter in text where letter != 0x0A && letter != 0x0D {
            guard letter != Self.padding else {
                isPadded = true
                continue
            }
            let value = Self.values[Int(letter)]
            guard value != Self.foreign, !isPadded else { return nil }
            letters += 1
            bits = bits << 6 | UInt32(value)
            count += 6
            guard count >= 8 else { continue }
            count -= 8
            bytes.append(UInt8(truncatingIfNeeded: bits >> count))
            bits &= (1 << count) - 1
        }
        return letters % 4 == 1 ? nil : bytes
    }
}
