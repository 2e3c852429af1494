// Carillon · DeadStream.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// An entry that cannot be processed, with the reason, its origin and its fields.
package struct DeadLetter: Sendable {
    package let stream: String
    package let entry: String
    package let reason: String
    package let at: Timestamp
    package let fields: [(name: String, value: ArraySlice<UInt8>)]

    package init(
        stream: String,
        entry: String,
        reason: String,
        at: Timestamp,
        fields: [(name: String, value: ArraySlice<UInt8>)]
    ) {
        self.stream = stream
        self.entry = entry
        // A reason may quote a field's name; PostgreSQL's text cannot contain U+0000.
        self.reason = String(reason.unicodeScalars.map { $0.value == 0 ? "\u{FFFD}" : Character($0) })
        self.at = at
        self.fields = fields
    }
}

/// The dead-letter stream, which is bounded; PostgreSQL keeps a copy.
package struct DeadStream: Sendable {
    static let maximumLength: Int64 = 100_000

    private let key: String

    package init(keys: Keyspace) {
        self.key = keys.dead
    }

    /// Adds a dead letter to a batch: `dead_reason`, `dead_stream`, `dead_entry` and `dead_at`
    /// before the original fields.
    package func add(_ letter: DeadLetter, in batch: inout RedisBatch) {
        var arguments: [RedisArgument] = [
            "XADD", .text(self.key), "MAXLEN", "~", .integer(Self.maximumLength), "*",
            "dead_reason", .text(letter.reason), "dead_stream", .text(letter.stream),
            "dead_entry", .text(letter.entry), "dead_at", .text(letter.at.rfc3339),
        ]
        for field in letter.fields {
            arguments.append(.text(field.name))
            arguments.append(.slice(field.value))
        }
        batch.append(arguments)
    }
}
