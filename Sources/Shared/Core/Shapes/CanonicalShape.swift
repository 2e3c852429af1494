// Carillon · CanonicalShape.swift
// SPDX-License-Identifier: Apache-2.0

/// A notification as canonical JSON: snake_case, RFC 3339 times, absent values as null.
package enum CanonicalShape {
    private static let members: [(key: StaticString, field: NotificationField)] = [
        ("id", .id), ("type", .type), ("severity", .severity), ("delivery", .delivery), ("title", .title),
        ("body", .body), ("data", .data), ("category", .category), ("entity_type", .entityType),
        ("entity_id", .entityID), ("url", .url), ("image", .image), ("collapse_key", .collapseKey),
        ("version", .version), ("created_at", .createdAt), ("read_at", .readAt), ("expires_at", .expiresAt),
        ("held_back", .heldBack),
    ]

    /// The JSON object.
    ///
    /// - Parameter isSilent: whether the client is asked not to ring, as its user has quiet hours.
    package static func encode(_ notification: Notification, isSilent: Bool = false) -> [UInt8] {
        let content = notification.title.utf8.count + notification.body.utf8.count + (notification.data?.count ?? 0)
        var writer = JSONWriter(capacity: 512 + content)
        self.write(notification, isSilent: isSilent, to: &writer)
        return writer.bytes
    }

    /// Writes the JSON object as a value.
    package static func write<Fields: NotificationFields>(
        _ notification: Fields,
        isSilent: Bool = false,
        to writer: inout JSONWriter
    ) throws(Fields.Failure) {
        writer.beginObject()
        for (key, field) in Self.members {
            writer.key(key)
            try notification.write(field, to: &writer)
        }
        // Only frames say so, and only in quiet hours.
        if isSilent {
            writer.member("silent", true)
        }
        writer.endObject()
    }
}
