// Carillon · NotificationColumns.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Notifications as columns of a batch, and rows as notifications.
struct NotificationColumns {
    private var positions = PostgresArray(.int4)
    private var users = PostgresArray(.text)
    private var ids = PostgresArray(.uuid)
    private var entries = PostgresArray(.text)
    private var orgs = PostgresArray(.text)
    private var jobs = PostgresArray(.text)
    private var types = PostgresArray(.text)
    private var severities = PostgresArray(.text)
    private var deliveries = PostgresArray(.text)
    private var lanes = PostgresArray(.text)
    private var channels = PostgresArray(.int4)
    private var listed = PostgresArray(.bool)
    private var titles = PostgresArray(.text)
    private var bodies = PostgresArray(.text)
    private var data = PostgresArray(.jsonb)
    private var extras = PostgresArray(.jsonb)
    private var categories = PostgresArray(.text)
    private var entityTypes = PostgresArray(.text)
    private var entityIDs = PostgresArray(.text)
    private var collapseKeys = PostgresArray(.text)
    private var statuses = PostgresArray(.text)
    private var reasons = PostgresArray(.text)
    private var createdAt = PostgresArray(.timestamptz)
    private var expiresAt = PostgresArray(.timestamptz)
    private var keepUntil = PostgresArray(.timestamptz)

    init(_ notifications: [Notification]) {
        for (position, notification) in notifications.enumerated() {
            self.positions.append(int4: Int32(position))
            self.users.append(notification.user)
            self.ids.append(uuid: notification.id.halves)
            self.entries.append(notification.jobEntry)
            self.orgs.append(notification.org)
            self.jobs.append(notification.jobID)
            self.types.append(notification.type)
            self.severities.append(notification.severity.rawValue)
            self.deliveries.append(notification.delivery.rawValue)
            self.lanes.append(notification.lane.rawValue)
            self.channels.append(int4: Int32(notification.channels.rawValue))
            self.listed.append(bool: notification.isListed)
            self.titles.append(notification.title)
            self.bodies.append(notification.body)
            self.data.append(json: notification.data)
            self.extras.append(json: ExtrasColumn.json(notification.extras))
            self.categories.append(notification.category)
            self.entityTypes.append(notification.entityType)
            self.entityIDs.append(notification.entityID)
            self.collapseKeys.append(notification.collapseKey)
            self.statuses.append(notification.status.rawValue)
            self.reasons.append(notification.statusReason)
            self.createdAt.append(timestamptz: notification.createdAt.microseconds)
            self.expiresAt.append(timestamptz: notification.expiresAt?.microseconds)
            self.keepUntil.append(timestamptz: notification.keepUntil?.microseconds)
        }
    }

    /// The first 25 parameters of ``StoreSQL/insert``.
    var parameters: [PostgresValue] {
        [
            .array(self.positions), .array(self.users), .array(self.ids), .array(self.entries), .array(self.orgs),
            .array(self.jobs), .array(self.types), .array(self.severities), .array(self.deliveries),
            .array(self.lanes), .array(self.channels), .array(self.listed), .array(self.titles), .array(self.bodies),
            .array(self.data), .array(self.extras), .array(self.categories), .array(self.entityTypes),
            .array(self.entityIDs), .array(self.collapseKeys), .array(self.statuses), .array(self.reasons),
            .array(self.createdAt), .array(self.expiresAt), .array(self.keepUntil),
        ]
    }

    // MARK: Rows

    /// The columns that ``read(_:)`` expects, of a table called `n`.
    static let list = """
        n.user_id, n.id, n.version, n.job_entry, n.org_id, n.job_id, n.type, n.severity, n.delivery, n.lane, \
        n.channels::int4, n.title, n.body, n.data, n.extras, n.category, n.entity_type, n.entity_id, n.collapse_key, \
        n.status, n.status_reason, n.created_at, n.delivered_at, n.opened_at, n.read_at, n.expires_at, n.keep_until, \
        n.deleted_at, n.decision
        """

    /// The same with nulls for what no message is made of: channels' history and the decision.
    static let messageList = """
        n.user_id, n.id, n.version, n.job_entry, n.org_id, n.job_id, n.type, n.severity, n.delivery, n.lane, \
        n.channels::int4, n.title, n.body, n.data, n.extras, n.category, n.entity_type, n.entity_id, n.collapse_key, \
        n.status, n.status_reason, n.created_at, NULL::timestamptz, NULL::timestamptz, n.read_at, n.expires_at, \
        NULL::timestamptz, n.deleted_at, NULL::jsonb
        """

