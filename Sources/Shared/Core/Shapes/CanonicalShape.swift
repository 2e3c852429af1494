// Carillon · CanonicalShape.swift
// SPDX-License-Identifier: Apache-2.0

/// A notification as canonical JSON: snake_case, RFC 3339 times, absent values as null.
package enum CanonicalShape {
    private static let members: [(key: StaticString, field: NotificationField)] = [
        ("id", .id), ("type", .type), ("severity", .severity), ("delivery", .delivery), ("title", .title),
        ("body", .body), ("data", .data), ("category", .category), ("org", .org),
        ("entity_type", .entityType), ("entity_id", .entityID), ("url", .url), ("image", .image),
        ("collapse_key", .collapseKey), ("version", .version), ("created_at", .createdAt), ("read_at", .readAt),
        ("expires_at", .expiresAt), ("held_back", .heldBack),
    ]

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
