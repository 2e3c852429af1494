// Carillon · NotificationID.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto

/// A UUID that sorts by time (RFC 9562, version 8): 48 bits of Unix milliseconds, 12 bits for the
/// entry's number within its millisecond, and 62 bits of a hash.
///
/// Numbers beyond 12 bits carry into the milliseconds: while its clock is behind the last entry,
/// Redis repeats that entry's millisecond and counts up.
///
/// The hash covers the stream entry and the user, so taking an entry twice gives the same ids.
package struct NotificationID: Sendable, Hashable, Comparable, CustomStringConvertible {
    /// The ends of the sort order, where paging begins.
    package static let least = NotificationID(high: 0, low: 0)
    package static let greatest = NotificationID(high: .max, low: .max)

    package let high: UInt64
    package let low: UInt64

    package init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    package init(_ halves: (UInt64, UInt64)) {
        self.init(high: halves.0, low: halves.1)
    }

    /// The id of `user`'s notification from the entry of `origin`.
    package init(origin: EntryDigest, user: String) {
        let bits = origin.hash(with: user).withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
        let sequence = UInt64(origin.sequence)
        let milliseconds = (UInt64(clamping: origin.milliseconds) + (sequence >> 12)) & 0xFFFF_FFFF_FFFF
        self.high = milliseconds << 16 | 0x8000 | sequence & 0x0FFF
        self.low = 0x8000_0000_0000_0000 | (bits & 0x3FFF_FFFF_FFFF_FFFF)
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
    package static func random() -> NotificationID {
        NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)).asRandomUUID
    }

    /// The same bits with version 4 and the variant of RFC 9562, for ids made of random bits.
    package var asRandomUUID: NotificationID {
        NotificationID(
            high: self.high & 0xFFFF_FFFF_FFFF_0FFF | 0x4000,
            low: self.low & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
        )
    }

    /// The same bits with version 8 and the variant of RFC 9562, for ids made of a hash.
    package var asHashUUID: NotificationID {
        NotificationID(
            high: self.high & 0xFFFF_FFFF_FFFF_0FFF | 0x8000,
            low: self.low & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
        )
    }

    /// When the stream entry was added, in Unix milliseconds; meaningless for ids of other origin.
    package var milliseconds: Int64 { Int64(self.high >> 16) }

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
        for place in 0..<32 {
            if place == 8 || place == 12 || place == 16 || place == 20 {
                buffer[position] = UInt8(ascii: "-")
                position += 1
            }
            let half = place < 16 ? self.high : self.low
            buffer[position] = table[Int(half >> UInt64(60 - place % 16 * 4) & 0xF)]
            position += 1
        }
        return position
    }

    package static func < (left: NotificationID, right: NotificationID) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }
}

/// The input of notification ids: a stream entry's stream, id and fields.
///
/// The fields count too, because a failed-over Redis may reuse an entry id.
package struct EntryDigest: Sendable {
    /// Up to this many bytes are hashed again for each user; that is faster than copying a hash
    /// state.
    private static let fewBytes = 1_024

    /// The bytes to hash before the user, or the state of their hash.
    private let bytes: [UInt8]
    private let hash: SHA256?
    fileprivate let milliseconds: Int64
    /// The entry's number within its millisecond, clamped so that it adds at most 18 minutes.
    fileprivate let sequence: UInt32

    /// - Parameters:
    ///   - stream: the stream's key.
    ///   - entry: the entry's id, `milliseconds-sequence`.
    ///   - fields: its fields in their order.
    ///   - isOfMillisecond: whether the sequence counts the entries of the millisecond. Any other
    ///     number is clamped to 12 bits, because it says nothing about time.
    package init(
        stream: String,
        entry: String,
        fields: [(name: String, value: ArraySlice<UInt8>)],
        isOfMillisecond: Bool = true
    ) {
        let dash = entry.utf8.firstIndex(of: UInt8(ascii: "-"))
        self.milliseconds = Int64(entry[..<(dash ?? entry.endIndex)]) ?? 0
        let number = dash.flatMap { UInt64(entry[entry.utf8.index(after: $0)...]) }
        self.sequence = min(UInt32(clamping: number ?? 0), isOfMillisecond ? .max : 0x0FFF)
        let length = fields.reduce(stream.utf8.count + entry.utf8.count + 2) { length, field in
            length + field.name.utf8.count + field.value.count + 2
        }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(length)
        for text in [stream, entry] {
            bytes += text.utf8
            bytes.append(0xFF)
        }
        for field in fields {
            bytes += field.name.utf8
            bytes.append(0xFF)
            bytes += field.value
            bytes.append(0xFF)
        }
        if bytes.count <= Self.fewBytes {
            self.bytes = bytes
            self.hash = nil
        } else {
            var hash = SHA256()
            hash.update(data: bytes)
            self.bytes = []
            self.hash = hash
        }
    }

    fileprivate func hash(with user: String) -> SHA256Digest {
        guard var hash else {
            var bytes = self.bytes
            bytes += user.utf8
            return SHA256.hash(data: bytes)
        }
        hash.update(data: Array(user.utf8))
        return hash.finalize()
    }
}

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
