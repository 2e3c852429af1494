// Carillon · RetentionMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics

/// What retention has taken away.
enum RetentionMetrics {
    /// Days of the audit.
    static let parts = Self.removed("audit_days")
    /// Notifications that left their inbox.
    static let notifications = Self.removed("notifications")
    /// Those that were deleted before, and are removed for good.
    static let tombstones = Self.removed("tombstones")
    /// Devices that were switched off.
    static let devices = Self.removed("devices")
    static let deadLetters = Self.removed("dead_letters")

    private static func removed(_ kind: String) -> Counter {
        Counter(label: "carillon.retention.removed", dimensions: [("kind", kind)])
    }
}
