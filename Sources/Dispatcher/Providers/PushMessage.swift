// Carillon · PushMessage.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import Model

/// What a device is to be told, before a provider's form is put on it.
package struct PushMessage: Sendable {
    package var notification: Notification
    /// What the app's icon shows.
    package var badge: Int64
    package var now: Timestamp

    /// - Parameters:
    ///   - unread: the user's unread count, unless the notification names a badge itself.
    ///   - now: from which the rest of its time to live counts.
    package init(notification: Notification, unread: Int64, now: Timestamp) {
        self.notification = notification
        self.badge = notification.extras.badge ?? unread
        self.now = now
    }

    /// How long it may still be delivered, in whole seconds; nil if it never expires.
    var secondsToLive: Int64? {
        self.notification.expiresAt.map { max(0, ($0 - self.now).components.seconds) }
    }

    var isUrgent: Bool { self.notification.severity == .alert }

    /// The members of `data`, in their order; empty if there are none.
    var dataMembers: [JSONMember] {
        guard let data = self.notification.data else { return [] }
        // It was checked when the job was taken.
        return (try? JSONParser.parse(data))?.object ?? []
    }
}
