// Carillon · HybridShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// The accounting app's JSON: rows of its tables in snake_case.
enum HybridShape {
    /// A notification; what its socket event holds, and the row's columns beside it.
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

    /// `socket`, `push`, or nil for a notification in the inbox alone, also if mail or a summary
    /// announced it.
    static func sentVia(_ via: String?) -> String? {
        switch via {
        case nil, "inbox", "email", "summary": nil
        case "socket", "client": "socket"
        default: "push"
        }
    }

    /// The page: the list, the total of what the query asks for, and where the page lies.
    static func write(_ page: InboxStore.OffsetPage, of query: PageQuery, to writer: inout JSONWriter) {
        writer.key("notifications")
        writer.beginArray()
        for item in page.items { Self.write(item.notification, sentVia: item.sentVia, to: &writer) }
        writer.endArray()
        writer.member("total", page.matching)
        writer.member("unread_count", page.unread)
        writer.member("offset", query.offset)
        writer.member("limit", query.limit)
        writer.member("has_more", query.offset + page.items.count < Int(page.matching))
    }

    /// A device, with its token: the client that registered it compares it with its own.
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

    /// The quiet hours that hold for one type: its own, or else the user's.
    static func quietHours(of type: NotificationType, wishes: [String: TypePreference], settings: UserSettings)
        -> QuietHours?
    {
        switch wishes[type.name]?.quietHours {
        case .hours(let hours): hours
        case .some(QuietOverride.none): nil
        case .inherited, nil: settings.quietHours
        }
    }

    /// Reads a type's quiet hours from a client: nil if it sent none, or those that it was shown.
    ///
    /// So a client that sends back all that it has read leaves the user's quiet hours in force for the type. Of start
    /// and end, one that is absent is as shown. The days stay, as such clients know none.
    static func quietChange(_ fields: inout RequestFields, shown: QuietHours?) -> QuietOverride? {
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

    /// What holds for one type.
    static func write(
        _ type: NotificationType,
        wishes: [String: TypePreference],
        settings: UserSettings,
        to writer: inout JSONWriter
    ) {
        let wish = wishes.wish(for: type)
        let quietHours = self.quietHours(of: type, wishes: wishes, settings: settings)
        writer.beginObject()
        writer.member("type", type.name)
        writer.member("notification_type", type.name)
        writer.member("in_app_enabled", EffectiveWish.inApp(wish, type))
        writer.member("push_enabled", EffectiveWish.push(wish, type))
        writer.member("quiet_hours_start", quietHours.map { WallClock.text($0.start) })
        writer.member("quiet_hours_end", quietHours.map { WallClock.text($0.end) })
        writer.member("required", type.isRequired)
        writer.endObject()
    }
}
