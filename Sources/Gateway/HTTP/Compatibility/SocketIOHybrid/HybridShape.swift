// Carillon · HybridShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// The accounting app's JSON: rows of its tables in snake_case.
enum HybridShape {
    /// Writes a notification: the members of its socket event plus the columns of the row.
    static func write(_ notification: Notification, sentVia: String?, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", notification.id.description)
        writer.member("user_id", notification.user)
        writer.member("org_id", notification.org.isEmpty ? nil : notification.org)
        writer.member("type", notification.type)
        writer.member("severity", notification.severity.rawValue)
        writer.member("delivery", notification.delivery.rawValue)
        writer.member("title", notification.title)
        writer.member("body", notification.body)
        writer.key("data")
        if let data = notification.data { writer.raw(data) } else { writer.raw("{}") }
        writer.member("created_at", notification.createdAt.rfc3339)
        writer.member("read_at", notification.readAt?.rfc3339)
        writer.member("sent_via", Self.sentVia(sentVia))
        writer.endObject()
    }

    /// Returns `socket`, `push`, or nil for a notification that is only in the inbox, even if an
    /// e-mail or a digest announced it.
    static func sentVia(_ via: String?) -> String? {
        guard let via, via != Provider.email.rawValue else { return nil }
        return switch SentVia(rawValue: via) {
        case .inbox, .summary: nil
        case .socket, .client: "socket"
        case nil: "push"
        }
    }

    /// Writes a page: the list, the total and the position.
    static func write(_ page: InboxStore.OffsetPage, of query: PageQuery, to writer: inout JSONWriter) {
        writer.array("notifications", page.items) { Self.write($1.notification, sentVia: $1.sentVia, to: &$0) }
        writer.member("total", page.matching)
        writer.member("unread_count", page.unread)
        writer.member("offset", query.offset)
        writer.member("limit", query.limit)
        writer.member("has_more", query.hasMore(after: page.items.count, of: page))
    }

    /// Writes a device with its token, which the client compares with its own.
    static func write(_ device: Device, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", device.id.description)
        writer.member("user_id", device.user)
        writer.member("fcm_token", device.token)
        writer.member("platform", device.platform.rawValue)
        writer.member("device_id", device.deviceID)
        writer.member("created_at", device.createdAt.rfc3339)
        writer.member("last_used_at", device.lastUsedAt.rfc3339)
        writer.endObject()
    }

    /// Returns the effective quiet hours of a type: its own or the user's.
    static func quietHours(of type: NotificationType, preferences: [String: TypePreference], settings: UserSettings)
        -> QuietHours?
    {
        switch type.isRequired ? nil : preferences[type.name]?.quietHours {
        case .hours(let hours): hours
        case .some(QuietOverride.none): nil
        case .inherited, nil: settings.quietHours
        }
    }

    /// Parses a type's quiet hours; nil if the client sent none or the same as shown.
    ///
    /// A client that sends everything back thus keeps the user's quiet hours for the type. A
    /// missing start or end is as shown. Weekdays stay, because these clients know none.
    static func quietChange(_ fields: inout FieldReader, shown: QuietHours?) -> QuietOverride? {
        let start: Int? = fields.time("quiet_hours_start") ?? shown?.start
        let end: Int? = fields.time("quiet_hours_end") ?? shown?.end
        guard fields.faults.isEmpty, start != shown?.start || end != shown?.end else { return nil }
        switch (start, end) {
        case (nil, nil): return QuietOverride.none
        case (let start?, let end?):
            if start == end { return QuietOverride.none }
            return .hours(QuietHours(start: start, end: end, weekdays: shown?.weekdays ?? 0x7F))
        case (nil, _): fields.fault("quiet_hours_start", "is missing; both or neither may be null")
        case (_, nil): fields.fault("quiet_hours_end", "is missing; both or neither may be null")
        }
        return nil
    }

    /// Writes the effective preferences of a type.
    static func write(
        _ type: NotificationType,
        preferences: [String: TypePreference],
        settings: UserSettings,
        to writer: inout JSONWriter
    ) {
        let preference = preferences.preference(for: type)
        let quietHours = self.quietHours(of: type, preferences: preferences, settings: settings)
        writer.beginObject()
        writer.member("type", type.name)
        writer.member("notification_type", type.name)
        writer.member("in_app_enabled", EffectivePreference.inApp(preference, type))
        writer.member("push_enabled", EffectivePreference.push(preference, type))
        writer.member("quiet_hours_start", quietHours.map { WallClock.text($0.start) })
        writer.member("quiet_hours_end", quietHours.map { WallClock.text($0.end) })
        writer.member("required", type.isRequired)
        writer.endObject()
    }
}

extension Schema {
    static let accountingNotification = Schema(
        "AccountingNotification",
        [
            "id": .uuid,
            "user_id": .string,
            "org_id": .string.orNull,
            "type": .string,
            "severity": .severity,
            "delivery": .delivery,
            "title": .string,
            "body": .string,
            "data": .anyObject,
            "created_at": .time,
            "read_at": .time.orNull,
            "sent_via": .choice("socket", "push").orNull("Null while it waits in the inbox."),
        ])

    static let accountingPreference = Schema(
        "AccountingPreference",
        [
            "type": .string,
            "notification_type": .string("Same as `type`."),
            "in_app_enabled": .bool,
            "push_enabled": .bool,
            "quiet_hours_start": .timeOfDayInSeconds.orNull,
            "quiet_hours_end": .timeOfDayInSeconds.orNull,
            "required": .bool("Whether the user cannot switch it off."),
        ])

    static let accountingDevice = Schema(
        "AccountingDevice",
        [
            "id": .uuid,
            "user_id": .string,
            "fcm_token": .string,
            "platform": .platform,
            "device_id": .string.orNull,
            "created_at": .time,
            "last_used_at": .time,
        ])

    static let accountingUnregistration = Schema(
        "AccountingUnregistration",
        ["status": .constant(.string("unregistered")), "removed": .integer(0...1)])
}
