// Carillon · StreamEntry.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// One entry of a Redis stream.
package struct StreamEntry: Sendable {
    package let id: String
    /// Names and values in their order; nil if the entry was deleted while it was pending.
    package let fields: [(name: String, value: ArraySlice<UInt8>)]?

    package init(id: String, fields: [(name: String, value: ArraySlice<UInt8>)]?) {
        self.id = id
        self.fields = fields
    }

    /// When it was appended, by Redis's clock; nil if its id has no time.
    package var appendedAt: Timestamp? { Self.moment(ofID: self.id) }

    /// The time that an entry's id begins with.
    static func moment(ofID id: String) -> Timestamp? {
        let milliseconds = id.split(separator: "-").first.flatMap { Int64($0) }
        return milliseconds.map { Timestamp(milliseconds: $0) }
    }

    package subscript(_ name: String) -> ArraySlice<UInt8>? {
        self.fields?.first { $0.name == name }?.value
    }

    /// Reads `[[id, [name, value, …]], …]` at the cursor.
    static func read(_ cursor: inout RedisCursor) throws(RedisError) -> [StreamEntry] {
        guard let count = try cursor.array() else { return [] }
        var entries: [StreamEntry] = []
        entries.reserveCapacity(count)
        for _ in 0..<count {
            // XCLAIM gives a null for an entry that was deleted.
            guard try cursor.array() != nil else { continue }
            let id = try cursor.string() ?? ""
            guard let fieldCount = try cursor.array() else {
                entries.append(StreamEntry(id: id, fields: nil))
                continue
            }
            var fields: [(name: String, value: ArraySlice<UInt8>)] = []
            fields.reserveCapacity(fieldCount / 2)
            for _ in 0..<fieldCount / 2 {
                let name = try cursor.string() ?? ""
                fields.append((name, try cursor.bytes() ?? []))
            }
            entries.append(StreamEntry(id: id, fields: fields))
        }
        return entries
    }
}
