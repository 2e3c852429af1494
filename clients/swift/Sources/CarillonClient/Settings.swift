// Carillon · Settings.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// The hours in which a user's devices do not ring, in the zone of the user's settings.
public struct QuietHours: Codable, Equatable, Sendable {
    /// The time of day, such as `22:00`.
    public var start: String
    public var end: String
    /// The days on which they begin, from 1 (Monday) to 7; nil for all.
    public var weekdays: [Int]?

    public init(start: String, end: String, weekdays: [Int]? = nil) {
        self.start = start
        self.end = end
        self.weekdays = weekdays
    }
}

/// A user's settings.
public struct Settings: Decodable, Equatable, Sendable {
    /// The IANA time zone, such as `Europe/Berlin`.
    public let zone: String?
    public let locale: String?
    public let email: String?
    public let isOptedOut: Bool
    public let isEmailOptedOut: Bool
    public let quietHours: QuietHours?
    /// Whether e-mail is on for a type although the user has no valid address.
    public let isEmailMissing: Bool

    private enum CodingKeys: String, CodingKey {
        case zone, locale, email
        case isOptedOut = "opted_out"
        case isEmailOptedOut = "email_opted_out"
        case quietHours = "quiet_hours"
        case isEmailMissing = "email_missing"
    }
}

/// A user's preferences for each type and category.
public struct Preferences: Decodable, Equatable, Sendable {
    /// The effective preferences for a type.
    public struct ForType: Decodable, Equatable, Identifiable, Sendable {
        public let type: String
        public let category: String?
        /// Whether the user cannot switch it off.
        public let isRequired: Bool
        /// The channels of the type; the others are always off.
        public let channels: [String]
        public let inApp: Bool
        public let push: Bool
        public let email: Bool

        public var id: String { self.type }

        private enum CodingKeys: String, CodingKey {
            case type, category, channels, push, email
            case isRequired = "required"
            case inApp = "in_app"
        }
    }

    /// The user's defaults for the types of a category; nil where the catalog decides.
    public struct ForCategory: Decodable, Equatable, Identifiable, Sendable {
        public let category: String
        public let inApp: Bool?
        public let push: Bool?
        public let email: Bool?

        public var id: String { self.category }

        private enum CodingKeys: String, CodingKey {
            case category, push, email
            case inApp = "in_app"
        }
    }

    /// A change of the preferences for a type or a category.
    ///
    /// Each channel that it names gets a value or, with nil, the default.
    public struct Change: Encodable, Sendable {
        private var members: [String: JSONValue]
        fileprivate let isOfCategory: Bool

        private init(_ key: String, _ name: String, _ channels: [Channel: Bool?]) {
            self.members = [key: .string(name)]
            for (channel, value) in channels { self.members[channel.rawValue] = value.map { .bool($0) } ?? .null }
            self.isOfCategory = key == "category"
        }

        public static func type(_ name: String, _ channels: [Channel: Bool?]) -> Change {
            Change("type", name, channels)
        }

        public static func category(_ name: String, _ channels: [Channel: Bool?]) -> Change {
            Change("category", name, channels)
        }

        public func encode(to encoder: any Encoder) throws { try self.members.encode(to: encoder) }
    }

    public enum Channel: String, Sendable {
        case inApp = "in_app"
        case push, email
    }

    public let types: [ForType]
    public let categories: [ForCategory]
    /// Whether e-mail is on for a type although the user has no valid address.
    public let isEmailMissing: Bool

    private enum CodingKeys: String, CodingKey {
        case types, categories
        case isEmailMissing = "email_missing"
    }
}

/// The details of a device, besides its token.
public struct DeviceRegistration: Encodable, Sendable {
    public enum Environment: String, Encodable, Sendable {
        /// TestFlight and the App Store.
        case production
        /// Builds from Xcode.
        case sandbox
    }

