// Carillon · Device.swift
// SPDX-License-Identifier: Apache-2.0

/// A push endpoint of one app on one device.
package struct Device: Sendable, Equatable {
    /// What stands for the user's e-mail address where a device's id stands: the same for everyone.
    package static let emailAddress = NotificationID(high: 0x8000, low: 0x8000_0065_6D61_696C)

    /// How a token begins that stands for a topic of FCM's, and so for everyone who has subscribed to it.
    package static let topicPrefix = "/topics/"

    package let id: NotificationID
    package let user: String
    package var platform: Platform
    package var provider: Provider
    package var app: String
    package var environment: ProviderEnvironment
    package var token: String
    package var name: String?
    package var deviceID: String?
    package var appVersion: String?
    package var locale: String?
    package var isActive = true
    /// Whether its user has switched it off.
    package var isSilenced = false
    package var deactivatedReason: String?
    /// When the user first registered it.
    package var createdAt: Timestamp
    /// When the user last registered it.
    package var registeredAt: Timestamp
    package var lastUsedAt: Timestamp

    package init(
        id: NotificationID,
        user: String,
        platform: Platform,
        provider: Provider,
        app: String,
        environment: ProviderEnvironment,
        token: String,
        registeredAt: Timestamp
    ) {
        self.id = id
        self.user = user
        self.platform = platform
        self.provider = provider
        self.app = app
        self.environment = environment
        self.token = token
        self.createdAt = registeredAt
        self.registeredAt = registeredAt
        self.lastUsedAt = registeredAt
    }

    /// Whether pushes go to it: neither Carillon nor its user has switched it off.
    package var getsPushes: Bool { self.isActive && !self.isSilenced }

    /// Whether a token stands for a topic of FCM's: who registers one passes a user's notifications on to others.
    package static func isTopic(_ token: String) -> Bool { token.utf8.starts(with: Self.topicPrefix.utf8) }

    /// Whether a text can be a device token of APNs: 32 to 100 bytes in hexadecimal.
    package static func isAPNSToken(_ token: String) -> Bool {
        (64...200).contains(token.utf8.count) && token.utf8.count.isMultiple(of: 2)
            && token.utf8.allSatisfy { Character(Unicode.Scalar($0)).isHexDigit }
    }

    /// The fault of a text that is not ``isAPNSToken(_:)``.
    package static let noAPNSToken = "must be 64 to 200 hexadecimal digits, an even number of them, for APNs"
}

/// How many active devices a user may have with each app.
package struct DeviceLimits: Sendable {
    /// The range of the setting: calls that list devices show no more.
    package static let allowed = 1...100

    private let standard: Int
    private let ofApps: [String: Int]

    /// - Parameters:
    ///   - standard: of apps that say nothing.
    ///   - ofApps: of those that do, by their names.
    package init(standard: Int = 20, ofApps: [String: Int] = [:]) {
        self.standard = standard
        self.ofApps = ofApps
    }

    package func limit(of app: String) -> Int { self.ofApps[app] ?? self.standard }
}
