// Carillon · NotificationFields.swift
// SPDX-License-Identifier: Apache-2.0

/// What a notification tells its user, field by field.
package enum NotificationField: Sendable, CaseIterable {
    case id, type, severity, delivery, title, body, data, category, entityType, entityID, url, image, collapseKey
    case version, createdAt, readAt, expiresAt, heldBack
}

/// A notification that can write each of its fields as a JSON value: whole, or as a row that was not taken apart.
package protocol NotificationFields {
    associatedtype Failure: Error

    /// Writes a field as one value; null where there is none, an empty object for ``NotificationField/data``.
    func write(_ field: NotificationField, to writer: inout JSONWriter) throws(Failure)
}

extension Notification: NotificationFields {
    package func write(_ field: NotificationField, to writer: inout JSONWriter) {
        switch field {
        case .id: self.id.write(to: &writer)
        case .type: writer.string(self.type)
        case .severity: writer.string(self.severity.rawValue)
        case .delivery: writer.string(self.delivery.rawValue)
        case .title: writer.string(self.title)
        case .body: writer.string(self.body)
        case .data: if let data = self.data { writer.raw(data) } else { writer.raw("{}") }
        case .category: writer.string(self.category)
        case .entityType: writer.string(self.entityType)
        case .entityID: writer.string(self.entityID)
        case .url: writer.string(self.extras.url)
        case .image: writer.string(self.extras.image)
        case .collapseKey: writer.string(self.collapseKey)
        case .version: writer.integer(self.version)
        case .createdAt: self.createdAt.write(to: &writer)
        case .readAt: if let moment = self.readAt { moment.write(to: &writer) } else { writer.null() }
        case .heldBack: writer.string(self.decision)
        case .expiresAt: if let moment = self.expiresAt { moment.write(to: &writer) } else { writer.null() }
        }
    }
}
