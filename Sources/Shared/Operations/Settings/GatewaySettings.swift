// Carillon · GatewaySettings.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The settings of `gateway serve`, read and validated once at start.
package struct GatewaySettings: Sendable {
    package let common: CommonSettings
    package let host: String
    package let port: Int
    /// The gateway's public URL, without a trailing slash.
    package let publicURL: String?
    /// The origin of the pages at the public URL, as browsers write it.
    package var publicOrigin: String? { self.publicURL.map { WebOrigin(url: $0).text } }
    /// Whether reconnecting Socket.IO clients get what they missed instead of a new list.
    package let hasSocketIORecovery: Bool
    package let tlsCertificate: String?
    package let tlsKey: String?
    package let authentication: AuthenticationSettings
    package let protection: ProtectionSettings
    /// The APNs environment of tokens whose clients do not name one.
    package let apnsEnvironment: ProviderEnvironment
    package let devices: DeviceSettings
    /// The size of the cache of inbox pages, in bytes.
    package let inboxCacheBytes: Int
    /// Standbys of PostgreSQL for pages of inboxes; nil for none.
    package let readDatabase: String?

    /// Reads the variables; records faults in `reader`.
    package init(_ reader: SettingsReader) {
        self.common = CommonSettings(reader)
        self.host = reader.text("GATEWAY_HOST") ?? "127.0.0.1"
        self.port = reader.integer("GATEWAY_PORT", default: 8080, in: 0...65_535)
        self.publicURL = CommonSettings.publicURL(reader)
        self.hasSocketIORecovery = reader.isOn("SOCKETIO_RECOVERY", default: false)
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
        self.readDatabase = reader.value("DATABASE_READ_URL", default: nil) { try DatabaseURL.checked($0) }
    }
}

/// Access rules and limits of the gateway's listener.
package struct ProtectionSettings: Sendable {
    /// Origins whose pages may open sockets and read answers, in lower case; nil for all.
    package let allowedOrigins: [String]?
    /// Addresses and networks of proxies, as written.
    package let trustedProxies: [String]
    /// Sockets of one user per node.
    package let userConnections: Int
    /// Sockets of one address per node; nil for no limit.
    package let addressConnections: Int?
    /// Calls of one user per second on all nodes; nil for no limit.
    package let userCalls: Int?
    /// Messages of one user per second, over all sockets and nodes; nil for no limit.
    package let userMessages: Int?

    /// Reads the variables; records faults in `reader`.
    init(_ reader: SettingsReader) {
        self.allowedOrigins = reader.value("ALLOWED_ORIGINS", default: []) { text -> [String]? in
            text == "*" ? nil : try Self.list(text).map { try WebOrigin($0).text }
        }
        self.trustedProxies = Self.list(reader.text("TRUSTED_PROXIES") ?? "")
        self.userConnections = reader.integer("USER_CONNECTIONS", default: 32, in: 1...100_000)
        self.addressConnections = reader.limit("ADDRESS_CONNECTIONS", default: 0, in: 0...1_000_000)
        self.userCalls = reader.limit("USER_CALLS_PER_SECOND", default: 50, in: 0...100_000)
        self.userMessages = reader.limit("USER_MESSAGES_PER_SECOND", default: 50, in: 0...100_000)
    }

    private static func list(_ text: String) -> [String] {
        text.split(separator: ",").map { String($0.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed()) }
    }
}

/// The gateway's settings for registering devices and browsers.
package struct DeviceSettings: Sendable {
    /// The path of the key that browsers subscribe with; nil for none.
    package let webPushKey: String?
    /// The push services that subscriptions may use, for apps without their own list.
    private let origins: WebPushOrigins
    /// The most active devices of a user per app, for apps without their own limit.
    private let perUser: Int
    /// A file of further apps with their own rules; nil for none.
    package let appsFile: String?

    /// Reads the variables; records faults in `reader`.
    package init(_ reader: SettingsReader) {
        self.webPushKey = reader.text("VAPID_KEY")
        self.origins = reader.value("WEBPUSH_ORIGINS", default: .any) { try WebPushOrigins($0) }
        self.perUser = reader.integer("DEVICES_PER_USER", default: 20, in: DeviceLimits.allowed)
        self.appsFile = reader.text("APPS")
    }

    /// Loads ``appsFile`` and returns the rules of all apps.
    ///
    /// - Throws: ``AppsFaults``.
    package func rules() throws(AppsFaults) -> DeviceRules {
        var rules = DeviceRules(origins: self.origins, limits: DeviceLimits(standard: self.perUser))
        guard let appsFile else { return rules }
        let apps = try AppsFile.load(path: appsFile)
        var faults: [String] = []
        for app in apps {
            do throws(FieldFault) {
                rules.appOrigins[app.name] = try app.webPushOrigins()
            } catch {
                faults.append("app \(app.name): webpush.origins \(error)")
            }
        }
        guard faults.isEmpty else { throw AppsFaults(faults: faults) }
        let limits = apps.compactMap { app in app.devices.map { (app.name, $0) } }
        rules.limits = DeviceLimits(standard: self.perUser, ofApps: Dictionary(limits) { $1 })
        return rules
    }
}

/// The device rules of all apps.
package struct DeviceRules: Sendable {
    /// The push services that subscriptions may use, for apps without their own list.
    package let origins: WebPushOrigins
    /// The push services of apps with their own list.
    package internal(set) var appOrigins: [String: WebPushOrigins] = [:]
    package internal(set) var limits: DeviceLimits

    package init(origins: WebPushOrigins = .any, limits: DeviceLimits = DeviceLimits()) {
        self.origins = origins
        self.limits = limits
    }
}

/// The origin of a page: scheme, host and port (RFC 6454 section 6.2).
struct WebOrigin {
    /// The origin as browsers write it, in lower case and without the scheme's default port.
    let text: String

    /// Takes the origin of a valid `https` or `http` URL.
    init(url: String) {
        let scheme = url.hasPrefix("https://") ? "https://" : "http://"
        let authority = url.dropFirst(scheme.count).prefix { !"/?#".contains($0) }
        self.text = Self.withoutDefaultPort(scheme + authority.lowercased())
    }

    /// Parses `scheme://host`, with or without a port.
    ///
    /// Packaged web apps have schemes of their own, such as `capacitor` and `ionic`.
    init(_ text: String) throws(FieldFault) {
        let text = text.lowercased()
        let fault = FieldFault("must be origins such as https://app.example.com, with commas between them")
        guard let mark = text.firstRange(of: "://"), Self.isScheme(text[..<mark.lowerBound]) else { throw fault }
        let host = text[mark.upperBound...].utf8
        guard !host.isEmpty, host.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"/?#@*\\,".utf8.contains($0) }) else {
            throw fault
        }
        self.text = Self.withoutDefaultPort(text)
    }

    /// Whether a text in lower case is a scheme (RFC 3986 section 3.1).
    private static func isScheme(_ text: Substring) -> Bool {
        let letters = UInt8(ascii: "a")...UInt8(ascii: "z")
        guard let first = text.utf8.first, letters.contains(first) else { return false }
        return text.utf8.allSatisfy { letters.contains($0) || "0123456789+-.".utf8.contains($0) }
    }

    private static func withoutDefaultPort(_ origin: String) -> String {
        for (scheme, port) in [("https:", ":443"), ("http:", ":80")]
        where origin.hasPrefix(scheme) && origin.hasSuffix(port) {
            return String(origin.dropLast(port.count))
        }
        return origin
    }
}
