// Carillon · DeadLetterStore.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials
import JSON
package import Model
package import Postgres

/// The mirror of the dead stream.
package struct DeadLetterStore: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) {
        self.pool = pool
    }

    /// Stores letters; one whose origin is there already is left as it is.
    package func add(
        _ letters: [(
            stream: String, entry: String, reason: String, at: Timestamp,
            fields: [(name: String, value: ArraySlice<UInt8>)]
        )]
    ) async throws(PostgresError) {
        guard !letters.isEmpty else { return }
        var fields = PostgresArray(.jsonb)
        var moments = PostgresArray(.timestamptz)
        for letter in letters {
            fields.append(json: Self.json(letter.fields))
            moments.append(timestamptz: letter.at.microseconds)
        }
        try await self.pool.query(
            """
            INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
            SELECT * FROM unnest($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
            """,
            .array(PostgresArray(texts: letters.map(\.stream))),
            .array(PostgresArray(texts: letters.map(\.entry))),
            .array(PostgresArray(texts: letters.map(\.reason))),
            .array(fields),
            .array(moments)
        )
    }

    /// `[[name, value], …]`, since names may repeat; what is not text stands as `{"base64": "…"}`.
    private static func json(_ fields: [(name: String, value: ArraySlice<UInt8>)]) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginArray()
        for field in fields {
            writer.beginArray()
            Self.write(ArraySlice(field.name.utf8), to: &writer)
            Self.write(field.value, to: &writer)
            writer.endArray()
        }
        writer.endArray()
        return writer.bytes
    }

    private static func write(_ bytes: ArraySlice<UInt8>, to writer: inout JSONWriter) {
        if !bytes.contains(0), let text = String(validating: bytes, as: UTF8.self) {
            writer.string(text)
        } else {
            writer.beginObject()
            writer.key("base64")
            writer.string(Data(bytes).base64EncodedString())
            writer.endObject()
        }
    }
}
