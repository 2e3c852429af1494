// Carillon · Notification.swift
// SPDX-License-Identifier: Apache-2.0

/// One message to one user, as it is stored.
package struct Notification: Sendable, Equatable {
    package let id: NotificationID
    package let user: String
    /// The inbox version of its latest change; 0 if it is not listed.
    package var version: Int64 = 0
    /// The job's `stream/entry`.
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
    /// Why less was done than requested, such as a reached cap.
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

    /// When it expires or is no longer kept, whichever comes first; nil if never.
    package var endsAt: Timestamp? {
        guard let expiresAt = self.expiresAt, let keepUntil = self.keepUntil else {
            return self.expiresAt ?? self.keepUntil
        }
        return min(expiresAt, keepUntil)
    }

    /// Whether its delivery is in a provider's stream and has not ended.
    package var isQueued: Bool { self.status == .pending && self.statusReason == RecordedReason.queued.rawValue }

    /// Whether it appears in the inbox.
    package var isListed: Bool { self.channels.contains(.inApp) && self.status != .suppressed }

    /// Whether a client that receives the notification must still prove receipt.
    ///
    /// It must while it is pending or unproven, was held back from a push, or failed on one device
    /// while others may still be tried. The last two do not count when a SignalR client starts,
    /// because it gets everything that awaits proof.
    ///
    /// - Parameter isStart: whether the client has loaded nothing of the inbox yet.
    package func awaitsProof(in shape: NotificationShape, isStart: Bool, now: Timestamp) -> Bool {
        switch self.status {
        case .pending: true
        case .sent where self.statusReason == Reason.unproven.rawValue: true
        case _ where isStart && shape == .camelCase: false
        // It was held back, such as by a cap.
        case .sent: self.decision != nil && self.statusReason == self.decision
        case .failed: self.expiresAt.map { $0 > now } ?? false
        case .delivered, .expired, .suppressed, .deferred, .cancelled: false
        }
    }
}

/// The state of a notification.
package enum NotificationStatus: String, Sendable, CaseIterable {
    /// Stored and not yet handed on, or sent to sockets that have not proven receipt.
    case pending
    /// Handed on: a provider accepted it, or it waits in the inbox of an offline user.
    case sent
    /// Proven to have reached a client.
    case delivered
    case failed, expired, suppressed, deferred, cancelled
}

/// The value of `sent_via`, unless it is a provider's name.
package enum SentVia: String, Sendable {
    /// Sockets, with or without a proof of receipt.
    case socket
    /// A client that confirmed receipt over REST.
    case client
    /// The inbox, where it waits.
    case inbox
    /// A summary that stands for it.
    case summary
}

/// A deferred step for a notification, which is decided again when it is due.
package enum FollowUp: String, Sendable, CaseIterable {
    /// Quiet hours end: push what they held back.
    case release
    /// An idle user has had time to read it: push.
    case attention
    /// It has been unread for long: send an e-mail.
    case email
}

/// The user and the id of a notification, which together are its key in PostgreSQL.
///
/// Keys compare in the order in which batches lock notifications: by user in byte order, then id.
package struct NotificationKey: Sendable, Comparable {
    package let user: String
    package let id: NotificationID

    package init(user: String, id: NotificationID) {
        self.user = user
        self.id = id
    }

    package static func == (left: NotificationKey, right: NotificationKey) -> Bool {
        left.id == right.id && ExactText(left.user) == ExactText(right.user)
    }

    package static func < (left: NotificationKey, right: NotificationKey) -> Bool {
        let (leftUser, rightUser) = (ExactText(left.user), ExactText(right.user))
        return leftUser == rightUser ? left.id < right.id : leftUser < rightUser
    }
}

/// Identifies a notification to upstream apps: its id, its user, and its type.
package struct NotificationLabel: Sendable, Equatable {
    package let id: NotificationID
    package let user: String
    package let type: String
    package let category: String?
    package let org: String
    /// The job's id.
    package let job: String?

    package init(id: NotificationID, user: String, type: String, category: String?, org: String, job: String?) {
        self.id = id
        self.user = user
        self.type = type
        self.category = category
        self.org = org
        self.job = job
    }
}

extension Notification {
    /// The key of its row.
    package var key: NotificationKey { NotificationKey(user: self.user, id: self.id) }

    /// The label for upstream apps.
    package var label: NotificationLabel {
        NotificationLabel(
            id: self.id,
            user: self.user,
            type: self.type,
            category: self.category,
            org: self.org,
            job: self.jobID
        )
    }
}

extension JobContent {
    /// Returns one user's notification with the type's defaults, before the user's preferences
    /// apply.
    ///
    /// - Parameters:
    ///   - lane: the lane of the job's stream; the more urgent of it and the job's own wins.
    ///   - createdAt: when the job was appended.
    package func notification(
        id: NotificationID,
        user: String,
        type: NotificationType,
        lane: Lane,
        createdAt: Timestamp
    ) -> Notification {
        var notification = Notification(id: id, user: user, type: type.name, createdAt: createdAt)
        notification.severity = self.severity ?? type.severity
        notification.delivery = self.delivery ?? type.delivery
        notification.lane = min(self.lane ?? type.lane, lane)
        notification.channels = self.channels ?? .all
        notification.title = self.title
        notification.body = self.body
        notification.data = self.data
        notification.extras = self.extras
        notification.extras.sound = self.extras.sound ?? type.sound
        notification.category = self.category ?? type.category
        notification.entityType = self.entityType
        notification.entityID = self.entityID
        notification.collapseKey = self.collapseKey
        notification.expiresAt = self.expiresAt ?? (createdAt + type.timeToLive)
        notification.keepUntil = self.keepUntil
        return notification
    }
}

/// A field of a notification that clients can see.
package enum NotificationField: Int, Sendable, CaseIterable {
    case id, type, severity, delivery, title, body, data, category, org, entityType, entityID, url, image, collapseKey
    case version, createdAt, readAt, expiresAt, heldBack
}

/// A notification that writes each field as a JSON value, from a decoded value or straight from a
/// row.
package protocol NotificationFields {
    associatedtype Failure: Error

    /// Writes a field as one value; null if absent, an empty object for ``NotificationField/data``.
    func write(_ field: NotificationField, to writer: inout JSONWriter) throws(Failure)
}

extension Notification: NotificationFields {
    package func write(_ field: NotificationField, to writer: inout JSONWriter) {
        switch field {
        case .id: self.id.write(to: &writer)
        case .type: writer.string(self.type)
        case .severity: writer.string(self.severity.rawValue)
        case .delivery: writer.string(self.delivery.rawValue)
        case .title: writer.string(self.title)
        case .body: writer.string(self.body)
        case .data: if let data = self.data { writer.raw(data) } else { writer.raw("{}") }
        case .category: writer.string(self.category)
        case .org: writer.string(self.org.isEmpty ? nil : self.org)
        case .entityType: writer.string(self.entityType)
        case .entityID: writer.string(self.entityID)
        case .url: writer.string(self.extras.url)
        case .image: writer.string(self.extras.image)
        case .collapseKey: writer.string(self.collapseKey)
        case .version: writer.integer(self.version)
        case .createdAt: self.createdAt.write(to: &writer)
        case .readAt: if let moment = self.readAt { moment.write(to: &writer) } else { writer.null() }
        case .heldBack: writer.string(self.decision)
        case .expiresAt: if let moment = self.expiresAt { moment.write(to: &writer) } else { writer.null() }
        }
    }
}
