// Carillon · Schedule.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A job that is due later: once, or again and again.
package struct Schedule: Sendable {
    /// Whether it is going to fire.
    package enum State: String, Sendable {
        case waiting, failed
    }

    /// What stands for a zone where each recipient's own is meant.
    package static let recipientZone = "recipient"
    /// What stands for an entry where a schedule was made by a call.
    package static let api = "api"

    package let id: NotificationID
    /// Tells firings of the same millisecond apart; given by the database.
    package internal(set) var number: Int64 = 0
    package var org = ""
    /// The job's own id.
    package var jobID: String?
    /// Which part of its job it is; empty for the whole.
    package var part = ""
    /// The user, where the job is for one alone.
    package var user: String?
    /// The entry that it came by, or ``api``.
    package var source = Schedule.api
    package var lane = Lane.normal
    /// The job's fields, without those that say when it is due.
    package var fields: [(name: String, value: [UInt8])]
    /// A hash of what was asked for.
    package var content: Int64 = 0
    package var dueAt: Timestamp
    package var cron: String?
    /// The zone that ``dueAt`` follows from.
    package var zone: String?
    /// What clocks show when it is due.
    package var wall: WallTime?
    package var startsAt: Timestamp?
    package var endsAt: Timestamp?
    package var state = State.waiting
    package var stateReason: String?
    package internal(set) var lastFiredAt: Timestamp?
    /// How the firing that is due stands: 0 until it is claimed, 1 when it was once, 2 when it was again, and one more each
    /// time that its turn came to be fired alone.
    package internal(set) var attempts = 0
    package var createdAt: Timestamp

    package init(
        id: NotificationID,
        fields: [(name: String, value: [UInt8])],
        dueAt: Timestamp,
        createdAt: Timestamp
    ) {
        self.id = id
        self.fields = fields
        self.dueAt = dueAt
        self.createdAt = createdAt
    }

    package var isRecurring: Bool { self.cron != nil }
}
