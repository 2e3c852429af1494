// Carillon · RedisSlot.swift
// SPDX-License-Identifier: Apache-2.0

/// The slots over which a cluster spreads keys.
///
/// Source: redis.io, "Redis cluster specification".
package enum RedisSlot {
    package static let count = 16_384

    /// Returns the slot of a key: the CRC16 of its hash tag, or of all of it if it has none.
    package static func of(_ key: some Collection<UInt8>) -> Int {
        guard let open = key.firstIndex(of: UInt8(ascii: "{")) else { return Self.hash(key) }
        let tag = key[key.index(after: open)...]
        guard let close = tag.firstIndex(of: UInt8(ascii: "}")), close != tag.startIndex else { return Self.hash(key) }
        return Self.hash(tag[..<close])
    }

    private static func hash(_ bytes: some Collection<UInt8>) -> Int {
        var crc: UInt16 = 0
        for byte in bytes { crc = crc << 8 ^ Self.table[Int(UInt8(truncatingIfNeeded: crc >> 8) ^ byte)] }
        return Int(crc) % Self.count
    }

    /// The remainders of CRC16/XMODEM, whose polynomial is 0x1021.
    private static let table: [UInt16] = (0..<256).map { byte in
        (0..<8).reduce(UInt16(byte) << 8) { crc, _ in crc & 0x8000 == 0 ? crc << 1 : crc << 1 ^ 0x1021 }
    }
}
