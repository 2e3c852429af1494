// Carillon · Identifier.swift
// SPDX-License-Identifier: Apache-2.0

package typealias NotificationID = Identifier
package typealias DeviceID = Identifier
package typealias DigestWindowID = Identifier
package typealias ScheduleID = Identifier
package typealias BroadcastID = Identifier
package typealias WebhookID = Identifier

/// A UUID, which sorts by its bits (RFC 9562).
package struct Identifier: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The ends of the sort order, where paging begins.
    package static let least = Identifier(high: 0, low: 0)
    package static let greatest = Identifier(high: .max, low: .max)

    package let high: UInt64
    package let low: UInt64

    package init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    package init(_ halves: (UInt64, UInt64)) {
        self.init(high: halves.0, low: halves.1)
    }

    /// Parses a hyphenated UUID in either case; nil if malformed.
    package init?(_ text: some StringProtocol) {
        self.init(utf8: Array(text.utf8)[...])
    }

    /// Parses a hyphenated UUID from UTF-8.
    package init?(utf8 bytes: ArraySlice<UInt8>) {
        guard bytes.count == Self.length else { return nil }
        var halves: (UInt64, UInt64) = (0, 0)
        var position = 0
        for byte in bytes {
            defer { position += 1 }
            if position == 8 || position == 13 || position == 18 || position == 23 {
                guard byte == UInt8(ascii: "-") else { return nil }
                continue
            }
            guard let digit = byte.hexDigit.map({ UInt64($0) }) else { return nil }
            if position < 18 {
                halves.0 = halves.0 << 4 | digit
            } else {
                halves.1 = halves.1 << 4 | digit
            }
        }
        self.init(halves)
    }

    package var halves: (UInt64, UInt64) { (self.high, self.low) }

    /// Returns a UUID of random bits.
    package static func random() -> Identifier {
        Identifier(high: .random(in: .min ... .max), low: .random(in: .min ... .max)).asRandomUUID
    }

    /// The same bits with version 4 and the variant of RFC 9562, for ids made of random bits.
    package var asRandomUUID: Identifier {
        Identifier(
            high: self.high & 0xFFFF_FFFF_FFFF_0FFF | 0x4000,
            low: self.low & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
        )
    }

    /// The same bits with version 8 and the variant of RFC 9562, for ids made of a hash.
    package var asHashUUID: Identifier {
        Identifier(
            high: self.high & 0xFFFF_FFFF_FFFF_0FFF | 0x8000,
            low: self.low & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
        )
    }

    package var description: String {
        String(unsafeUninitializedCapacity: Self.length) { self.fill($0) }
    }

    /// Appends the hyphenated form.
    package func append(to bytes: inout [UInt8]) {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: Self.length) { buffer in
            _ = self.fill(buffer)
            bytes.append(contentsOf: buffer)
        }
    }

    /// Writes the hyphenated form as a JSON string.
    package func write(to writer: inout JSONWriter) {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: Self.length) { buffer in
            _ = self.fill(buffer)
            writer.string(utf8: UnsafeRawBufferPointer(buffer))
        }
    }

    private static let length = 36

    /// Fills a buffer of ``length`` bytes and returns the length.
    private func fill(_ buffer: UnsafeMutableBufferPointer<UInt8>) -> Int {
        let digits: StaticString = "0123456789abcdef"
        // In bounds: `table` has 16 bytes and every index is below 16; the buffer has 36 bytes.
        let table = digits.utf8Start
        var position = 0
        for digit in 0..<32 {
            if digit == 8 || digit == 12 || digit == 16 || digit == 20 {
                buffer[position] = UInt8(ascii: "-")
                position += 1
            }
            let half = digit < 16 ? self.high : self.low
            buffer[position] = table[Int(half >> UInt64(60 - digit % 16 * 4) & 0xF)]
            position += 1
        }
        return position
    }

    package static func < (left: Identifier, right: Identifier) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }
}
