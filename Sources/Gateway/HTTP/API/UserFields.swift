// Carillon · UserFields.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Reads what bodies say about a user: settings, preferences, devices, topics.
///
/// Every faulty field is named with its path.
package struct UserFields: Sendable {
    /// FCM's tokens have some 160 characters, a Web Push subscription some 600; an index of PostgreSQL takes 2,700 bytes.
    package static let longestToken = 2_048
    static let mostPreferences = 1_000
    static let mostTopics = 1_000
    private static let zones = ZoneDatabase()

    private let catalogs: CatalogRegister
    private let now: @Sendable () -> Timestamp
    private let webPushOrigins: WebPushOrigins
    private let appOrigins: [String: WebPushOrigins]

    /// - Parameters:
    ///   - webPushOrigins: the push services that subscriptions may name.
    ///   - appOrigins: those of apps that have a list of their own.
    package init(
        catalogs: CatalogRegister,
        now: @escaping @Sendable () -> Timestamp,
        webPushOrigins: WebPushOrigins = .any,
        appOrigins: [String: WebPushOrigins] = [:]
    ) {
        self.catalogs = catalogs
        self.now = now
        self.webPushOrigins = webPushOrigins
        self.appOrigins = appOrigins
    }

    /// The catalog of this moment.
    var catalog: Catalog { self.catalogs.current }

    // MARK: Settings

    /// Reads settings, and which of them the body leaves out and so keeps.
    static func settings(_ body: inout JSONBody) -> (UserSettings, keeping: KeptSettings) {
        body.allow(["zone", "locale", "email", "opted_out", "email_opted_out", "quiet_hours"])
        var settings = UserSettings()
        var kept: KeptSettings = []
        settings.zone = body.text("zone", limit: 64)
        settings.locale = Self.locale(&body)
        settings.email = body.text("email", limit: 254)
        settings.isOptedOut = body.flag("opted_out") ?? false
        if let zone = settings.zone, Self.zones.current(zone) == nil { body.fault("zone", "is no IANA time zone") }
        if let email = settings.email, !Self.isAddress(email) { body.fault("email", "is no e-mail address") }
        if let isOptedOut = body.flag("email_opted_out") {
            settings.isEmailOptedOut = isOptedOut
        } else {
            kept.insert(.emailOptOut)
        }
        switch body.value["quiet_hours"] {
        case nil: kept.insert(.quietHours)
        case .null: break
        case let value?:
            var part = JSONBody(value, at: "quiet_hours")
            let isOn = part.flag("enabled") ?? true
            let hours = Self.quietHours(&part, others: ["enabled"])
            if isOn { settings.quietHours = hours } else { settings.pausedQuietHours = hours }
            for fault in part.faults { body.fault(fault.field, fault.reason) }
        }
        return (settings, kept)
    }

    /// `{"start":"22:00","end":"07:00","weekdays":[1,…,7]}` with 1 for Monday; start = end means none.
    ///
    /// - Parameter others: further fields that the body may have.
    static func quietHours(_ body: inout JSONBody, others: Set<String> = []) -> QuietHours? {
        body.allow(others.union(["start", "end", "weekdays"]))
        let start = Self.minutes("start", &body)
        let end = Self.minutes("end", &body)
        var weekdays: UInt8 = 0x7F
        if let days = body.value["weekdays"], days != .null {
            let numbers = days.array?.compactMap(\.integer) ?? []
            if numbers.isEmpty || numbers.count > 7 || numbers.count != days.array?.count
                || !numbers.allSatisfy({ (1...7).contains($0) })
            {
                body.fault("weekdays", "must be an array of 1 to 7 numbers from 1 (Monday) to 7")
            } else {
                weekdays = numbers.reduce(0) { $0 | 1 << UInt8($1 - 1) }
            }
        }
        guard let start, let end, start != end else { return nil }
        return QuietHours(start: start, end: end, weekdays: weekdays)
    }

    private static func minutes(_ name: String, _ body: inout JSONBody) -> Int? {
        guard let text = body.text(name, limit: 64, isRequired: true) else { return nil }
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2, parts.allSatisfy({ $0.utf8.count == 2 && $0.utf8.allSatisfy(Self.isDigit) }),
            let hours = Int(parts[0]), let minutes = Int(parts[1]), (0..<24).contains(hours), (0..<60).contains(minutes)
        else {
            body.fault(name, "must be a time of day as HH:MM")
            return nil
        }
        return hours * 60 + minutes
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }

    /// One `@` with something on both sides, and nothing that could break out of a header.
    private static func isAddress(_ text: String) -> Bool {
        let parts = text.split(separator: "@", omittingEmptySubsequences: false)
        return parts.count == 2 && parts.allSatisfy { !$0.isEmpty }
            && text.unicodeScalars.allSatisfy { $0.value > 0x20 && !(0x7F...0x9F).contains($0.value) }
            && !text.contains { "<>,;:\"()[]\\".contains($0) || $0.isWhitespace }
    }

    /// A language tag such as `de-CH`; an underscore passes for the hyphen, as phones write it.
    private static func locale(_ body: inout JSONBody) -> String? {
        guard let text = body.text("locale", limit: Self.longestLocale) else { return nil }
        if !Self.isLanguageTag(text) { body.fault("locale", Self.noLanguageTag) }
        return text
    }

    package static let longestLocale = 35
    /// The fault of a text that is not ``isLanguageTag(_:)``.
    package static let noLanguageTag = "must be a language tag such as de or de-CH"

    /// Whether a text has the form of a language tag; an underscore passes for the hyphen.
    package static func isLanguageTag(_ text: String) -> Bool {
        let parts = text.utf8.split(omittingEmptySubsequences: false) {
            $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "_")
        }
        return parts.allSatisfy { part in
            (1...8).contains(part.count)
                && part.allSatisfy { Self.isDigit($0) || (0x61...0x7A).contains($0 | 0x20) }
        }
    }

    // MARK: Preferences

    // MARK: Devices

    /// Reads a device as an app registers it; nil with a fault if it cannot be one.
    ///
    /// - Parameter allowsTopics: whether the token may stand for a topic of FCM's. Not where users speak for themselves:
    ///   their notifications would go to all who have subscribed to it.
    func device(_ body: inout JSONBody, user: String, allowsTopics: Bool) -> Device? {
        body.allow([
            "platform", "provider", "token", "app", "environment", "name", "device_id", "app_version", "locale",
        ])
        let platform = body.choice("platform", of: Platform.self, isRequired: true)
        var provider = self.provider(&body)
        var token = body.text("token", limit: Self.longestToken, isRequired: true)
        let app = body.text("app", limit: 64) ?? "default"
        let environment = body.choice("environment", of: ProviderEnvironment.self) ?? .production
        let name = body.text("name", limit: 128)
        let deviceID = body.text("device_id", limit: 128)
        let appVersion = body.text("app_version", limit: 64)
        let locale = Self.locale(&body)
        // One that is at fault says nothing of what its token looks like.
        if provider == nil, let platform, body.value["provider"]?.string == nil { provider = platform.provider }
        if let token, !Self.isPrintable(token) { body.fault("token", Self.unprintable) }
        if provider == .fcm, !allowsTopics, let token, Device.isTopic(token) {
            body.fault("token", "stands for a topic, which a service alone may register")
        }
        if provider == .apns, let token, !Device.isAPNSToken(token) { body.fault("token", Device.noAPNSToken) }
        if provider == .webpush, let text = token { token = self.subscription(text, app: app, &body) }
        guard let platform, let provider, let token else { return nil }
        var device = Device(
            id: NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)).asRandomUUID,
            user: user,
            platform: platform,
            provider: provider,
            app: app,
            environment: environment,
            token: token,
            registeredAt: self.now()
        )
        device.name = name
        device.deviceID = deviceID
        device.appVersion = appVersion
        device.locale = locale
        return device
    }

    /// What is wrong with a token that is not ``isPrintable(_:)``.
    package static let unprintable = "must be printable ASCII"

    /// Whether a text has the characters alone that a device's token may have.
    package static func isPrintable(_ token: String) -> Bool { token.utf8.allSatisfy { (0x20...0x7E).contains($0) } }

    /// Reads `provider`, which must be one that devices are registered with; nil if it is absent or at fault.
    func provider(_ body: inout JSONBody) -> Provider? {
        guard let text = body.text("provider", limit: 64) else { return nil }
        let providers = Provider.wellKnown.filter(\.isOfDevices)
        if let provider = providers.first(where: { $0.rawValue == text }) { return provider }
        body.fault("provider", "must be one of " + providers.map(\.rawValue).joined(separator: ", "))
        return nil
    }

    /// A subscription of Web Push in its one form; nil with a fault if it cannot be sent to.
    private func subscription(_ token: String, app: String, _ body: inout JSONBody) -> String? {
        do throws(WebPushSubscription.Fault) {
            let subscription = try WebPushSubscription(token: token)
            if !subscription.isKeyOnCurve { body.fault("token", "has keys.p256dh that is no point of P-256") }
            if let origins = self.appOrigins[app] {
                if !origins.allows(subscription.origin) {
                    body.fault(
                        "token", "has an endpoint at \(subscription.origin), which is not among the app's origins")
                }
            } else if !self.webPushOrigins.allows(subscription.origin) {
                body.fault("token", "has an endpoint at \(subscription.origin), which is not among WEBPUSH_ORIGINS")
            }
            return subscription.token
        } catch {
            body.fault("token", error.description)
            return nil
        }
    }

    // MARK: All at once

    /// Reads a record: `settings`, `preferences`, `categories`, `devices` and `topics`, each as its own call takes it.
    ///
    /// Only services and operators bring records, so that devices may stand for topics of FCM's.
    ///
    /// - Parameter user: the user; nil if the record says it as `user_id`.
    /// - Throws: ``JobFaults`` with every fault.
    package func record(_ value: JSONValue, user: String?) throws(JobFaults) -> UserRecord {
        guard value.object != nil else { throw JobFaults([JobFault("record", "must be a JSON object")]) }
        var body = JSONBody(value, at: "")
        var names: Set<String> = ["settings", "preferences", "categories", "devices", "topics"]
        if user == nil { names.insert("user_id") }
        body.allow(names)
        let user = user ?? body.text("user_id", limit: JobLimits.user, isRequired: true) ?? ""
        var record = UserRecord(user: user)
        if let settings = value["settings"], settings != .null {
            var part = JSONBody(settings, at: "settings")
            let (settings, kept) = Self.settings(&part)
            record.settings = settings
            record.keptSettings = kept
            for fault in part.faults { body.fault(fault.field, fault.reason) }
        }
        record.preferences = self.preferences("preferences", &body)
        record.preferences.merge(self.categoryPreferences("categories", &body)) { one, _ in one }
        for (index, element) in body.elements("devices", limit: DeviceLimits.allowed.upperBound).enumerated() {
            var part = JSONBody(element, at: "devices[\(index)]")
            if element.object != nil, let device = self.device(&part, user: user, allowsTopics: true) {
                record.devices.append(device)
            }
            for fault in part.faults { body.fault(fault.field, fault.reason) }
        }
        for (index, element) in body.elements("topics", limit: Self.mostTopics).enumerated() {
            if let topic = element.string, (1...JobLimits.name).contains(topic.unicodeScalars.count) {
                record.topics.append(topic)
            } else {
                body.fault("topics[\(index)]", "must be text of 1 to \(JobLimits.name) characters")
            }
        }
        guard body.faults.isEmpty else { throw JobFaults(body.faults) }
        return record
    }

    /// Reads a list of 1 to `limit` user ids.
    static func users(_ name: String, _ body: inout JSONBody, limit: Int) -> [String] {
        var users: [String] = []
        for (index, element) in body.elements(name, limit: limit, isRequired: true).enumerated() {
            if let user = element.string, (1...JobLimits.user).contains(user.unicodeScalars.count) {
                users.append(user)
            } else {
                body.fault("\(name)[\(index)]", "must be text of 1 to \(JobLimits.user) characters")
            }
        }
        return users
    }
}
