// Carillon · InboxNotification.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// A notification of a user's inbox.
///
/// docs/jobs.md explains the fields that come from its job. Titles, texts and links come from jobs
/// too, so do not trust them.
public struct InboxNotification: Codable, Hashable, Identifiable, Sendable {
    /// The id, which begins with a timestamp, so ids sort by age.
    public let id: String
    /// The type in the catalog.
    public let type: String
    /// The severity: `alert`, `warning` or `info`.
    public let severity: String
    /// The delivery: `push` or `in_app`.
    public let delivery: String
    /// The title, in the user's language.
    public let title: String
    /// The text below the title, in the user's language.
    public let body: String
    /// The job's own data; its `actions` are the buttons.
    public let data: JSONValue?
    /// The category, which groups types.
    public let category: String?
    /// The organisation of the job.
    public let org: String?
    /// The kind of thing that the notification is about, such as `invoice`.
    public let entityType: String?
    /// The id of the thing that the notification is about.
    public let entityID: String?
    /// The link that the notification opens.
    public let url: String?
    /// The address of its picture.
    public let image: String?
    /// A newer notification with the same key replaces this one.
    public let collapseKey: String?
    /// The inbox version of its last change.
    public let version: Int
    /// The time of its creation.
    public let createdAt: Date
    /// The time when the user read it; nil if it is unread.
    public internal(set) var readAt: Date?
    /// The time when it expires; nil for never.
    public let expiresAt: Date?
    /// The reason why the delivery was reduced, such as `capped_by_type`.
    public let heldBack: String?
    /// True if it must not ring, such as in quiet hours; nil over REST.
    public let silent: Bool?
    /// True if the user marked it unread or brought it back, so it is not new; nil over REST.
    let again: Bool?

    /// Whether the user has read it.
    public var isRead: Bool { self.readAt != nil }
    /// Whether it must not ring; false if unknown.
    public var isSilent: Bool { self.silent ?? false }

    private enum CodingKeys: String, CodingKey {
        case id, type, severity, delivery, title, body, data, category, org, url, image, version, silent, again
        case entityType = "entity_type"
        case entityID = "entity_id"
        case collapseKey = "collapse_key"
        case createdAt = "created_at"
        case readAt = "read_at"
        case expiresAt = "expires_at"
        case heldBack = "held_back"
    }
}

/// An event that an app sent to open sockets only (docs/jobs.md).
public struct EphemeralEvent: Decodable, Hashable, Sendable {
    /// The name that the app gave.
    public let name: String
    /// The arguments that the app gave.
    public let arguments: [JSONValue]

    private enum CodingKeys: String, CodingKey {
        case name
        case arguments = "args"
    }
}

/// A JSON value, such as the `data` of a notification.
///
/// A number beyond the range of `Double` becomes null.
public enum JSONValue: Codable, Hashable, Sendable {
    case null
    case bool(Bool)
    case integer(Int)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    /// Decodes any JSON value.
    public init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int.self) {
            self = .integer(value)
        } else if let value = try? container.decode(Double.self) {
            self = .number(value)
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let value = try? container.decode([JSONValue].self) {
            self = .array(value)
        } else if let value = try? container.decode([String: JSONValue].self) {
            self = .object(value)
        } else {
            self = .null
        }
    }

    /// Encodes the value as JSON.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .integer(let value): try container.encode(value)
        case .number(let value): try container.encode(value)
        case .string(let value): try container.encode(value)
        case .array(let value): try container.encode(value)
        case .object(let value): try container.encode(value)
        }
    }

    /// The text of a string; nil for any other value.
    public var string: String? {
        guard case .string(let value) = self else { return nil }
        return value
    }

    /// The member of an object; nil if there is none.
    public subscript(_ key: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members[key]
    }

    /// The element of an array; nil if there is none.
    public subscript(_ index: Int) -> JSONValue? {
        guard case .array(let elements) = self, elements.indices.contains(index) else { return nil }
        return elements[index]
    }
}

/// Encodes and decodes the gateway's JSON, with times in the format of RFC 3339.
enum JSON {
    private static let milliseconds = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

    static func decode<Value: Decodable>(_ type: Value.Type, from data: Data) throws -> Value {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .custom { decoder in
            let text = try decoder.singleValueContainer().decode(String.self)
            return try (try? Date(text, strategy: Self.milliseconds)) ?? Date(text, strategy: .iso8601)
        }
        return try decoder.decode(type, from: data)
    }

    static func encode(_ value: some Encodable) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(date.formatted(Self.milliseconds))
        }
        return try encoder.encode(value)
    }
}
