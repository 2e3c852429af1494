// Carillon · StoredBatch.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Streams

/// A batch of jobs after the commit: what is to be fanned out, set aside and acknowledged.
struct StoredBatch: Sendable {
    /// A stored notification that has to go on its way.
    struct Open: Sendable {
        let notification: Notification
        let unread: Int32
        /// Whether it may have been fanned out before.
        let isRepeat: Bool
    }

    /// An event that goes to sockets only.
    struct Event: Sendable {
        let user: String
        let name: String
        let arguments: [UInt8]
    }

    /// An event that goes to every socket but those of some users.
    struct EventForEveryone: Sendable {
        let name: String
        let arguments: [UInt8]
        let except: [String]
    }

    let group: ConsumerGroup
    var open: [Open] = []
    var events: [Event] = []
    var eventsForEveryone: [EventForEveryone] = []
    var dead: [DeadLetter] = []
    var finished: [String] = []
    /// Entries, each with its stream, whose job id somebody has who was told something else.
    var conflicts: Set<String> = []
}
