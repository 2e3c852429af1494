// Carillon · EdgeRow.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A device as a row of the table `user_push_tokens`.
struct EdgeRow {
    /// The table's columns.
    enum Column: String, CaseIterable {
        case id, userID = "user_id", platform, token, deviceID = "device_id"
        case appVersion = "app_version", locale, lastSeenAt = "last_seen_at", createdAt = "created_at", updatedAt =
            "updated_at"
    }

    /// The fault of a name that is not among them.
    static let noColumn = "is no column of user_push_tokens"

    let device: Device

    /// The value of a column as text; nil for null.
    func text(_ column: Column) -> String? {
        switch column {
        case .id: self.device.id.description
        case .userID: self.device.user
        case .platform: self.device.platform.rawValue
        case .token: self.device.token
        case .deviceID: self.device.deviceID
        case .appVersion: self.device.appVersion
        case .locale: self.device.locale
        case .lastSeenAt, .updatedAt: self.device.lastUsedAt.rfc3339
        case .createdAt: self.device.createdAt.rfc3339
        }
    }

    /// Writes the row, or some of its columns, as an object.
    func write(_ columns: [Column], to writer: inout JSONWriter) {
        writer.beginObject()
        for column in columns {
            writer.key(escaping: column.rawValue)
            writer.string(self.text(column))
        }
        writer.endObject()
    }
}
