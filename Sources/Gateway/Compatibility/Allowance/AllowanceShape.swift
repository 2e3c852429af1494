// Carillon · AllowanceShape.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
import Model
import Shapes
import Stores

/// The family-finance app's JSON: .NET's, camelCase with enums as integers.
///
/// Its notifications are those of ``CamelCaseShape``.
enum AllowanceShape {
    /// A category for types that have none.
    private static let otherCategory = "Other"

    /// `DevicePlatform`.
    static func code(of platform: Platform) -> Int {
        switch platform {
        case .ios: 1
        case .android: 2
        case .web: 3
        }
    }

    /// The platform of a number, or of a name in any case.
    static func platform(_ value: JSONValue?) -> Platform? {
        switch value {
        case .number("1"): .ios
        case .number("2"): .android
        case .number("3"): .web
        case .string(let text): Platform(rawValue: text.lowercased())
        default: nil
        }
    }

    /// `NotificationListDto`, its members.
    static func write(
        _ page: InboxStore.OffsetPage,
        of query: PageQuery,
        types: (String) -> NotificationType?,
        now: Timestamp,
        to writer: inout JSONWriter
    ) {
        writer.key("notifications")
        writer.beginArray()
        for item in page.items {
            CamelCaseShape.write(item.notification, code: types(item.notification.type)?.code, now: now, to: &writer)
        }
        writer.endArray()
        writer.key("unreadCount")
        writer.integer(page.unread)
        writer.key("totalCount")
        writer.integer(page.matching)
        writer.key("hasMore")
        writer.bool(query.offset + query.limit < Int(page.matching))
    }

    /// `DeviceTokenDto`.
    static func write(_ device: Device, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("id")
        writer.string(device.id.description)
        writer.key("platform")
        writer.integer(Self.code(of: device.platform))
        writer.key("deviceName")
        writer.string(device.name)
        writer.key("isActive")
        writer.bool(device.isActive)
        writer.key("createdAt")
        writer.string(device.registeredAt.rfc3339)
        writer.key("lastUsedAt")
        writer.string(device.lastUsedAt.rfc3339)
        writer.endObject()
    }

    /// `NotificationPreferencesDto`, its members: every type that has a code, by code.
    static func write(
        _ types: CodedTypes,
        wishes: [String: TypePreference],
        quietHours: QuietHours?,
        to writer: inout JSONWriter
    ) {
        writer.key("preferences")
        writer.beginArray()
        for (code, type) in types.all {
            let wish = wishes[type.name] ?? TypePreference()
            writer.beginObject()
            writer.key("notificationType")
            writer.integer(code)
            writer.key("typeName")
            writer.string(TypeTitle.text(type.name))
            writer.key("category")
            writer.string(type.category ?? Self.otherCategory)
            writer.key("inAppEnabled")
            writer.bool(EffectiveWish.inApp(wish, type))
            writer.key("pushEnabled")
            writer.bool(EffectiveWish.push(wish, type))
            writer.key("emailEnabled")
            writer.bool(EffectiveWish.email(wish, type))
            writer.endObject()
        }
        writer.endArray()
        writer.key("quietHoursEnabled")
        writer.bool(quietHours != nil)
        writer.key("quietHoursStart")
        writer.string(quietHours.map { WallClock.text($0.start) })
        writer.key("quietHoursEnd")
        writer.string(quietHours.map { WallClock.text($0.end) })
    }
}
