// Carillon · NotificationDraft.swift
// SPDX-License-Identifier: Apache-2.0

/// What a job's notifications have in common: its content with the type's defaults filled in.
package struct NotificationDraft: Sendable {
    private let content: JobContent
    private let type: NotificationType
    private let lane: Lane
    private let createdAt: Timestamp

    /// - Parameters:
    ///   - lane: that of the stream the job came by; the more urgent of it and the job's own counts.
    ///   - createdAt: when the job was appended.
    package init(
        _ content: JobContent,
        type: NotificationType,
        lane: Lane,
        createdAt: Timestamp
    ) {
        self.content = content
        self.type = type
        self.lane = Lane.mostUrgent(content.lane ?? type.lane, lane)
        self.createdAt = createdAt
    }

    /// One user's notification, before what the user wants is known.
    package func notification(id: NotificationID, user: String) -> Notification {
        var notification = Notification(id: id, user: user, type: self.type.name, createdAt: self.createdAt)
        notification.severity = self.content.severity ?? self.type.severity
        notification.delivery = self.content.delivery ?? self.type.delivery
        notification.lane = self.lane
        notification.channels = self.content.channels ?? .all
        notification.title = self.content.title
        notification.body = self.content.body
        notification.data = self.content.data
        notification.extras = self.content.extras
        notification.extras.sound = self.content.extras.sound ?? self.type.sound
        notification.category = self.content.category ?? self.type.category
        notification.entityType = self.content.entityType
        notification.entityID = self.content.entityID
        notification.collapseKey = self.content.collapseKey
        notification.expiresAt = self.content.expiresAt ?? (self.createdAt + self.type.timeToLive)
        notification.keepUntil = self.content.keepUntil
        return notification
    }
}
