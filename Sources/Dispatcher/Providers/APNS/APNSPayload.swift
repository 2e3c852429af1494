// Carillon · APNSPayload.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
import Model

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
        if message.isUrgent {
            writer.member("interruption-level", "time-sensitive")
        }
        if notification.extras.image != nil {
            // The app's extension fetches it.
            writer.member("mutable-content", 1)
        }
    }
}
