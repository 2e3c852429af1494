// Carillon · HybridShape.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import JSON
import Model
import Stores

/// The accounting app's JSON: rows of its tables in snake_case.
enum HybridShape {
    /// A notification; what its socket event holds, and the row's columns beside it.
    static func write(_ notification: Notification, sentVia: String?, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("id")
        writer.string(notification.id.description)
        writer.key("user_id")
        writer.string(notification.user)
        writer.key("org_id")
        writer.string(notification.org.isEmpty ? nil : notification.org)
        writer.key("type")
        writer.string(notification.type)
        writer.key("severity")
        writer.string(notification.severity.rawValue)
        writer.key("delivery")
        writer.string(notification.delivery.rawValue)
        writer.key("title")
        writer.string(notification.title)
        writer.key("body")
        writer.string(notification.body)
        writer.key("data")
        if let data = notification.data { writer.raw(data) } else { writer.raw("{}") }
        writer.key("created_at")
        writer.string(notification.createdAt.rfc3339)
        writer.key("read_at")
        writer.string(notification.readAt?.rfc3339)
        writer.key("sent_via")
        writer.string(Self.sentVia(sentVia))
        writer.endObject()
    }

    /// `socket`, `push`, or nil while it waits in the inbox.
    static func sentVia(_ via: String?) -> String? {
        switch via {
        case nil, "inbox": nil
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
        writer.key("total")
        writer.integer(page.matching)
        writer.key("unread_count")
        writer.integer(page.unread)
        writer.key("offset")
        writer.integer(query.offset)
        writer.key("limit")
        writer.integer(query.limit)
        writer.key("has_more")
        writer.bool(query.offset + page.items.count < Int(page.matching))
    }

    /// A device, with its token: the client that registered it compares it with its own.
    static func write(_ device: Device, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("id")
        writer.string(device.id.description)
        writer.key("fcm_token")
        writer.string(device.token)
        writer.key("platform")
        writer.string(device.platform.rawValue)
        writer.key("device_id")
        writer.string(device.deviceID)
        writer.key("created_at")
        writer.string(device.registeredAt.rfc3339)
        writer.key("last_used_at")
        writer.string(device.lastUsedAt.rfc3339)
        writer.endObject()
    }

    /// What holds for one type.
    static func write(
        _ type: NotificationType,
        wish: TypePreference,
        quietHours: QuietHours?,
        to writer: inout JSONWriter
    ) {
        writer.beginObject()
        writer.key("type")
        writer.string(type.name)
        writer.key("notification_type")
        writer.string(type.name)
        writer.key("in_app_enabled")
        writer.bool(EffectiveWish.inApp(wish, type))
        writer.key("push_enabled")
        writer.bool(EffectiveWish.push(wish, type))
        writer.key("quiet_hours_start")
        writer.string(quietHours.map { WallClock.text($0.start) })
        writer.key("quiet_hours_end")
        writer.string(quietHours.map { WallClock.text($0.end) })
        writer.key("required")
        writer.bool(type.isRequired)
        writer.endObject()
    }
}