    /// How many columns ``list`` names.
    static let count = 29

    static func read(_ result: PostgresResult) throws(PostgresError) -> [Notification] {
        var notifications: [Notification] = []
        notifications.reserveCapacity(result.count)
        for row in result { notifications.append(try Self.read(row)) }
        return notifications
    }

    /// Reads a notification whose columns begin at `first`.
    static func read(_ row: PostgresRow, at first: Int = 0) throws(PostgresError) -> Notification {
        func moment(_ column: Int) throws(PostgresError) -> Timestamp? {
            try row.optionalTimestamptz(column).map { Timestamp(microseconds: $0) }
        }
        var notification = Notification(
            id: NotificationID(try row.uuid(first + 1)),
            user: try row.text(first),
            type: try row.text(first + 6),
            createdAt: Timestamp(microseconds: try row.timestamptz(first + 21))
        )
        notification.version = try row.int8(first + 2)
        notification.jobEntry = try row.text(first + 3)
        notification.org = try row.text(first + 4)
        notification.jobID = try row.optionalText(first + 5)
        notification.severity = Severity(rawValue: try row.text(first + 7)) ?? .info
        notification.delivery = DeliveryClass(rawValue: try row.text(first + 8)) ?? .inApp
        notification.lane = Lane(rawValue: try row.text(first + 9)) ?? .normal
        notification.channels = Channels(rawValue: UInt8(truncatingIfNeeded: try row.int4(first + 10)))
        notification.title = try row.text(first + 11)
        notification.body = try row.text(first + 12)
        notification.data = try row.optionalJSON(first + 13)
        if let extras = try row.optionalJSON(first + 14) { notification.extras = ExtrasColumn.extras(extras) }
        notification.category = try row.optionalText(first + 15)
        notification.entityType = try row.optionalText(first + 16)
        notification.entityID = try row.optionalText(first + 17)
        notification.collapseKey = try row.optionalText(first + 18)
        notification.status = NotificationStatus(rawValue: try row.text(first + 19)) ?? .pending
        notification.statusReason = try row.optionalText(first + 20)
        notification.deliveredAt = try moment(first + 22)
        notification.openedAt = try moment(first + 23)
        notification.readAt = try moment(first + 24)
        notification.expiresAt = try moment(first + 25)
        notification.keepUntil = try moment(first + 26)
        notification.deletedAt = try moment(first + 27)
        notification.decision = try row.optionalText(first + 28)
        return notification
    }
}

/// The column `extras`: a JSON object of what most notifications lack.
enum ExtrasColumn {
    static func json(_ extras: NotificationExtras) -> [UInt8]? {
        guard !extras.isEmpty else { return nil }
        var writer = JSONWriter()
        writer.beginObject()
        if let url = extras.url {
            writer.member("url", url)
        }
        if let image = extras.image {
            writer.member("image", image)
        }
        if let sound = extras.sound {
            writer.member("sound", sound)
        }
        if let badge = extras.badge {
            writer.member("badge", badge)
        }
        if let priority = extras.pushPriority {
            writer.member("push_priority", priority.rawValue)
        }
        if let state = extras.state {
            writer.member("state", state)
        }
        if let platform = extras.platform {
            writer.key("platform")
            writer.raw(platform)
        }
        if let traceParent = extras.traceParent {
            writer.member("traceparent", traceParent)
        }
        writer.endObject()
        return writer.bytes
    }

    static func extras(_ json: [UInt8]) -> NotificationExtras {
        var extras = NotificationExtras()
        guard let value = try? JSONParser.parse(json) else { return extras }
        extras.url = value["url"]?.string
        extras.image = value["image"]?.string
        extras.sound = value["sound"]?.string
        extras.badge = value["badge"]?.integer
        extras.pushPriority = value["push_priority"]?.string.flatMap { PushPriority(rawValue: $0) }
        extras.state = value["state"]?.string
        extras.platform = value["platform"].map { JSONWriter.bytes(of: $0) }
        extras.traceParent = value["traceparent"]?.string
        return extras
    }
}
