// Carillon · Facts.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Facts about one notification, for tests to change.
enum Facts {
    static let now = Timestamp(seconds: 1_795_168_800)
    static let connection = ConnectionPresence(
        connection: "c1", node: "n1", dialect: .native, state: .active, since: Self.now)

    /// A push notification that expires in a minute.
    static func notification(_ change: (inout Notification) -> Void = { _ in }) -> Notification {
        var notification = Notification(
            id: NotificationID(high: 1, low: 2), user: "u1", type: "greeting", createdAt: self.now)
        notification.delivery = .push
        notification.expiresAt = self.now + .seconds(60)
        change(&notification)
        return notification
    }

    /// A notification to a user with one device and an address, of a type with default settings.
    static func make(
        _ progress: DecisionFacts.Progress,
        of notification: Notification = Facts.notification(),
        _ change: (inout DecisionFacts) -> Void = { _ in }
    ) -> DecisionFacts {
        var notification = notification
        // A stored one has the channels of its type.
        if progress != .arrived { notification.channels = [.inApp, .push] }
        var facts = DecisionFacts(
            notification: notification, type: NotificationType(name: "greeting"), progress: progress, now: self.now)
        facts.deviceCount = 1
        facts.settings.email = "u1@example.com"
        facts.presence = .offline
        change(&facts)
        return facts
    }
}
