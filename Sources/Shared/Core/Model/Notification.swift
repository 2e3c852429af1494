// Carillon · Notification.swift
// SPDX-License-Identifier: Apache-2.0

/// One message to one user, as it is stored.
package struct Notification: Sendable, Equatable {
    package let id: NotificationID
    package let user: String
    /// The inbox version that its latest change got; 0 if it is not listed.
    package var version: Int64 = 0
    /// `stream/entry` that made it.
    package var jobEntry = ""
    package var org = ""
    package var jobID: String?
    package var type: String
    package var severity = Severity.info
    package var delivery = DeliveryClass.inApp
    package var lane = Lane.normal
    package var channels: Channels = .all
    package var title = ""
    package var body = ""
    package var data: [UInt8]?
    package var category: String?
    package var entityType: String?
    package var entityID: String?
    package var collapseKey: String?
    package var extras = NotificationExtras()
    package var status = NotificationStatus.pending
    package var statusReason: String?
    /// Why less was done than was asked for, such as a cap that was reached.
    package var decision: String?
    package var createdAt: Timestamp
    package var deliveredAt: Timestamp?
    package var openedAt: Timestamp?
    package var readAt: Timestamp?
    package var expiresAt: Timestamp?
    package var keepUntil: Timestamp?
    package var deletedAt: Timestamp?

    package init(id: NotificationID, user: String, type: String, createdAt: Timestamp) {
        self.id = id
        self.user = user
        self.type = type
        self.createdAt = createdAt
    }

    /// Whether it has a place in the inbox.
    package var isListed: Bool { self.channels.contains(.inApp) && self.status != .suppressed }
}
