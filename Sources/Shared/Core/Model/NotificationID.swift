// Carillon · NotificationID.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto

extension NotificationID {
    /// Derives the id of a user's notification from its job's stream entry.
    ///
    /// 48 bits of Unix milliseconds, 12 bits for the entry's number within its millisecond, and 62
    /// bits of a hash (RFC 9562, version 8), so ids sort by time. Numbers beyond 12 bits carry into
    /// the milliseconds: while its clock is behind the last entry, Redis repeats that entry's
    /// millisecond and counts up.
    ///
    /// The hash covers the entry and the user, so taking an entry twice gives the same ids.
    package init(origin: EntryDigest, user: String) {
        let bits = origin.hash(with: user).withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
        let sequence = UInt64(origin.sequence)
        let milliseconds = (UInt64(clamping: origin.milliseconds) + (sequence >> 12)) & 0xFFFF_FFFF_FFFF
        self.init(
            high: milliseconds << 16 | 0x8000 | sequence & 0x0FFF,
            low: 0x8000_0000_0000_0000 | (bits & 0x3FFF_FFFF_FFFF_FFFF)
        )
    }

    /// When the stream entry was added, in Unix milliseconds; meaningless for ids of other origin.
    package var milliseconds: Int64 { Int64(self.high >> 16) }
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
