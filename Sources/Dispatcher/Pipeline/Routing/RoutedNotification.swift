// Carillon · RoutedNotification.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

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
