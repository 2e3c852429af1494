// Carillon · DispatcherSettings.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The dispatcher's configuration.
package struct DispatcherSettings: Sendable {
    /// Apple's two services.
    package enum APNSEnvironment: String, CaseIterable, Sendable {
        case production, sandbox
    }

    package let common: CommonSettings
    package let metricsHost: String
    package let metricsPort: Int
    /// An audience larger than this waits for a confirmation; 0 for none.
    package let broadcastConfirmAbove: Int
    /// A broadcast pauses while this many deliveries of its lane wait.
    package let broadcastHighWater: Int
    /// The app that the variables make.
    package let defaultApp: AppSettings
    /// A file of further apps.
    package let appsFile: String?
    /// The push services of apps that have no list of their own; nil for any.
    package let webPushOrigins: String?
    /// Whether subscriptions of Web Push may lead into private networks.
    package let allowsPrivateWebPush: Bool
    /// A CA file for the providers' endpoints.
    package let providerCertificateAuthority: String?
    /// How many calls to one provider are under way at most.
    package let providerCalls: Int
    /// The gateway's address as others see it, without a slash at its end.
    package let publicURL: String?
    /// The secret that links of e-mail are signed with, which is the gateway's for tokens.
    package let linkSecret: String?
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
        self.defaultApp = AppSettings.fromVariables(reader)
        self.appsFile = reader.text("APPS")
        self.webPushOrigins = reader.value("WEBPUSH_ORIGINS", default: nil) { text -> String? in
            _ = try WebPushOrigins(text)
            return text
        }
        // Read so that a name that is none is told; devices carry their own.
        let _: APNSEnvironment = reader.choice("APNS_ENVIRONMENT", default: .production)
        self.allowsPrivateWebPush = reader.choice("WEBPUSH_PRIVATE", default: GatewaySettings.Switch.off) == .on
        self.providerCertificateAuthority = reader.text("PROVIDER_CA")
        self.providerCalls = reader.integer("PROVIDER_CALLS", default: 512, in: 8...4_096)
        self.publicURL = reader.value("PUBLIC_URL", default: nil) { text -> String? in
            let isURL =
                (text.hasPrefix("https://") || text.hasPrefix("http://"))
                && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"<>?#".utf8.contains($0) }
            guard isURL else { throw Complaint("must be a URL such as https://notify.example.com") }
            return text.hasSuffix("/") ? String(text.dropLast()) : text
        }
        self.linkSecret = reader.text("AUTH_JWT_SECRET")
        let backlog = reader.integer("OVERFLOW_BACKLOG", default: 10_000, in: 0...1_000_000)
        self.overflowBacklog = backlog > 0 ? backlog : nil
        self.overflowShare = reader.integer("OVERFLOW_SHARE", default: 1_000, in: 1...1_000_000)
        self.retention = RetentionSettings(reader)
        self.outboxDatabases = reader.value("OUTBOX_DATABASE_URLS", default: []) { try DatabaseList($0).urls }
    }
}
