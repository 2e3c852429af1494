// Carillon · Broadcast.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A job for a topic's subscribers or for everyone, as it is stored.
package struct Broadcast: Sendable {
    /// Where a broadcast stands.
    package enum State: String, Sendable, CaseIterable {
        /// Its audience is being counted.
        case counting
        /// Its audience is so large that somebody has to say that it is meant.
        case awaitingConfirmation = "awaiting_confirmation"
        case expanding
        case paused
        case done
        /// What it stored and nobody has got yet is being withdrawn.
        case cancelling
        case cancelled
        /// It could not be stored; the reason says why.
        case failed

        /// Whether nothing more is stored or withdrawn.
        package var isFinal: Bool { self == .done || self == .cancelled || self == .failed }
    }

    package let id: NotificationID
    package let org: String
    /// The job's own id; the broadcast's where the job has none.
    package let job: String
    /// `stream/entry` that made it.
    package let entry: String
    package let stream: String
    /// The entry's fields, in their order.
    package let fields: [(name: String, value: ArraySlice<UInt8>)]
    /// Nil for everyone.
    package let topic: String?
    package let lane: Lane
    /// When its job was made, or brought back from the dead letters: from when its times to live count.
    package let createdAt: Timestamp
    package var state = State.counting
    package var reason: String?
    /// How many users the audience had when they were counted.
    package var audience: Int64?
    /// How far its withdrawal has come, and how many notifications were withdrawn.
    package var withdrawnTo = ""
    package var withdrawn: Int64 = 0

    /// - Parameter jobID: the job's own id, if it has one.
    package init(
        id: NotificationID,
        org: String,
        jobID: String?,
        entry: String,
        stream: String,
        fields: [(name: String, value: ArraySlice<UInt8>)],
        topic: String?,
        lane: Lane,
        createdAt: Timestamp
    ) {
        self.id = id
        self.org = org
        self.job = jobID ?? id.description
        self.entry = entry
        self.stream = stream
        self.fields = fields
        self.topic = topic
        self.lane = lane
        self.createdAt = createdAt
    }

    /// A part of a broadcast's users that one dispatcher expands at a time.
    package struct Chain: Sendable {
        package let broadcast: Broadcast
        package let part: Int
        /// How many pages there are.
        package var pages: Int
        /// The last user of the last page.
        package var reached: String
    }

    /// A page of a chain, before it is stored.
    package struct Page: Sendable {
        /// The last user of the page.
        package var until: String
        /// How many users were selected.
        package var selected: Int
        /// How many of them get a notification.
        package var stored: Int
        /// How many of the others do not, by reason.
        package var counted: [String: Int]
        /// Whether none comes after it.
        package var isLast: Bool

        package init(until: String, selected: Int, stored: Int, counted: [String: Int], isLast: Bool) {
            self.until = until
            self.selected = selected
            self.stored = stored
            self.counted = counted
            self.isLast = isLast
        }
    }

    /// How far a broadcast has come.
    package struct Progress: Sendable {
        package let broadcast: Broadcast
        /// Whether its expansion waits for room in the deliveries streams.
        package let isHeld: Bool
        package let chainsDone: Int64
        package let pages: Int64
        package let selected: Int64
        package let stored: Int64
        /// Those who were selected and got nothing, by reason: a JSON object.
        package let counted: [UInt8]
    }

    /// What became of a broadcast that was to be stored.
    package enum Outcome: Sendable, Equatable {
        /// Stored now, or known by its entry.
        case taken
        /// Another entry with the same job id was stored before.
        case duplicate
        /// As a duplicate, but what it says is not what the stored one says.
        case conflict
    }
}

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
