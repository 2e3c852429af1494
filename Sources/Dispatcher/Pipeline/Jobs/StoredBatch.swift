// Carillon · StoredBatch.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Stores
import Streams

/// A batch of jobs after the commit: what is to be fanned out, set aside and acknowledged.
struct StoredBatch: Sendable {
    /// A stored notification that has to go on its way.
    struct Open: Sendable {
        let notification: Notification
        let unread: Int32
        /// Whether it may have been fanned out before.
        let isRepeat: Bool
        /// What the user wants of it; nil if that is not known.
        var wishes: RecipientStore.Wishes?
    }

    /// An event that goes to sockets only.
    struct Event: Sendable {
        let user: String
        let name: String
        let arguments: [UInt8]
    }

    let group: ConsumerGroup
    var open: [Open] = []
    var events: [Event] = []
    var dead: [DeadLetter] = []
    var finished: [String] = []

    /// Hands on what users want of their notifications, so that nobody has to ask again.
    mutating func setWishes(_ wishes: (NotificationID) -> RecipientStore.Wishes) {
        for index in self.open.indices { self.open[index].wishes = wishes(self.open[index].notification.id) }
    }
}
