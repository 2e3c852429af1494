// Carillon · CanonicalShape.swift
// SPDX-License-Identifier: Apache-2.0

/// A notification as canonical JSON: snake_case, RFC 3339 times, absent values as null.
package enum CanonicalShape {
    /// Without the schemas, which the loop would copy.
    private static let members: [(key: StaticString, field: NotificationField)] = described.map {
        ($0.key, $0.field)
    }

    private static let described: [(key: StaticString, field: NotificationField, schema: Schema)] = [
        ("id", .id, .uuid),
        ("type", .type, .text(JobLimits.name)),
        ("severity", .severity, .severity),
        ("delivery", .delivery, .delivery),
        ("title", .title, .string(max: 255)),
        ("body", .body, .string(max: 4096)),
        ("data", .data, .anyObject),
        ("category", .category, .string.orNull),
        ("org", .org, .string.orNull("The organisation of the job.")),
        ("entity_type", .entityType, .string.orNull),
        ("entity_id", .entityID, .string.orNull),
        ("url", .url, .string.orNull),
        ("image", .image, .string.orNull),
        ("collapse_key", .collapseKey, .string.orNull),
        ("version", .version, .count),
        ("created_at", .createdAt, .time),
        ("read_at", .readAt, .time.orNull),
        ("expires_at", .expiresAt, .time.orNull),
        ("held_back", .heldBack, .string.orNull("Why the delivery was reduced, such as `capped_by_type`.")),
    ]

    package static let schema = Schema(
        "Notification",
        Fields(Self.described.map { ($0.key.description, $0.schema) }) + [
            "silent?": .bool("On sockets: true if the client should not ring; absent otherwise."),
            "again?": .bool("On sockets: true after the user's own undo; absent otherwise."),
        ])

    /// Returns the JSON object.
    ///
    /// - Parameters:
    ///   - isSilent: whether the client must not alert the user: in quiet hours, or because the
    ///     frame repeats one.
    ///   - isAgain: whether its user has seen it before.
    package static func encode(
        _ notification: Notification,
        isSilent: Bool = false,
        isAgain: Bool = false
    ) -> [UInt8] {
        let content = notification.title.utf8.count + notification.body.utf8.count + (notification.data?.count ?? 0)
        var writer = JSONWriter(capacity: 512 + content)
        self.write(notification, isSilent: isSilent, isAgain: isAgain, to: &writer)
        return writer.bytes
    }

    /// Writes the JSON object as a value.
    package static func write<Fields: NotificationFields>(
        _ notification: Fields,
        isSilent: Bool = false,
        isAgain: Bool = false,
        to writer: inout JSONWriter
    ) throws(Fields.Failure) {
        writer.beginObject()
        for (key, field) in Self.members {
            writer.key(key)
            try notification.write(field, to: &writer)
        }
        // Only frames have these members.
        if isSilent {
            writer.member("silent", true)
        }
        if isAgain {
            writer.member("again", true)
        }
        writer.endObject()
    }
}

/// The frame body for notifications that were read or deleted.
package enum InboxChangeShape {
    /// The notifications that changed.
    package enum Subject: Sendable {
        case ids([NotificationID])
        /// All notifications up to a version; the text is the name of the JSON member, such as
        /// `all`.
        case all(StaticString, upTo: Int64)
    }

    /// Returns the frame body.
    ///
    /// - Parameter isBulk: whether a client sent the ids as a list. A list of one is marked,
    ///   because some dialects use another event for it.
    package static func encode(_ subject: Subject, isBulk: Bool = false, at: Timestamp) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        switch subject {
        case .all(let name, let version):
            writer.key(name)
            writer.bool(true)
            writer.member("up_to_version", version)
        case .ids(let ids):
            writer.key("ids")
            writer.beginArray()
            for id in ids { writer.string(id.description) }
            writer.endArray()
            if isBulk, ids.count == 1 { writer.member("bulk", true) }
        }
        writer.member("at", at.rfc3339)
        writer.endObject()
        return writer.bytes
    }
}
