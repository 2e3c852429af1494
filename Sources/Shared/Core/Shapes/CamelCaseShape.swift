// Carillon · CamelCaseShape.swift
// SPDX-License-Identifier: Apache-2.0

/// A notification as .NET clients know it: camelCase, the type as an integer, `data` as a string that holds JSON.
///
/// The hub's `ReceiveNotification` and the lists of `/api/v1/notifications` carry the same object. Its `timeAgo` is true at
/// `now`, so bytes that are kept for later hold an old one.
package enum CamelCaseShape {
    /// The `type` of a notification whose type has no code.
    private static let noCode = 0

    /// The JSON object.
    ///
    /// - Parameters:
    ///   - code: the type's integer code, from the catalog; 0 is written if it has none.
    ///   - now: from which `timeAgo` counts.
    package static func encode(_ notification: Notification, code: Int?, now: Timestamp) -> [UInt8] {
        let content = notification.title.utf8.count + notification.body.utf8.count + (notification.data?.count ?? 0)
        var writer = JSONWriter(capacity: 512 + content)
        self.write(notification, code: code, now: now, to: &writer)
        return writer.bytes
    }

    /// Writes the JSON object as a value.
    package static func write(_ notification: Notification, code: Int?, now: Timestamp, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", notification.id.description)
        writer.member("type", code ?? Self.noCode)
        writer.member("typeName", TypeTitle.text(notification.type))
        writer.member("title", notification.title)
        writer.member("body", notification.body)
        writer.member("data", notification.data.map { String(decoding: $0, as: UTF8.self) })
        writer.member("isRead", notification.readAt != nil)
        writer.member("readAt", notification.readAt?.rfc3339)
        writer.member("createdAt", notification.createdAt.rfc3339)
        writer.member("relatedEntityType", notification.entityType)
        writer.key("relatedEntityId")
        // Clients decode it as a UUID, and one that is none would cost them the whole list.
        writer.string(notification.entityID.flatMap { NotificationID($0) == nil ? nil : $0 })
        writer.member("timeAgo", TimeAgo.text(notification.createdAt, now: now))
        writer.endObject()
    }
}
