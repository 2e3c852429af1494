// Carillon · BroadcastColumns.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Rows as broadcasts.
enum BroadcastColumns {
    /// The most urgent lane has the smallest number.
    static func urgency(_ lane: Lane) -> Int32 { Int32(Lane.allCases.firstIndex(of: lane) ?? 0) }

    /// `[[name, value], …]`: what was decoded is text without U+0000.
    static func json(_ fields: [(name: String, value: ArraySlice<UInt8>)]) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginArray()
        for field in fields {
            writer.beginArray()
            writer.string(field.name)
            writer.string(String(decoding: field.value, as: UTF8.self))
            writer.endArray()
        }
        writer.endArray()
        return writer.bytes
    }

    private static func fields(_ json: [UInt8]?) -> [(name: String, value: ArraySlice<UInt8>)] {
        let pairs = json.flatMap { try? JSONParser.parse($0) }?.array ?? []
        return pairs.compactMap { pair in
            guard let texts = pair.strings, texts.count == 2 else { return nil }
            return (texts[0], Array(texts[1].utf8)[...])
        }
    }

    /// Reads a broadcast whose columns begin at `first`.
    static func read(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) -> Broadcast {
        var broadcast = Broadcast(
            id: NotificationID(try row.uuid(first)),
            org: try row.text(first + 1),
            jobID: try row.text(first + 2),
            entry: try row.text(first + 3),
            stream: try row.text(first + 4),
            fields: Self.fields(try row.optionalJSON(first + 5)),
            topic: try row.optionalText(first + 6),
            lane: Lane(rawValue: try row.text(first + 7)) ?? .normal,
            createdAt: Timestamp(microseconds: try row.timestamptz(first + 11))
        )
        broadcast.state = Broadcast.State(rawValue: try row.text(first + 8)) ?? .failed
        broadcast.reason = try row.optionalText(first + 9)
        broadcast.audience = try row.optionalInt8(first + 10)
        broadcast.withdrawnTo = try row.text(first + 12)
        broadcast.withdrawn = try row.int8(first + 13)
        return broadcast
    }

    /// Reads a broadcast and how far it has come.
    static func progress(_ row: PostgresRow) throws(PostgresError) -> Broadcast.Progress {
        let next = BroadcastSQL.columnCount
        return Broadcast.Progress(
            broadcast: try Self.read(row),
            isHeld: try row.bool(next),
            chainsDone: try row.int8(next + 1),
            pages: try row.int8(next + 2),
            selected: try row.int8(next + 3),
            stored: try row.int8(next + 4),
            counted: try row.optionalJSON(next + 5) ?? Array("{}".utf8)
        )
    }
}