    public var environment: Environment
    /// Identifies this installation, so that a new token replaces the old one.
    public var deviceID: String?
    /// Replaces a device of the same user, app, platform and name that has no `deviceID`.
    public var name: String?
    public var appVersion: String?
    /// The language, such as `de-AT`.
    public var locale: String?
    /// One of the gateway's apps; nil for `default`.
    public var app: String?
    private let platform = "ios"
    fileprivate var provider: String?
    fileprivate var token = ""

    public init(
        environment: Environment = .production, deviceID: String? = nil, name: String? = nil,
        appVersion: String? = nil, locale: String? = nil, app: String? = nil
    ) {
        self.environment = environment
        self.deviceID = deviceID
        self.name = name
        self.appVersion = appVersion
        self.locale = locale
        self.app = app
    }

    private enum CodingKeys: String, CodingKey {
        case platform, provider, token, environment, name, locale, app
        case deviceID = "device_id"
        case appVersion = "app_version"
    }
}

/// A device of the user that gets pushes.
public struct Device: Decodable, Identifiable, Sendable {
    public let id: String
    public let platform: String
    public let name: String?
    public let deviceID: String?
    /// Whether its token is valid, as far as the provider has said.
    public let active: Bool
    /// Whether the user allows pushes to it.
    public let enabled: Bool

    private enum CodingKeys: String, CodingKey {
        case id, platform, name, active, enabled
        case deviceID = "device_id"
    }
}

extension Gateway {
    /// Registers this device for pushes by APNs, or renews it.
    ///
    /// Call it after login and at each start while the user is logged in, since tokens change.
    ///
    /// - Parameter token: the one that `didRegisterForRemoteNotificationsWithDeviceToken` gets.
    @discardableResult
    public func registerDevice(
        token: Data, _ details: DeviceRegistration = DeviceRegistration()
    ) async throws(GatewayError) -> Device {
        var registration = details
        let digits = Array("0123456789abcdef")
        registration.token = String(token.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] })
        return try await self.call("POST", ["devices"], registration)
    }

    /// Registers this device for pushes by Firebase, or renews it; the environment does not matter.
    ///
    /// Call it after login and at each start while the user is logged in, since tokens change.
    ///
    /// - Parameter fcmToken: the one that Firebase's `Messaging.token()` returns.
    @discardableResult
    public func registerDevice(
        fcmToken: String, _ details: DeviceRegistration = DeviceRegistration()
    ) async throws(GatewayError) -> Device {
        var registration = details
        registration.provider = "fcm"
        registration.token = fcmToken
        return try await self.call("POST", ["devices"], registration)
    }

    /// Removes the device, as on logout while the token is still valid.
    ///
    /// The call needs a network. `UIApplication.unregisterForRemoteNotifications()` stops pushes
    /// without one.
    public func unregisterDevice(deviceID: String) async throws(GatewayError) {
        do {
            _ = try await self.send("DELETE", ["devices", "current"], ["device_id": deviceID])
        } catch .refused(let problem) where problem.status == 404 {
            // Already removed.
        }
    }

    public func settings() async throws(GatewayError) -> Settings {
        try await self.call("GET", ["settings"])
    }

    public func quietHours() async throws(GatewayError) -> QuietHours? {
        try await self.settings().quietHours
    }

    /// Sets the quiet hours; nil for none.
    @discardableResult
    public func setQuietHours(_ hours: QuietHours?) async throws(GatewayError) -> Settings {
        // The same start and end mean none.
        try await self.call("PUT", ["preferences", "quiet-hours"], hours ?? QuietHours(start: "00:00", end: "00:00"))
    }

    public func preferences() async throws(GatewayError) -> Preferences {
        try await self.call("GET", ["preferences"])
    }

    /// Sets preferences for the types and categories of the changes; the others stay.
    ///
    /// - Parameter changes: up to 1,000, each of another type or category.
    @discardableResult
    public func setPreferences(_ changes: [Preferences.Change]) async throws(GatewayError) -> Preferences {
        let body = [
            "types": changes.filter { !$0.isOfCategory }, "categories": changes.filter(\.isOfCategory),
        ]
        return try await self.call("PUT", ["preferences"], body)
    }
}
