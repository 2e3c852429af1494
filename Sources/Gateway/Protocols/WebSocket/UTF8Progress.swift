// Carillon · UTF8Progress.swift
// SPDX-License-Identifier: Apache-2.0

/// How far a text that comes in pieces is UTF-8 (RFC 3629 section 4); a sequence may be split between them.
struct UTF8Progress {
    /// Bytes that the sequence still needs.
    private var missing: UInt8 = 0
    /// Where the next one must lie.
    private var range: ClosedRange<UInt8> = 0x80...0xBF

    /// Takes the next piece; false if no text begins so.
    mutating func take(_ bytes: [UInt8]) -> Bool {
        for byte in bytes {
            guard self.missing > 0 else {
                guard byte < 0x80 || self.begin(byte) else { return false }
                continue
            }
            guard self.range.contains(byte) else { return false }
            self.range = 0x80...0xBF
            self.missing -= 1
        }
        return true
    }

    /// Takes the first byte of a sequence, which bounds the second: no overlong form, no surrogate, nothing beyond U+10FFFF.
    private mutating func begin(_ byte: UInt8) -> Bool {
        switch byte {
        case 0xC2...0xDF: self.missing = 1
        case 0xE0...0xEF:
            self.missing = 2
            if byte == 0xE0 { self.range = 0xA0...0xBF }
            if byte == 0xED { self.range = 0x80...0x9F }
        case 0xF0...0xF4:
            self.missing = 3
            if byte == 0xF0 { self.range = 0x90...0xBF }
            if byte == 0xF4 { self.range = 0x80...0x8F }
        default: return false
        }
        return true
    }
}
