// Carillon · StoredBatch.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// A batch of jobs after the commit: what is to be fanned out, set aside and acknowledged.
struct StoredBatch: Sendable {
    /// A stored notification that has to go on its way.
    struct Open: Sendable {
        let notification: Notification
        let unread: Int32
        /// Whether it may have been fanned out before.
        var isRepeat: Bool
        /// What the user wants of it; nil if that is not known.
        var wishes: RecipientStore.Wishes?

        init(notification: Notification, unread: Int32, isRepeat: Bool) {
            self.notification = notification
            self.unread = unread
            self.isRepeat = isRepeat
        }

        /// What has to go on its way after it was stored; nil if it need not, or others are at it.
        init?(_ notification: Notification, _ outcome: NotificationStore.Outcome) {
            var notification = notification
            switch outcome {
            case .stored(let version, let unread):
                guard notification.status == .pending else { return nil }
                notification.version = version
                self.init(notification: notification, unread: unread, isRepeat: false)
            case .known(let version, let unread, let status, let isOwned):
                guard status == .pending, !isOwned else { return nil }
                notification.version = version
                self.init(notification: notification, unread: unread, isRepeat: true)
            case .duplicate, .conflict, .cancelled, .replaced:
                return nil
            }
        }
    }

    /// What was stored before, is listed, and is somebody's to bring on its way.
    static func shown(_ notification: Notification, _ outcome: NotificationStore.Outcome) -> Open? {
        guard case .known(let version, let unread, let status, let isOwned) = outcome, version > 0,
            [.sent, .failed, .deferred].contains(status) || status == .pending && isOwned
        else { return nil }
        var notification = notification
        notification.version = version
        return Open(notification: notification, unread: unread, isRepeat: true)
    }

    /// An event that goes to sockets only.
    struct Event: Sendable {
        /// The stream entry's id; empty for a page of a broadcast.
        var entry = ""
        let user: String
        let name: String
        let arguments: [UInt8]
    }

    /// An event that goes to every socket but those of some users.
    struct EventForEveryone: Sendable {
        let entry: String
        let name: String
        let arguments: [UInt8]
        let except: [String]
    }

    let group: ConsumerGroup
    /// The one that the batch began with.
    let catalog: Catalog
    /// Holds while the stored rows are this process's alone.
    let fence: Fence
    var open: [Open] = []
    var events: [Event] = []
    var eventsForEveryone: [EventForEveryone] = []
    /// What was stored before and has an owner: sockets may still lack it.
    var shown: [Open] = []
    /// What newer notifications took the place of.
    var replaced: [NotificationStore.Replacement] = []
    var dead: [DeadLetter] = []
    /// What became of those that go no further.
    var told: [LifecycleEvent] = []
    var finished: [String] = []
    /// Entries, each with its stream, whose job id somebody has who was told something else.
    var conflicts: Set<String> = []

    /// The batch with those of its entries that are still this process's.
    ///
    /// The dispatcher that took over the others sends their events and acknowledges them.
    /// Notifications stay, as repeats.
    func keeping(_ entries: Set<String>) -> StoredBatch {
        var batch = self
        batch.finished.removeAll { !entries.contains($0) }
        batch.events.removeAll { !entries.contains($0.entry) }
        batch.eventsForEveryone.removeAll { !entries.contains($0.entry) }
        for index in batch.open.indices { batch.open[index].isRepeat = true }
        return batch
    }

    /// Hands on what users want of their notifications, so that nobody has to ask again.
    mutating func setWishes(_ wishes: (NotificationID) -> RecipientStore.Wishes) {
        for index in self.open.indices { self.open[index].wishes = wishes(self.open[index].notification.id) }
    }
}
