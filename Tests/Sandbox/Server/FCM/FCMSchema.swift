// Carillon · FCMSchema.swift
// SPDX-License-Identifier: Apache-2.0

/// The fields of one of FCM's message types, under both spellings that proto3 JSON accepts.
///
/// From the reference of `projects.messages`, with the installation id as a target beside the token.
struct FCMSchema: Sendable {
    let fields: [String: FCMField]

    private init(_ fields: [String: FCMField]) {
        var spelled = fields
        for (name, field) in fields {
            spelled[Self.camelCase(name)] = field
        }
        self.fields = spelled
    }

    private static func camelCase(_ name: String) -> String {
        let words = name.split(separator: "_")
        return words.dropFirst().reduce(String(words.first ?? "")) { $0 + $1.prefix(1).uppercased() + $1.dropFirst() }
    }

    /// The body of `messages:send`.
    static let request = FCMSchema(["message": .message(Self.message), "validate_only": .bool])

    private static let message = FCMSchema([
        "name": .string,
        "data": .stringMap,
        "notification": .message(FCMSchema(["title": .string, "body": .string, "image": .string])),
        "android": .message(Self.android),
        "webpush": .message(Self.webpush),
        "apns": .message(Self.apns),
        "fcm_options": .message(Self.options),
        "token": .string,
        "topic": .string,
        "condition": .string,
        "fid": .string,
    ])

    private static let options = FCMSchema(["analytics_label": .string])

    private static let android = FCMSchema([
        "collapse_key": .string,
        "priority": .enumeration(["NORMAL", "HIGH"]),
        "ttl": .duration,
        "restricted_package_name": .string,
        "data": .stringMap,
        "notification": .message(Self.androidNotification),
        "fcm_options": .message(Self.options),
        "direct_boot_ok": .bool,
        "bandwidth_constrained_ok": .bool,
        "restricted_satellite_ok": .bool,
    ])

    private static let androidNotification = FCMSchema([
        "title": .string,
        "body": .string,
        "icon": .string,
        "color": .string,
        "sound": .string,
        "tag": .string,
        "click_action": .string,
        "body_loc_key": .string,
        "body_loc_args": .list(.string),
        "title_loc_key": .string,
        "title_loc_args": .list(.string),
        "channel_id": .string,
        "ticker": .string,
        "sticky": .bool,
        "event_time": .timestamp,
        "local_only": .bool,
        "notification_priority": .enumeration([
            "PRIORITY_UNSPECIFIED", "PRIORITY_MIN", "PRIORITY_LOW", "PRIORITY_DEFAULT", "PRIORITY_HIGH",
            "PRIORITY_MAX",
        ]),
        "default_sound": .bool,
        "default_vibrate_timings": .bool,
        "default_light_settings": .bool,
        "vibrate_timings": .list(.duration),
        "visibility": .enumeration(["VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"]),
        "notification_count": .int32,
        "light_settings": .message(
            FCMSchema([
                "color": .message(FCMSchema(["red": .float, "green": .float, "blue": .float, "alpha": .float])),
                "light_on_duration": .duration,
                "light_off_duration": .duration,
            ])),
        "image": .string,
        "bypass_proxy_notification": .bool,
        "proxy": .enumeration(["PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"]),
    ])

    private static let webpush = FCMSchema([
        "headers": .stringMap,
        "data": .stringMap,
        "notification": .structure,
        "fcm_options": .message(FCMSchema(["link": .string, "analytics_label": .string])),
    ])

    private static let apns = FCMSchema([
        "headers": .stringMap,
        "payload": .structure,
        "fcm_options": .message(FCMSchema(["analytics_label": .string, "image": .string])),
        "live_activity_token": .string,
    ])
}
