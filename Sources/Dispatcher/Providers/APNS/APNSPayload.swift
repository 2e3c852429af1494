// Carillon · APNSPayload.swift
// SPDX-License-Identifier: Apache-2.0

import Core

extension PushPriority {
    /// As Apple's header has it.
    var apns: String { self == .high ? "10" : "5" }
}

/// The parts of Apple's payload that APNs and FCM's own block for Apple devices share.
enum APNSPayload {
    /// The members of `aps` beside the alert.
    static func writeAside(_ message: PushMessage, to writer: inout JSONWriter) {
        let notification = message.notification
        if let badge = message.badge {
            writer.member("badge", badge)
        }
        writer.member("sound", notification.extras.sound ?? "default")
        if let category = message.buttonCategory {
            writer.member("category", category)
        }
        if message.isTimeSensitive {
            writer.member("interruption-level", "time-sensitive")
        }
        if notification.extras.image != nil {
            // The app's extension fetches it.
            writer.member("mutable-content", 1)
        }
    }
}
