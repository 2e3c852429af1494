// Carillon · RetentionSettings.swift
// SPDX-License-Identifier: Apache-2.0

/// For how many days what is kept.
package struct RetentionSettings: Sendable {
    /// The audit of sends and token changes.
    package let audit: Int
    /// Notifications in inboxes.
    package let inbox: Int
    /// What was deleted from inboxes, so that clients that come back are told.
    package let tombstones: Int
    /// Devices that nobody has been seen with.
    package let devices: Int
    /// Dead letters.
    package let deadLetters: Int

    /// Reads it; faults stay with the reader.
    package init(_ reader: SettingsReader) {
        self.audit = reader.integer("AUDIT_DAYS", default: 90, in: 1...3_650)
        self.inbox = reader.integer("INBOX_DAYS", default: 90, in: 1...3_650)
        self.tombstones = reader.integer("TOMBSTONE_DAYS", default: 30, in: 1...3_650)
        self.devices = reader.integer("DEVICE_DAYS", default: 90, in: 1...3_650)
        self.deadLetters = reader.integer("DEAD_LETTER_DAYS", default: 30, in: 1...3_650)
    }
}
