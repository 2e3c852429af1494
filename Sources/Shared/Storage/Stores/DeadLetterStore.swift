// Carillon · DeadLetterStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import FoundationEssentials

/// The mirror of the dead stream.
package struct DeadLetterStore: Sendable {
    let pool: PostgresPool

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

    /// Whether there is a letter of an origin.
    package func has(stream: String, entry: String) async throws(PostgresError) -> Bool {
        let result = try await self.pool.query(
            "SELECT FROM carillon.dead_letters WHERE stream = $1 AND entry = $2", .text(stream), .text(entry)
        )
        return !result.isEmpty
    }

    /// Takes a user out of the letters: those for the user alone go, those for several lose the name.
    ///
    /// - Returns: how many letters were changed.
    package func erase(user: String) async throws(PostgresError) -> Int {
        var count = 0
        var last = (stream: "", entry: "")
        while true {
            let result = try await self.pool.query(
                """
                SELECT d.stream, d.entry, d.fields FROM carillon.dead_letters d
                WHERE (d.stream, d.entry) > ($2, $3) AND \(DeadLetterErasure.mayName("$1", in: "d.fields"))
                ORDER BY d.stream, d.entry LIMIT 500
                """,
                .text(user), .text(last.stream), .text(last.entry)
            )
            var changes: [PostgresStatement] = []
            for row in result {
                last = (try row.text(0), try row.text(1))
                let fields = try row.optionalJSON(2).flatMap { try? JSONParser.parse($0) }?.array ?? []
                switch DeadLetterErasure.change(fields, user: user) {
                case .none: break
                case .remove:
                    changes.append(
                        PostgresStatement(
                            "DELETE FROM carillon.dead_letters WHERE stream = $1 AND entry = $2",
                            [.text(last.stream), .text(last.entry)]
                        )
                    )
                case .replace(let fields):
                    changes.append(
                        PostgresStatement(
                            "UPDATE carillon.dead_letters SET fields = $3 WHERE stream = $1 AND entry = $2",
                            [.text(last.stream), .text(last.entry), .jsonb(JSONWriter.bytes(of: .array(fields)))]
                        )
                    )
                }
            }
            if !changes.isEmpty { try await self.pool.run(changes) }
            count += changes.count
            if result.isEmpty { return count }
        }
    }

    /// `[[name, value], …]`, since names may repeat; what is not text stands as `{"base64": "…"}`.
    static func json(_ fields: [(name: String, value: ArraySlice<UInt8>)]) -> [UInt8] {
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
            writer.member("base64", Data(bytes).base64EncodedString())
            writer.endObject()
        }
    }
}
