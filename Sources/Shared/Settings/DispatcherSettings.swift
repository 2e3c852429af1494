// Carillon · DispatcherSettings.swift
// SPDX-License-Identifier: Apache-2.0

/// The dispatcher's configuration.
package struct DispatcherSettings: Sendable {
    /// Apple's two services.
    package enum APNSEnvironment: String, CaseIterable, Sendable {
        case production, sandbox
    }

    /// Credentials of FCM.
    package struct FCM: Sendable {
        /// Path of a service-account file.
        package let credentials: String
        package let endpoint: String
    }

    /// Credentials of APNs.
    package struct APNS: Sendable {
        /// Path of a .p8 file.
        package let key: String
        package let keyID: String
        package let teamID: String
        package let topic: String
        package let environment: APNSEnvironment
        /// In place of Apple's own, for both environments.
        package let endpoint: String?
    }

    package let common: CommonSettings
    package let metricsHost: String
    package let metricsPort: Int
    /// An audience larger than this waits for a confirmation; 0 for none.
    package let broadcastConfirmAbove: Int
    /// A broadcast pauses while this many deliveries of its lane wait.
    package let broadcastHighWater: Int
    package let fcm: FCM?
    package let apns: APNS?
    package let webPush: WebPushSettings?
    /// Whether subscriptions of Web Push may lead into private networks.
    package let allowsPrivateWebPush: Bool
    /// A CA file for the providers' endpoints.
    package let providerCertificateAuthority: String?
    /// URLs of other databases whose outbox is relayed.
    package let outboxDatabases: [String]
    package let retention: RetentionSettings
    /// How many jobs wait in a lane before an organisation's excess is moved; nil if it never is.
    package let overflowBacklog: Int?
    /// How many jobs of an organisation have their turn in a minute in any case.
    package let overflowShare: Int

    /// Reads it; faults stay with the reader.
    package init(_ reader: SettingsReader) {
        self.common = CommonSettings(reader)
        self.metricsHost = reader.text("METRICS_HOST") ?? "127.0.0.1"
        self.metricsPort = reader.integer("METRICS_PORT", default: 9_091, in: 0...65_535)
        self.broadcastConfirmAbove = reader.integer("BROADCAST_CONFIRM_ABOVE", default: 100_000, in: 0...1_000_000_000)
        self.broadcastHighWater = reader.integer("BROADCAST_HIGH_WATER", default: 100_000, in: 1...100_000_000)
        self.fcm = reader.text("FCM_CREDENTIALS").map { path in
            FCM(credentials: path, endpoint: reader.text("FCM_ENDPOINT") ?? "https://fcm.googleapis.com")
        }
        if let key = reader.text("APNS_KEY") {
            func required(_ name: String) -> String {
                if let text = reader.text(name) { return text }
                reader.fault(name, "is required with APNS_KEY")
                return ""
            }
            self.apns = APNS(
                key: key,
                keyID: required("APNS_KEY_ID"),
                teamID: required("APNS_TEAM_ID"),
                topic: required("APNS_TOPIC"),
                environment: reader.choice("APNS_ENVIRONMENT", default: .production),
                endpoint: reader.text("APNS_ENDPOINT")
            )
        } else {
            self.apns = nil
        }
        self.webPush = WebPushSettings(reader)
        self.allowsPrivateWebPush = reader.choice("WEBPUSH_PRIVATE", default: GatewaySettings.Switch.off) == .on
        self.providerCertificateAuthority = reader.text("PROVIDER_CA")
        let backlog = reader.integer("OVERFLOW_BACKLOG", default: 10_000, in: 0...1_000_000)
        self.overflowBacklog = backlog > 0 ? backlog : nil
        self.overflowShare = reader.integer("OVERFLOW_SHARE", default: 1_000, in: 1...1_000_000)
        self.retention = RetentionSettings(reader)
        self.outboxDatabases = reader.value("OUTBOX_DATABASE_URLS", default: []) { try DatabaseList($0).urls }
    }
}
