// Carillon · StoredBatch.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// A stored batch of jobs: what to route, set aside and acknowledge.
struct StoredBatch: Sendable {
    /// A job's event, which goes to sockets only.
    struct Event: Sendable {
        /// The stream entry's id.
        let entry: String
        /// The job's first entry, even if the job was scheduled; see ``JobOrigin/jobEntry``.
        let jobEntry: String
        let org: String
        let job: String?
        /// One frame for each user, or one for everyone.
        let frames: [NodeFrame]
    }

    /// Returns the body of an event's frame.
    static func body(_ name: String, _ arguments: [UInt8]) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("name", name)
        writer.key("args")
        writer.raw(arguments)
        writer.endObject()
        return writer.bytes
    }

    let group: ConsumerGroup
    /// The catalog that the batch began with.
    let catalog: Catalog
    /// Whether the stored rows still belong to this process.
    let fence: Fence
    /// The notifications to route.
    var toRoute: [RoutedNotification] = []
    /// Notifications that were stored before but not routed; they are routed as stored.
    var unowned: [Notification] = []
    var events: [Event] = []
    /// Notifications that were stored before; their frames and pushes may be lost, so both are
    /// repeated.
    var toRedo: [RoutedNotification] = []
    /// Notifications that newer ones replaced.
    var replaced: [NotificationStore.Replacement] = []
    var dead: [DeadLetter] = []
    /// The entries of the dead letters, by the origins that they name.
    var deadEntries: [ExactText: String] = [:]
    /// The lifecycle events to report with the acknowledgement.
    var lifecycle: [LifecycleEvent] = []
    /// The stream entries to acknowledge.
    var toAcknowledge: [String] = []
    /// The users who have a job's id with other content, by the job's origin.
    var conflicts: [String: Set<ExactText>] = [:]
    /// The users of due pages, counted by entry and reason; users with a notification count as
    /// ``ScheduleStore/stored``.
    var pageOutcomes: [String: PageCounts] = [:]

    /// Returns the batch without entries that other dispatchers have taken over.
    ///
    /// Those dispatchers send the events, store the dead letters and acknowledge the entries.
    /// Notifications stay, as repeats.
    func keeping(_ entries: Set<String>) -> StoredBatch {
        var batch = self
        batch.toAcknowledge.removeAll { !entries.contains($0) }
        batch.events.removeAll { !entries.contains($0.entry) }
        batch.dead.removeAll { letter in
            let entry = self.deadEntries[ExactText("\(letter.stream)/\(letter.entry)")]
            return entry.map { !entries.contains($0) } ?? false
        }
        for index in batch.toRoute.indices { batch.toRoute[index].isRepeat = true }
        return batch
    }
}
