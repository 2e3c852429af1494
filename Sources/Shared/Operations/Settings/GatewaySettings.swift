// Carillon · GatewaySettings.swift
// SPDX-License-Identifier: Apache-2.0

/// The gateway's configuration.
package struct GatewaySettings: Sendable {
    package enum Switch: String, Sendable, CaseIterable {
        case off, on
    }

    package let common: CommonSettings
    package let host: String
    package let port: Int
    package let publicURL: String?
    /// Whether Socket.IO clients that lost their connection get what they missed instead of a new list.
    package let socketIORecovery: Switch
    package let tlsCertificate: String?
    package let tlsKey: String?
    package let authentication: AuthenticationSettings
    package let protection: ProtectionSettings
    /// Which of Apple's services the tokens of clients are of that do not say so.
    package let apnsEnvironment: DispatcherSettings.APNSEnvironment
    package let devices: DeviceSettings
    /// Bytes of answered inbox pages that are kept in memory.
    package let inboxCacheBytes: Int

    /// Reads it; faults stay with the reader.
    package init(_ reader: SettingsReader) {
        self.common = CommonSettings(reader)
        self.host = reader.text("GATEWAY_HOST") ?? "127.0.0.1"
        self.port = reader.integer("GATEWAY_PORT", default: 8080, in: 0...65_535)
        self.publicURL = reader.text("PUBLIC_URL")
        self.socketIORecovery = reader.choice("SOCKETIO_RECOVERY", default: .off)
        self.tlsCertificate = reader.text("GATEWAY_TLS_CERT")
        self.tlsKey = reader.text("GATEWAY_TLS_KEY")
        if (self.tlsCertificate == nil) != (self.tlsKey == nil) {
            reader.fault("GATEWAY_TLS_CERT", "and GATEWAY_TLS_KEY go together; one is missing")
        }
        self.authentication = AuthenticationSettings(reader)
        self.protection = ProtectionSettings(reader)
        self.apnsEnvironment = reader.choice("APNS_ENVIRONMENT", default: .production)
        self.devices = DeviceSettings(reader)
        self.inboxCacheBytes = reader.integer("INBOX_CACHE_MB", default: 64, in: 0...65_536) << 20
    }
}
