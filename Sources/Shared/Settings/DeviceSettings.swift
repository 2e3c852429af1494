// Carillon · WebPushSettings.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// What a gateway needs for browsers to subscribe.
package struct WebPushSettings: Sendable {
    /// Path of the key's file; nil if there is none to subscribe with.
    package let key: String?
    /// The push services that subscriptions may name of apps that have no list of their own.
    package let origins: WebPushOrigins
    /// A file of further apps, whose lists count for them; nil if there is none.
    package let appsFile: String?

    /// Reads it; faults stay with the reader.
    package init(_ reader: SettingsReader) {
        self.key = reader.text("VAPID_KEY")
        self.origins = reader.value("WEBPUSH_ORIGINS", default: .any) { try WebPushOrigins($0) }
        self.appsFile = reader.text("APPS")
    }
}
