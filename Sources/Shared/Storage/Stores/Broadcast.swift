// Carillon · Broadcast.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A stored job for the subscribers of a topic or for everyone.
package struct Broadcast: Sendable {
    /// The progress of a broadcast.
    package enum State: String, Sendable, CaseIterable {
        /// Its audience is being counted.
        case counting
        /// Its audience is so large that an operator must confirm it.
        case awaitingConfirmation = "awaiting_confirmation"
        case expanding
        case paused
        case done
        /// Its notifications that reached no device are being withdrawn.
        case cancelling
        case cancelled
        /// It could not be stored, for the given reason.
        case failed

        /// Whether nothing more is stored or withdrawn.
        package var isFinal: Bool { self == .done || self == .cancelled || self == .failed }
    }

    package let id: BroadcastID
    package let org: String
    /// The job's own id; the broadcast's if the job has none.
    package let job: String
    /// The `stream/entry` that it came from.
    package let entry: String
    package let stream: String
    /// The entry's fields, in order.
    package let fields: [(name: String, value: ArraySlice<UInt8>)]
    /// The topic; nil for everyone.
    package let topic: String?
    package let lane: Lane
    /// When the job was made or replayed; times to live count from here.
    package let createdAt: Timestamp
    package var state = State.counting
    package var reason: String?
    /// Whether its job is an event, which makes no deliveries.
    package var isEvent: Bool { self.fields.contains { $0.name == "event" } }
    /// The number of users in the audience; nil until they are counted.
    package var audience: Int64?
    /// The last user whose notification was withdrawn, and the number withdrawn.
    package var withdrawnTo = ""
    package var withdrawn: Int64 = 0

    /// - Parameter jobID: the job's own id, if it has one.
    package init(
        id: BroadcastID,
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
        /// Which of the 16 parts of the users it has, from 0.
        package let index: Int
        /// The number of pages.
        package var pages: Int
        /// The last user of the last page.
        package var reached: String
    }

    /// A page of a chain, before it is stored.
    package struct Page: Sendable {
        /// The last user of the page.
        package var until: String
        /// The number of users, without excluded ones.
        package var selected: Int
        /// The number of users who get a notification.
        package var stored: Int
        /// The number of users who get none, by reason.
        package var counted: PageCounts
        /// Whether this is the last page.
        package var isLast: Bool
        /// Whether it is the last page and selects no user, so that it needs no row.
        package var isEmptyEnd: Bool { self.isLast && self.selected == 0 }

        package init(until: String, selected: Int, stored: Int, counted: PageCounts, isLast: Bool) {
            self.until = until
            self.selected = selected
            self.stored = stored
            self.counted = counted
            self.isLast = isLast
        }
    }

    /// A broadcast and its progress.
    package struct Progress: Sendable {
        package let broadcast: Broadcast
        /// Whether the expansion waits because too many deliveries of its lane wait.
        package let isHeld: Bool
        package let chainsDone: Int64
        package let pages: Int64
        package let selected: Int64
        package let stored: Int64
        /// The number of selected users without a notification, by reason: a JSON object.
        package let counted: [UInt8]
    }

    /// The outcome of storing a broadcast.
    package enum Outcome: Sendable, Equatable {
        /// Stored now, or known by its entry.
        case stored
        /// Another entry with the same job id was stored before.
        case duplicate
        /// A duplicate with different content.
        case conflict
    }
}

/// The number of a page's users, by a reason of routing or a ``PageOutcomeReason``.
package typealias PageCounts = [String: Int]

extension PageCounts {
    /// Adds users, if there are any.
    package mutating func add(_ users: Int, _ reason: PageOutcomeReason) {
        if users > 0 { self[reason.rawValue, default: 0] += users }
    }
}

/// Why a user of a page has no notification, apart from the reasons of routing.
package enum PageOutcomeReason: String, Sendable {
    /// A digest holds the notification.
    case held
    /// The text could not be rendered; a dead letter names the user.
    case textFailed = "text_failed"
    /// The user already has a notification with the job's id.
    case duplicate
    /// The local time has not come.
    case scheduled
    /// The local time passed too long ago.
    case missed
    /// The user left the topic before the local time.
    case leftTopic = "left_topic"
    /// The job is an event, which goes to open sockets only.
    case event
}

/// Reads and writes rows of broadcasts.
enum BroadcastColumns {
    /// Reads a broadcast whose columns begin at `first`.
    static func read(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) -> Broadcast {
        var broadcast = Broadcast(
            id: try row.id(first),
            org: try row.text(first + 1),
            jobID: try row.text(first + 2),
            entry: try row.text(first + 3),
            stream: try row.text(first + 4),
            fields: FieldsColumn.fields(try row.optionalJSON(first + 5) ?? []).map { ($0.name, $0.value[...]) },
            topic: try row.optionalText(first + 6),
            lane: Lane(rawValue: try row.text(first + 7)) ?? .normal,
            createdAt: try row.timestamp(first + 11)
        )
        broadcast.state = Broadcast.State(rawValue: try row.text(first + 8)) ?? .failed
        broadcast.reason = try row.optionalText(first + 9)
        broadcast.audience = try row.optionalInt8(first + 10)
        broadcast.withdrawnTo = try row.text(first + 12)
        broadcast.withdrawn = try row.int8(first + 13)
        return broadcast
    }

    /// Reads a broadcast and its progress.
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
