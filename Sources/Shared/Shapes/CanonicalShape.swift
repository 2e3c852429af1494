// Carillon · CanonicalShape.swift
// SPDX-License-Identifier: Apache-2.0

package import JSON
package import Model

/// A notification as canonical JSON: snake_case, RFC 3339 times, absent values as null.
package enum CanonicalShape {
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
    package static func write(_ notification: Notification, isSilent: Bool = false, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("id")
        writer.string(notification.id.description)
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
        if let data = notification.data { writer.raw(data) } else { writer.raw("{}".utf8) }
        writer.key("category")
        writer.string(notification.category)
        writer.key("entity_type")
        writer.string(notification.entityType)
        writer.key("entity_id")
        writer.string(notification.entityID)
        writer.key("url")
        writer.string(notification.extras.url)
        writer.key("image")
        writer.string(notification.extras.image)
        writer.key("collapse_key")
        writer.string(notification.collapseKey)
        writer.key("version")
        writer.integer(notification.version)
        writer.key("created_at")
        writer.string(notification.createdAt.rfc3339)
        writer.key("read_at")
        writer.string(notification.readAt?.rfc3339)
        writer.key("expires_at")
        writer.string(notification.expiresAt?.rfc3339)
        // Absent in most, and so left out.
        if let decision = notification.decision {
            writer.key("held_back")
            writer.string(decision)
        }
        if isSilent {
            writer.key("silent")
            writer.bool(true)
        }
        writer.endObject()
    }
}
