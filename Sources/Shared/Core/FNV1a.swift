// Carillon · FNV1a.swift
// SPDX-License-Identifier: Apache-2.0

/// FNV-1a, a hash that is the same in every process, for placement and to detect changes.
package enum FNV1a {
    /// - Parameter start: the hash of the bytes before.
    package static func hash64(_ bytes: some Sequence<UInt8>, from start: UInt64 = 0xCBF2_9CE4_8422_2325) -> UInt64 {
        bytes.reduce(start) { ($0 ^ UInt64($1)) &* 0x0100_0000_01B3 }
    }

    /// Hashes the UTF-8 of a text.
    package static func hash32(_ text: String) -> UInt32 {
        var text = text
        return text.withUTF8 { bytes in
            bytes.reduce(2_166_136_261) { ($0 ^ UInt32($1)) &* 16_777_619 }
        }
    }
}
