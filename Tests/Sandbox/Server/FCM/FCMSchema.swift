// Carillon · FCMSchema.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation

/// The fields of one of FCM's message types, in both spellings that proto3 JSON accepts.
///
/// From the reference of `projects.messages`, plus the installation id as a target.
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

/// The type of a field in FCM's messages, with the proto3 JSON rules for reading it.
indirect enum FCMField: Sendable {
    case string
    case bool
    case int32
    case float
    /// Names in any case, or their numbers, as proto3 allows.
    case enumeration([String])
    /// Seconds with at most nine decimals, then `s`.
    case duration
    /// RFC 3339.
    case timestamp
    /// `map<string, string>`.
    case stringMap
    /// `google.protobuf.Struct`: any object.
    case structure
    case list(FCMField)
    case message(FCMSchema)

    /// A value that does not fit its type.
    struct Mismatch: Error {
        enum Kind {
            case unknownName(String)
            case wrongType(String, shown: String)
        }

        let kind: Kind
        /// The path from the checked value down.
        var path = ""

        /// The message in Google's wording.
        var description: String {
            switch self.kind {
            case .unknownName(let name):
                let place = self.path.isEmpty ? "" : " at '\(self.path)'"
                return "Invalid JSON payload received. Unknown name \"\(name)\"\(place): Cannot find field."
            case .wrongType(let type, let shown):
                return "Invalid value at '\(self.path)' (\(type))\(shown)"
            }
        }

        fileprivate func inside(_ step: String) -> Mismatch {
            let isIndexed = self.path.isEmpty || self.path.hasPrefix("[")
            return Mismatch(kind: self.kind, path: isIndexed ? step + self.path : "\(step).\(self.path)")
        }
    }

    /// Checks a value that is not null.
    func check(_ value: JSONValue) throws(Mismatch) {
        switch self {
        case .string:
            guard value.string != nil else { throw Self.mismatch("TYPE_STRING", value) }
        case .bool:
            guard case .bool = value else { throw Self.mismatch("TYPE_BOOL", value) }
        case .int32:
            guard let number = value.double ?? value.string.flatMap(Double.init), Int32(exactly: number) != nil else {
                throw Self.mismatch("TYPE_INT32", value)
            }
        case .float:
            guard value.double != nil || value.string.flatMap(Double.init) != nil else {
                throw Self.mismatch("TYPE_FLOAT", value)
            }
        case .enumeration(let names):
            let isKnown =
                value.string.map { names.contains($0.uppercased()) }
                ?? value.double.map { Int(exactly: $0).map(names.indices.contains) ?? false } ?? false
            guard isKnown else { throw Self.mismatch("TYPE_ENUM", value) }
        case .duration:
            guard let text = value.string, FCMText.seconds(ofDuration: text) != nil else {
                throw Self.mismatch("type.googleapis.com/google.protobuf.Duration", value)
            }
        case .timestamp:
            guard let text = value.string, FCMText.isTimestamp(text) else {
                throw Self.mismatch("type.googleapis.com/google.protobuf.Timestamp", value)
            }
        case .stringMap:
            try Self.checkStrings(value)
        case .structure:
            guard value.object != nil else { throw Self.mismatch("TYPE_MESSAGE", value) }
        case .list(let field):
            try Self.checkList(value, of: field)
        case .message(let schema):
            try Self.checkMessage(value, schema)
        }
    }

    private static func checkStrings(_ value: JSONValue) throws(Mismatch) {
        guard let members = value.object else { throw self.mismatch("TYPE_MESSAGE", value) }
        for (index, member) in members.enumerated() where member.value.string == nil {
            throw self.mismatch("TYPE_STRING", member.value).inside("[\(index)].value")
        }
    }

    private static func checkList(_ value: JSONValue, of field: FCMField) throws(Mismatch) {
        guard case .array(let elements) = value else { throw self.mismatch("TYPE_LIST", value) }
        for (index, element) in elements.enumerated() {
            do throws(Mismatch) {
                try field.check(element)
            } catch {
                throw error.inside("[\(index)]")
            }
        }
    }

    private static func checkMessage(_ value: JSONValue, _ schema: FCMSchema) throws(Mismatch) {
        guard let members = value.object else { throw self.mismatch("TYPE_MESSAGE", value) }
        for member in members {
            guard let field = schema.fields[member.key] else {
                throw Mismatch(kind: .unknownName(member.key))
            }
            if case .null = member.value { continue }
            do throws(Mismatch) {
                try field.check(member.value)
            } catch {
                throw error.inside(member.key)
            }
        }
    }

    private static func mismatch(_ type: String, _ value: JSONValue) -> Mismatch {
        Mismatch(kind: .wrongType(type, shown: FCMText.shown(value)))
    }
}

/// Text formats of FCM's fields.
enum FCMText {
    /// Returns the seconds of a proto3 duration such as `3.5s`; `nil` if it is invalid.
    static func seconds(ofDuration text: String) -> Double? {
        guard text.utf8.last == UInt8(ascii: "s") else { return nil }
        let number = text.dropLast()
        let parts = number.split(separator: ".", omittingEmptySubsequences: false)
        let digits = parts.first?.hasPrefix("-") == true ? parts[0].dropFirst() : parts.first ?? ""
        guard parts.count <= 2, Self.isDigits(digits), parts.count == 1 || Self.isDigits(parts[1]),
            parts.count == 1 || parts[1].utf8.count <= 9
        else { return nil }
        return Double(number)
    }

    /// Whether the text is RFC 3339 in UTC, with or without fractions.
    static func isTimestamp(_ text: String) -> Bool {
        (try? Date.ISO8601FormatStyle(includingFractionalSeconds: true).parse(text)) != nil
            || (try? Date.ISO8601FormatStyle().parse(text)) != nil
    }

    /// Whether the text matches `[a-zA-Z0-9-_.~%]+`, as topics and labels do; callers check the
    /// length.
    static func isLabel(_ text: some StringProtocol) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { Self.isAlphanumeric($0) || "-_.~%".utf8.contains($0) }
    }

    /// Whether the text has the characters and length of a registration token or installation id.
    static func isToken(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.count <= 4096
            && text.utf8.allSatisfy { Self.isAlphanumeric($0) || "-_:.".utf8.contains($0) }
    }

    /// Whether the text is `#rrggbb`.
    static func isColor(_ text: String) -> Bool {
        text.utf8.count == 7 && text.utf8.first == UInt8(ascii: "#") && text.dropFirst().allSatisfy(\.isHexDigit)
    }

    /// Returns a wrong value the way Google's errors repeat it.
    static func shown(_ value: JSONValue) -> String {
        switch value {
        case .null: ", null"
        case .bool(let flag): ", \(flag)"
        case .number(let text): ", \(value.integer.map { String($0) } ?? text)"
        case .string(let text): ", \"\(text)\""
        case .array, .object: ""
        }
    }

    private static func isDigits(_ text: some StringProtocol) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }
    }

    private static func isAlphanumeric(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: false
        }
    }
}
