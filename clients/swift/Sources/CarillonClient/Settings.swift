// Carillon · Settings.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// The hours in which a user's devices do not ring, in the zone of the user's settings.
public struct QuietHours: Codable, Equatable, Sendable {
    /// The time of day when they begin, such as `22:00`.
    public var start: String
    /// The time of day when they end, such as `07:00`.
    public var end: String
    /// The days on which they begin, from 1 (Monday) to 7; nil for all.
    public var weekdays: [Int]?

    /// Creates quiet hours for the given days; nil for all.
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
    /// The language, such as `de-AT`.
    public let locale: String?
    /// The e-mail address.
    public let email: String?
    /// Whether the user has opted out of all types that are not required.
    public let isOptedOut: Bool
    /// Whether the user has opted out of all e-mail.
    public let isEmailOptedOut: Bool
    /// The quiet hours; nil for none.
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
        /// The type in the catalog.
        public let type: String
        /// The category of the type.
        public let category: String?
        /// Whether the user cannot switch it off.
        public let isRequired: Bool
        /// The channels of the type; the others are always off.
        public let channels: [String]
        /// Whether notifications go to the inbox.
        public let inApp: Bool
        /// Whether notifications are pushed.
        public let push: Bool
        /// Whether notifications are mailed.
        public let email: Bool

        /// The type, which is unique.
        public var id: String { self.type }

        private enum CodingKeys: String, CodingKey {
            case type, category, channels, push, email
            case isRequired = "required"
            case inApp = "in_app"
        }
    }

    /// The user's defaults for the types of a category; nil where the catalog decides.
    public struct ForCategory: Decodable, Equatable, Identifiable, Sendable {
        /// The name of the category.
        public let category: String
        /// Whether notifications go to the inbox.
        public let inApp: Bool?
        /// Whether notifications are pushed.
        public let push: Bool?
        /// Whether notifications are mailed.
        public let email: Bool?

        /// The name of the category, which is unique.
        public var id: String { self.category }

        private enum CodingKeys: String, CodingKey {
            case category, push, email
            case inApp = "in_app"
        }
    }

    /// A change of the preferences for a type or a category.
    ///
    /// Sets each given channel to the value, or back to the default if the value is nil.
    public struct Change: Encodable, Sendable {
        private var members: [String: JSONValue]
        fileprivate let isOfCategory: Bool

        private init(_ key: String, _ name: String, _ channels: [Channel: Bool?]) {
            self.members = [key: .string(name)]
            for (channel, value) in channels { self.members[channel.rawValue] = value.map { .bool($0) } ?? .null }
            self.isOfCategory = key == "category"
        }

        /// Returns a change for one type.
        public static func type(_ name: String, _ channels: [Channel: Bool?]) -> Change {
            Change("type", name, channels)
        }

        /// Returns a change for one category.
        public static func category(_ name: String, _ channels: [Channel: Bool?]) -> Change {
            Change("category", name, channels)
        }

        /// Encodes the change as the gateway expects it.
        public func encode(to encoder: any Encoder) throws { try self.members.encode(to: encoder) }
    }

    /// A channel that a user can switch on or off.
    public enum Channel: String, Sendable {
        case inApp = "in_app"
        case push, email
    }

    /// The effective preferences, by type.
    public let types: [ForType]
    /// The user's defaults by category.
    public let categories: [ForCategory]
    /// Whether e-mail is on for a type although the user has no valid address.
    public let isEmailMissing: Bool

    private enum CodingKeys: String, CodingKey {
        case types, categories
        case isEmailMissing = "email_missing"
    }
}

/// The details of a device, without its token.
public struct DeviceRegistration: Encodable, Sendable {
    /// The APNs environment that the app was signed for.
    public enum Environment: String, Encodable, Sendable {
        /// TestFlight and the App Store.
        case production
        /// Builds from Xcode.
        case sandbox
    }

