// Carillon · AllowanceShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// The family-finance app's JSON in .NET style: camelCase, and enums as integers.
///
/// Notifications use ``CamelCaseShape``.
enum AllowanceShape {
    /// The category of types without one.
    private static let otherCategory = "Other"

    /// `DevicePlatform`.
    static func code(of platform: Platform) -> Int {
        switch platform {
        case .ios: 1
        case .android: 2
        // The client knows no other platform.
        case .web, .webhook: 3
        }
    }

    /// Returns the platform of a number, which is text in a form, or of a name in any case.
    static func platform(_ value: JSONValue?) -> Platform? {
        switch value {
        case .number("1"), .string("1"): .ios
        case .number("2"), .string("2"): .android
        case .number("3"), .string("3"): .web
        case .string(let text): Platform(rawValue: text.lowercased()).flatMap { $0 == .webhook ? nil : $0 }
        default: nil
        }
    }

    /// Writes the members of `NotificationListDto`.
    static func write(
        _ page: InboxStore.OffsetPage,
        of query: PageQuery,
        types: (String) -> NotificationType?,
        now: Timestamp,
        to writer: inout JSONWriter
    ) {
        writer.array("notifications", page.items) { writer, item in
            CamelCaseShape.write(item.notification, code: types(item.notification.type)?.code, now: now, to: &writer)
        }
        writer.member("unreadCount", page.unread)
        writer.member("totalCount", page.matching)
        writer.member("hasMore", query.hasMore(after: query.limit, of: page))
    }

    /// Writes a `DeviceTokenDto`.
    static func write(_ device: Device, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", device.id.description)
        writer.member("platform", Self.code(of: device.platform))
        writer.member("deviceName", device.name)
        writer.member("isActive", device.getsPushes)
        writer.member("createdAt", device.createdAt.rfc3339)
        writer.member("lastUsedAt", device.lastUsedAt.rfc3339)
        writer.endObject()
    }

    /// Writes the members of `NotificationPreferencesDto`: every enabled type with a code, sorted
    /// by code.
    static func write(
        _ types: CodedTypes,
        preferences: [String: TypePreference],
        settings: UserSettings,
        to writer: inout JSONWriter
    ) {
        writer.key("preferences")
        writer.beginArray()
        for (code, type) in types.all where type.isEnabled {
            let preference = preferences.preference(for: type)
            writer.beginObject()
            writer.member("notificationType", code)
            writer.member("typeName", TypeTitle.text(type.name))
            writer.member("category", type.category ?? Self.otherCategory)
            writer.member("inAppEnabled", EffectivePreference.inApp(preference, type))
            writer.member("pushEnabled", EffectivePreference.push(preference, type))
            writer.member("emailEnabled", EffectivePreference.email(preference, type))
            writer.endObject()
        }
        writer.endArray()
        let hours = settings.quietHours ?? settings.pausedQuietHours
        writer.member("quietHoursEnabled", settings.quietHours != nil)
        writer.member("quietHoursStart", hours.map { WallClock.text($0.start) })
        writer.member("quietHoursEnd", hours.map { WallClock.text($0.end) })
    }
}

extension Schema {
    static let allowanceNotification = Schema(
        "AllowanceNotification",
        [
            "id": .uuid,
            "type": .integer("The type's code in the catalog; 0 if it has none."),
            "typeName": .string("The readable name of the type."),
            "title": .string,
            "body": .string,
            "data": .string.orNull("JSON as text."),
            "isRead": .bool,
            "readAt": .time.orNull,
            "createdAt": .time,
            "relatedEntityType": .string.orNull,
            "relatedEntityId": .uuid.orNull,
            "timeAgo": .string,
        ])

    static let allowancePreferences = Schema(
        "AllowancePreferences",
        [
            "preferences": .list(
                of: .object([
                    "notificationType": .integer("The type's code."),
                    "typeName": .string,
                    "category": .string,
                    "inAppEnabled": .bool,
                    "pushEnabled": .bool,
                    "emailEnabled": .bool,
                ]), max: 100_000),
            "quietHoursEnabled": .bool,
            "quietHoursStart": .timeOfDayInSeconds.orNull(
                "Also set if quiet hours are switched off."),
            "quietHoursEnd": .timeOfDayInSeconds.orNull,
        ])

    static let allowanceDevice = Schema(
        "AllowanceDevice",
        [
            "id": .uuid,
            "platform": .integer(1...3)("1 is iOS, 2 Android, 3 the web."),
            "deviceName": .string.orNull,
            "isActive": .bool,
            "createdAt": .time,
            "lastUsedAt": .time,
        ])
}
