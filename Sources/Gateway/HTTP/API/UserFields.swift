// Carillon · UserFields.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Operations
import Storage

/// Reads settings, preferences, devices and topics from request bodies.
///
/// Faults name each field with its path.
package struct UserFields: Sendable {
    /// An FCM token has about 160 characters, a Web Push subscription about 600; a PostgreSQL index
    /// holds 2,700 bytes.
    static let longestToken = 2_048
    static let mostPreferences = 1_000
    static let mostTopics = 1_000
    private static let zones = ZoneDatabase()

    private let catalogs: CatalogRegister
    private let now: @Sendable () -> Timestamp
    private let webPushOrigins: WebPushOrigins
    private let appOrigins: [String: WebPushOrigins]

    /// - Parameters:
    ///   - webPushOrigins: the push services that subscriptions may name.
    ///   - appOrigins: the push services by app, for apps with a list of their own.
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

    /// The current catalog.
    var catalog: Catalog { self.catalogs.current }

    // MARK: Settings

    private static let settingsParts: [(name: String, part: KeptSettings)] = [
        ("zone", .zone), ("locale", .locale), ("email", .email), ("opted_out", .optOut),
        ("email_opted_out", .emailOptOut), ("quiet_hours", .quietHours),
    ]

    /// Reads settings, and returns which ones the body leaves out.
    ///
    /// Settings that the body leaves out stay as they are; null clears a setting.
    static func settings(_ body: inout FieldReader) -> (UserSettings, keeping: KeptSettings) {
        body.allow(.settingsChange)
        var settings = UserSettings()
        var kept: KeptSettings = []
        settings.zone = body.text("zone", limit: 64)
        settings.locale = Self.locale(&body)
        settings.email = body.text("email", limit: 254)
        settings.isOptedOut = body.flag("opted_out") ?? false
        if let zone = settings.zone, Self.zones.current(zone) == nil {
            body.fault("zone", "is not an IANA time zone, such as Europe/Berlin")
        }
        // The dispatcher's own check, so that mail can go to every stored address.
        if let email = settings.email, EmailAddress(email) == nil {
            body.fault("email", "is not an ASCII address such as ada@example.com")
        }
        settings.isEmailOptedOut = body.flag("email_opted_out") ?? false
        for (name, part) in Self.settingsParts where body.value[name] == nil { kept.insert(part) }
        switch body.value["quiet_hours"] {
        case nil, .null: break
        case let value?:
            var part = FieldReader(value, at: "quiet_hours")
            let isOn = part.flag("enabled") ?? true
            let hours = Self.quietHours(&part, as: .quietHoursChange)
            if isOn { settings.quietHours = hours } else { settings.pausedQuietHours = hours }
            body.add(part)
        }
        return (settings, kept)
    }

    /// Reads `{"start":"22:00","end":"07:00","weekdays":[1,…,7]}`; 1 is Monday, start = end means
    /// none.
    ///
    /// - Parameter schema: has the fields that the body may have.
    static func quietHours(_ body: inout FieldReader, as schema: Schema = .quietHours) -> QuietHours? {
        body.allow(schema)
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

    private static func minutes(_ name: String, _ body: inout FieldReader) -> Int? {
        guard let text = body.text(name, limit: 64, isRequired: true) else { return nil }
        if let time = LocalTime(text) { return time.minutes }
        body.fault(name, "must be a time of day as HH:MM")
        return nil
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }

    /// Reads a language tag such as `de-CH`; phones write an underscore for the hyphen.
    private static func locale(_ body: inout FieldReader) -> String? {
        guard let text = body.text("locale", limit: LocaleTag.longest) else { return nil }
        if !Self.isLanguageTag(text) { body.fault("locale", Self.noLanguageTag) }
        return text
    }

    /// The fault of an invalid language tag.
    static let noLanguageTag = "must be a language tag such as de or de-CH"

    /// Whether the text is a language tag.
    ///
    /// Phones may write an underscore for the hyphen, and add a suffix after `@` or `#`.
    static func isLanguageTag(_ text: String) -> Bool {
        guard text.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else { return false }
        let parts = LocaleTag.tag(in: text).utf8.split(omittingEmptySubsequences: false) {
            $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "_")
        }
        return parts.allSatisfy { part in
            (1...8).contains(part.count)
                && part.allSatisfy { Self.isDigit($0) || (0x61...0x7A).contains($0 | 0x20) }
        }
    }

    // MARK: Devices

    /// Reads a device registration; nil with a fault if it is invalid.
    ///
    /// - Parameter allowsTopics: whether the token may be an FCM topic. Users may not register one,
    ///   because all subscribers of the topic would get their notifications.
    func device(_ body: inout FieldReader, user: String, allowsTopics: Bool) -> Device? {
        body.allow(.deviceRegistration)
        let platform = body.choice("platform", of: Platform.self, isRequired: true)
        var provider = self.provider(&body)
        var token = body.text("token", limit: Self.longestToken, isRequired: true)
        let app = body.text("app", limit: 64) ?? "default"
        let environment = body.choice("environment", of: ProviderEnvironment.self) ?? .production
        let name = body.text("name", limit: Device.longestName)
        let deviceID = body.text("device_id", limit: Device.longestName)
        let appVersion = body.text("app_version", limit: 64)
        let locale = Self.locale(&body)
        // An invalid provider says nothing about the format of the token.
        if provider == nil, let platform, body.value["provider"]?.string == nil { provider = platform.provider }
        if let token, !Self.isPrintable(token) { body.fault("token", Self.unprintable) }
        if provider == .fcm, !allowsTopics, let token, Device.isTopic(token) {
            body.fault("token", "is an FCM topic; only a service may register one")
        }
        if provider == .apns, let token, !Device.isAPNSToken(token) { body.fault("token", Device.apnsTokenFault) }
        if provider == .webpush, let text = token { token = self.subscription(text, app: app, &body) }
        guard let platform, let provider, let token else { return nil }
        var device = Device(
            id: DeviceID.random(),
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

    /// The fault of a token with other characters.
    static let unprintable = "must be printable ASCII"

    /// Whether the token is printable ASCII.
    static func isPrintable(_ token: String) -> Bool { token.utf8.allSatisfy { (0x20...0x7E).contains($0) } }

    /// Reads `provider`; nil if it is absent or invalid.
    func provider(_ body: inout FieldReader) -> Provider? {
        guard let text = body.text("provider", limit: 64) else { return nil }
        let providers = Provider.all.filter(\.isOfDevices)
        if let provider = providers.first(where: { $0.rawValue == text }) { return provider }
        body.fault("provider", "must be one of " + providers.map(\.rawValue).joined(separator: ", "))
        return nil
    }

    /// Returns a Web Push subscription in canonical form; nil with a fault if it is invalid.
    private func subscription(_ token: String, app: String, _ body: inout FieldReader) -> String? {
        do throws(FieldFault) {
            let subscription = try WebPushSubscription(token: token)
            if !subscription.isKeyOnCurve { body.fault("token", "keys.p256dh is not a point on P-256") }
            if let origins = self.appOrigins[app] {
                if !origins.allows(subscription.origin) {
                    body.fault(
                        "token",
                        "has an endpoint at \(subscription.origin), which is not among the app's origins; "
                            + "add it to webpush.origins of app \(app)")
                }
            } else if !self.webPushOrigins.allows(subscription.origin) {
                body.fault(
                    "token",
                    "has an endpoint at \(subscription.origin), which is not among WEBPUSH_ORIGINS; add it there")
            }
            return subscription.token
        } catch {
            body.fault("token", error.description)
            return nil
        }
    }

    // MARK: All at once

    /// Reads a record: `settings`, `preferences`, `categories`, `devices` and `topics`, each as in
    /// its own call.
    ///
    /// Records come only from services and operators, so devices may be FCM topics.
    ///
    /// - Parameter user: the user; nil if the record names it in `user_id`.
    /// - Throws: ``JobFaults`` with every fault.
    func record(_ value: JSONValue, user: String?) throws(JobFaults) -> UserRecord {
        guard value.object != nil else { throw JobFaults([JobFault("record", "must be a JSON object")]) }
        var body = FieldReader(value, at: "")
        body.allow(Schema.userRecord.names.union(user == nil ? ["user_id"] : []))
        let user = user ?? body.text("user_id", limit: JobLimits.user, isRequired: true) ?? ""
        var record = UserRecord(user: user)
        if let settings = value["settings"], settings != .null {
            var part = FieldReader(settings, at: "settings")
            let (settings, kept) = Self.settings(&part)
            record.settings = settings
            record.keptSettings = kept
            body.add(part)
        }
        record.preferences = self.preferences("preferences", &body)
        record.preferences.merge(self.categoryPreferences("categories", &body)) { one, _ in one }
        for (index, element) in body.elements("devices", limit: DeviceLimits.allowed.upperBound).enumerated() {
            var part = FieldReader(element, at: "devices[\(index)]")
            if element.object != nil, let device = self.device(&part, user: user, allowsTopics: true) {
                record.devices.append(device)
            }
            body.add(part)
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
    static func users(_ name: String, _ body: inout FieldReader, limit: Int) -> [String] {
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

extension Schema {
    /// A device token: printable ASCII.
    static let deviceToken = text(UserFields.longestToken, pattern: "^[ -~]+$")

    /// A language tag, as ``UserFields/isLanguageTag(_:)`` reads it.
    static let locale = string(min: 1, max: LocaleTag.longest, pattern: "^\(Self.localePattern)$")
    /// The same, or empty text.
    static let lenientLocale = string(max: LocaleTag.longest, pattern: "^(\(Self.localePattern))?$")(
        "A language tag such as de-CH.")
    private static let localePattern = "[A-Za-z0-9]{1,8}([-_][A-Za-z0-9]{1,8})*([-_]*[@#][!-~]*)?"

    static let deviceRegistration = Schema(
        "DeviceRegistration",
        [
            "platform": .platform,
            "provider?": .deviceProvider.orNull("Defaults by platform."),
            "token": .deviceToken("Hexadecimal for `apns`; the JSON of the browser's PushSubscription for `webpush`."),
            "app?": .text(64).orNull.with("default", .string("default")),
            "environment?": .environment.orNull.with("default", .string("production")),
            "name?": .text(Device.longestName).orNull("Identifies a device that was registered without `device_id`."),
            "device_id?": .text(Device.longestName).orNull("Identifies the app's installation, also with a new token."),
            "app_version?": .text(64).orNull,
            "locale?": .locale.orNull,
        ], isClosed: true)

    static let quietHoursChange = Schema(
        "QuietHoursChange", "Wall-clock times in the user's zone; start = end means none.",
        [
            "start": .timeOfDay,
            "end": .timeOfDay,
            "weekdays?": .list(of: .integer(1...7), min: 1, max: 7).orNull("1 is Monday; all if absent."),
            "enabled?": .bool.orNull("false stores the times switched off; defaults to true."),
        ], isClosed: true)

    static let settingsChange = Schema(
        "SettingsChange", "Members that are left out stay; null clears a member.",
        [
            "zone?": .text(64).orNull("An IANA zone."),
            "locale?": .locale.orNull,
            "email?": .text(254).orNull("An address; it is not verified."),
            "opted_out?": .bool.orNull("null: false."),
            "email_opted_out?": .bool.orNull("null: false."),
            "quiet_hours?": .quietHoursChange.orNull("null: none."),
        ], isClosed: true)

    static let userRecord = Schema(
        "UserRecord",
        [
            "settings?": .settingsChange.orNull,
            "preferences?": .list(of: .typePreference, max: 1000).orNull,
            "devices?": .list(of: .deviceRegistration, max: 100).orNull,
            "topics?": .list(of: .text(JobLimits.name), max: 1000).orNull,
            "categories?": .list(of: .categoryPreference, max: 1000).orNull,
        ], isClosed: true)
}

extension UserFields {
    /// Reads a list of `{"type":…,"in_app":…,"push":…,"email":…,"quiet_hours":…}`.
    func preferences(_ name: String, _ body: inout FieldReader) -> [String: TypePreference] {
        self.read(name, &body, named: "type", as: .typePreference) { part, typeName in
            if let type = self.catalog[typeName] {
                if type.isRequired {
                    let isQuietHoursAlone =
                        part.value["quiet_hours"] != nil
                        && DeliveryChannel.allCases.allSatisfy { part.value[$0.rawValue] == nil }
                    let rule = isQuietHoursAlone ? "have its own quiet hours" : "be switched off"
                    part.fault("type", "is required and cannot \(rule)")
                }
            } else {
                part.fault("type", "is not in the catalog")
            }
            return typeName
        }
    }

    /// Reads a list of `{"category":…,"in_app":…,"push":…,"email":…}`, the defaults for the types
    /// of a category.
    func categoryPreferences(_ name: String, _ body: inout FieldReader) -> [String: TypePreference] {
        self.read(name, &body, named: "category", as: .categoryPreference) { part, category in
            if !self.catalog.categories.contains(where: { $0.category == category }) {
                part.fault("category", "is not in the catalog")
            }
            return PreferenceKey.category(category)
        }
    }

    private func read(
        _ name: String,
        _ body: inout FieldReader,
        named: String,
        as schema: Schema,
        key: (inout FieldReader, String) -> String
    ) -> [String: TypePreference] {
        var preferences: [String: TypePreference] = [:]
        let entries = body.elements(name, limit: Self.mostPreferences)
        for (index, entry) in entries.enumerated() {
            var part = FieldReader(entry, at: "\(name)[\(index)]")
            part.allow(schema)
            var preference = TypePreference(
                inApp: part.flag("in_app"),
                push: part.flag("push"),
                email: part.flag("email")
            )
            preference.quietHours = Self.quietOverride(&part)
            for channel in DeliveryChannel.allCases where part.value[channel.rawValue] == .null {
                preference.cleared.insert(Channels(channel))
            }
            if entry.object != nil, let text = part.text(named, limit: JobLimits.name, isRequired: true) {
                let key = key(&part, text)
                if preferences.updateValue(preference, forKey: key) != nil { part.fault(named, "occurs twice") }
            }
            body.add(part)
        }
        return preferences
    }

    /// Reads a type's own quiet hours: an object, `"none"`, or null for the user's; nil if absent.
    private static func quietOverride(_ body: inout FieldReader) -> QuietOverride? {
        switch body.value["quiet_hours"] {
        case nil: return nil
        case .null: return .inherited
        case .string("none"): return QuietOverride.none
        case let value?:
            guard value.object != nil else {
                body.fault("quiet_hours", "must be an object with start and end, \"none\" or null")
                return nil
            }
            var part = FieldReader(value, at: "quiet_hours")
            let hours = self.quietHours(&part)
            body.add(part)
            return hours.map { .hours($0) } ?? QuietOverride.none
        }
    }
}

extension Schema {
    static let typePreference = Schema(
        "TypePreference", "Members that are left out stay; null: the catalog's default.",
        [
            "type": .text(JobLimits.name),
            "in_app?": .bool.orNull,
            "push?": .bool.orNull,
            "email?": .bool.orNull,
            "quiet_hours?": .oneOf(.quietHours, .constant(.string("none"))).orNull(
                "The type's own; \"none\" for none, null for the user's."),
        ], isClosed: true)

    static let categoryPreference = Schema(
        "CategoryPreference",
        "Applies to the types of the category without an own preference. Members that are left out stay; "
            + "null: the catalog's default.",
        [
            "category": .text(JobLimits.name),
            "in_app?": .bool.orNull,
            "push?": .bool.orNull,
            "email?": .bool.orNull,
        ], isClosed: true)
}
