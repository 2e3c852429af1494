// Carillon · WebPushSettings.swift
// SPDX-License-Identifier: Apache-2.0

import Model

/// What both services need for Web Push.
package struct WebPushSettings: Sendable {
    /// Path of the key's file.
    package let key: String
    /// Whom push services may turn to.
    package let subject: String
    /// The push services that subscriptions may name, as they are written.
    package let origins: String

    /// Reads it; faults stay with the reader. Nil without `VAPID_KEY`.
    init?(_ reader: SettingsReader) {
        let key = reader.text("VAPID_KEY")
        self.origins = reader.value("WEBPUSH_ORIGINS", default: "*") { text in
            _ = try WebPushOrigins(text)
            return text
        }
        guard let key else { return nil }
        self.key = key
        if reader.text("VAPID_SUBJECT") == nil {
            reader.fault("VAPID_SUBJECT", "is required with VAPID_KEY; give mailto: or https: with whom to turn to")
        }
        self.subject = reader.value("VAPID_SUBJECT", default: "") { text in
            guard VAPIDKey.isSubject(text) else {
                throw Complaint("must be a contact such as mailto:push@example.com or https://example.com/contact")
            }
            return text
        }
    }
}