    /// The APNs environment; Firebase ignores it.
    public var environment: Environment
    /// Identifies this installation, so that a new token replaces the old one.
    public var deviceID: String?
    /// Replaces a device of the same user, app, platform and name that has no `deviceID`.
    public var name: String?
    /// The app's version, such as `4.1.0`; at most 64 characters.
    public var appVersion: String?
    /// The language, such as `de-AT`.
    public var locale: String?
    /// One of the gateway's apps; nil for `default`.
    public var app: String?
    private let platform = "ios"
    fileprivate var provider: String?
    fileprivate var token = ""

    /// Creates the details; nil leaves a field out.
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
    /// The gateway's id of the device.
    public let id: String
    /// The platform, such as `ios`.
    public let platform: String
    /// The name of the device.
    public let name: String?
    /// The app's id of the installation.
    public let deviceID: String?
    /// Whether its token is valid, as far as the provider has reported.
    public let active: Bool
    /// Whether the user allows pushes to this device.
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
    /// - Parameters:
    ///   - token: the token from `didRegisterForRemoteNotificationsWithDeviceToken`.
    ///   - details: the device's other details.
    @discardableResult
    public func registerDevice(
        token: Data, _ details: DeviceRegistration = DeviceRegistration()
    ) async throws(GatewayError) -> Device {
        var registration = details
        let digits = Array("0123456789abcdef")
        registration.token = String(token.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] })
        return try await self.call("POST", ["devices"], registration)
    }

    /// Registers this device for pushes by Firebase, or renews it.
    ///
    /// Call it after login and at each start while the user is logged in, since tokens change.
    ///
    /// - Parameters:
    ///   - fcmToken: the token from Firebase's `Messaging.token()`.
    ///   - details: the device's other details; Firebase ignores the environment.
    @discardableResult
    public func registerDevice(
        fcmToken: String, _ details: DeviceRegistration = DeviceRegistration()
    ) async throws(GatewayError) -> Device {
        var registration = details
        registration.provider = "fcm"
        registration.token = fcmToken
        return try await self.call("POST", ["devices"], registration)
    }

    /// Removes the device.
    ///
    /// On logout, call it while the user's token is still valid. It needs a network;
    /// `UIApplication.unregisterForRemoteNotifications()` stops pushes without one.
    ///
    /// - Parameters:
    ///   - deviceID: the id that it was registered with.
    ///   - app: the app that it was registered with, `default` if none; nil for every app. Name it
    ///     if several of your apps share the `deviceID`, as they do with `identifierForVendor`.
    public func unregisterDevice(deviceID: String, app: String? = nil) async throws(GatewayError) {
        var body = ["device_id": deviceID]
        body["app"] = app
        do {
            _ = try await self.send("DELETE", ["devices", "current"], body)
        } catch .refused(let problem) where problem.status == 404 {
            // Already removed.
        }
    }

    /// Returns the user's settings.
    public func settings() async throws(GatewayError) -> Settings {
        try await self.call("GET", ["settings"])
    }

    /// Returns the user's quiet hours; nil for none.
    public func quietHours() async throws(GatewayError) -> QuietHours? {
        try await self.settings().quietHours
    }

    /// Sets the quiet hours; nil for none.
    @discardableResult
    public func setQuietHours(_ hours: QuietHours?) async throws(GatewayError) -> Settings {
        // The same start and end mean none.
        try await self.call("PUT", ["preferences", "quiet-hours"], hours ?? QuietHours(start: "00:00", end: "00:00"))
    }

    /// Returns the user's preferences.
    public func preferences() async throws(GatewayError) -> Preferences {
        try await self.call("GET", ["preferences"])
    }

    /// Changes preferences for types and categories; the others stay.
    ///
    /// - Parameter changes: at most 1,000, and at most one for each type or category.
    @discardableResult
    public func setPreferences(_ changes: [Preferences.Change]) async throws(GatewayError) -> Preferences {
        let body = [
            "types": changes.filter { !$0.isOfCategory }, "categories": changes.filter(\.isOfCategory),
        ]
        return try await self.call("PUT", ["preferences"], body)
    }
}
