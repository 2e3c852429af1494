// Carillon · DispatcherSettings.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The settings of `dispatcher run`, read and validated once at start.
package struct DispatcherSettings: Sendable {
    package let common: CommonSettings
    package let metricsHost: String
    package let metricsPort: Int
    /// Larger audiences wait for a confirmation; 0 for never.
    package let broadcastConfirmAbove: Int
    /// A broadcast pauses while this many deliveries of its lane wait.
    package let broadcastHighWater: Int
    /// The app that is configured by variables.
    package let defaultApp: AppSettings
    /// A file of further apps.
    package let appsFile: String?
    /// The push services of apps without their own list; nil for any.
    package let webPushOrigins: String?
    /// Whether Web Push subscriptions may use private networks.
    package let allowsPrivateWebPush: Bool
    /// A CA file for the providers' endpoints.
    package let providerCertificateAuthority: String?
    /// The most in-flight calls to one provider.
    package let providerCalls: Int
    /// The gateway's public URL, without a trailing slash.
    package let publicURL: String?
    /// The secret that signs links in e-mail; the same as the gateway's for tokens.
    package let linkSecret: String?
    /// URLs of other databases whose outboxes are relayed.
    package let outboxDatabases: [String]
    package let retention: RetentionSettings
    /// The recipients that wait in a lane at which an organisation's excess jobs move to its
    /// overflow; nil for never.
    package let overflowBacklog: Int?
    /// The recipients per minute that an organisation may always add before its excess is moved.
    package let overflowShare: Int

    /// Reads the variables; records faults in `reader`.
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
        self.allowsPrivateWebPush = reader.isOn("WEBPUSH_PRIVATE", default: false)
        self.providerCertificateAuthority = reader.text("PROVIDER_CA")
        self.providerCalls = reader.integer("PROVIDER_CALLS", default: 512, in: 8...4_096)
        self.publicURL = CommonSettings.publicURL(reader)
        self.linkSecret = reader.secret("AUTH_JWT_SECRET")
        self.overflowBacklog = reader.limit("OVERFLOW_BACKLOG", default: 10_000, in: 0...1_000_000)
        self.overflowShare = reader.integer("OVERFLOW_SHARE", default: 1_000, in: 1...1_000_000)
        self.retention = RetentionSettings(reader)
        self.outboxDatabases = reader.value("OUTBOX_DATABASE_URLS", default: []) { try DatabaseList($0).urls }
    }
}

/// How long data is kept.
package struct RetentionSettings: Sendable {
    /// Audit records of sends and token changes.
    package let audit: Duration
    /// Notifications in inboxes.
    package let inbox: Duration
    /// Tombstones of deleted notifications, which resuming clients need.
    package let tombstones: Duration
    /// Devices that have not been used.
    package let devices: Duration
    package let deadLetters: Duration

    /// Sets the number of days for each.
    package init(audit: Int, inbox: Int, tombstones: Int, devices: Int, deadLetters: Int) {
        func days(_ count: Int) -> Duration { .seconds(count * 86_400) }
        self.audit = days(audit)
        self.inbox = days(inbox)
        self.tombstones = days(tombstones)
        self.devices = days(devices)
        self.deadLetters = days(deadLetters)
    }

    /// Reads the variables; records faults in `reader`.
    init(_ reader: SettingsReader) {
        self.init(
            // At most 400: a statement locks a partition and an index for each day. At least 8:
            // after Redis lost its data, pushes of the last 7 days that have no attempt may go out
            // again.
            audit: reader.integer("AUDIT_DAYS", default: 90, in: 8...400),
            inbox: reader.integer("INBOX_DAYS", default: 90, in: 1...3_650),
            tombstones: reader.integer("TOMBSTONE_DAYS", default: 30, in: 1...3_650),
            devices: reader.integer("DEVICE_DAYS", default: 90, in: 1...3_650),
            deadLetters: reader.integer("DEAD_LETTER_DAYS", default: 30, in: 1...3_650))
    }
}

/// PostgreSQL URLs in one variable, separated by commas or spaces.
struct DatabaseList {
    let urls: [String]

    /// - Throws: ``FieldFault``, which never shows the text, because it may contain a password.
    init(_ text: String) throws(FieldFault) {
        var urls: [String] = []
        for word in text.split(whereSeparator: \.isWhitespace) {
            var isFirst = true
            for part in word.split(separator: ",") {
                if DatabaseURL.isURL(part) {
                    urls.append(String(part))
                } else if isFirst {
                    throw FieldFault("must be URLs such as postgresql://user@host/database, with commas between them")
                } else {
                    // A URL may list several hosts, also separated by commas.
                    urls[urls.count - 1] += "," + part
                }
                isFirst = false
            }
        }
        for url in urls { _ = try DatabaseURL.checked(url) }
        self.urls = urls
    }
}
