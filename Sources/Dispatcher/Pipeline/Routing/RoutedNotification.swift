// Carillon · RoutedNotification.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

extension Notification {
    /// The reason of a pending notification whose delivery is in a provider's stream.
    static let queued = RecordedReason.queued.rawValue

    /// Whether its delivery is in a provider's stream and has not ended.
    var isQueued: Bool { self.status == .pending && self.statusReason == Self.queued }
}

/// A notification on its way from its job to the stage that owns it next.
struct RoutedNotification: Sendable {
    /// Boxed, because the stages copy it a dozen times and change it twice.
    private var box: Boxed<Notification>
    var progress: DecisionFacts.Progress
    /// The unread count of its inbox.
    var unread: Int32 = 0
    /// Whether it may have been enqueued before.
    var isRepeat = false
    /// The user's preferences; nil until they are looked up.
    var preferences: RecipientStore.Preferences?

    init(
        _ notification: Notification,
        _ progress: DecisionFacts.Progress,
        unread: Int32 = 0,
        isRepeat: Bool = false,
        preferences: RecipientStore.Preferences? = nil
    ) {
        self.box = Boxed(notification)
        self.progress = progress
        self.unread = unread
        self.isRepeat = isRepeat
        self.preferences = preferences
    }

    var notification: Notification {
        _read { yield self.box.value }
        _modify { yield &self.box.value }
    }

    /// Returns the notification to route after it was stored; nil if it is final, or was stored
    /// before.
    func toRoute(after outcome: NotificationStore.Outcome) -> RoutedNotification? {
        guard case .stored(let version, let unread) = outcome, self.notification.status == .pending else { return nil }
        return self.stored(version, unread, isRepeat: false)
    }

    /// Returns a notification that was stored before, to publish and push it again; nil if there is
    /// no need.
    ///
    /// Its owner may have died before it published the frame, or Redis may have lost the push.
    func toRedo(after outcome: NotificationStore.Outcome) -> RoutedNotification? {
        guard case .known(let version, let unread, let status, let isOwned) = outcome,
            status == .pending && isOwned || version > 0 && [.sent, .failed, .expired, .deferred].contains(status)
        else { return nil }
        return self.stored(version, unread, isRepeat: true)
    }

    private func stored(_ version: Int64, _ unread: Int32, isRepeat: Bool) -> RoutedNotification {
        var item = self
        item.notification.version = version
        item.unread = unread
        item.isRepeat = isRepeat
        item.progress = .stored
        return item
    }

    /// Whether a delivery of it may already wait for a retry or be held back.
    var mayWait: Bool {
        switch self.progress {
        case .arrived, .due(.release): false
        case .unproven: self.notification.isQueued
        case .stored, .due(.attention), .due(.email): self.isRepeat
        }
    }
}

/// A stored batch of jobs: what to route, set aside and acknowledge.
struct StoredBatch: Sendable {
    /// An event that goes to sockets only, for a user or for everyone.
    struct Event: Sendable {
        /// The stream entry's id.
        let entry: String
        let frame: NodeFrame
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
    var finished: [String] = []
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
        batch.finished.removeAll { !entries.contains($0) }
        batch.events.removeAll { !entries.contains($0.entry) }
        batch.dead.removeAll { letter in
            let entry = self.deadEntries[ExactText("\(letter.stream)/\(letter.entry)")]
            return entry.map { !entries.contains($0) } ?? false
        }
        for index in batch.toRoute.indices { batch.toRoute[index].isRepeat = true }
        return batch
    }
}

/// A large value on the heap: a copy is one reference, and a change copies the value first if
/// others refer to it.
struct Boxed<Value: Sendable>: Sendable {
    /// Sound without checks by the compiler: a storage with several owners never changes.
    private final class Storage: @unchecked Sendable {
        var value: Value

        init(_ value: Value) {
            self.value = value
        }
    }

    private var storage: Storage

    init(_ value: Value) {
        self.storage = Storage(value)
    }

    var value: Value {
        _read { yield self.storage.value }
        _modify {
            if !isKnownUniquelyReferenced(&self.storage) { self.storage = Storage(self.storage.value) }
            yield &self.storage.value
        }
    }
}
