// Carillon · Device.swift
// SPDX-License-Identifier: Apache-2.0

/// A push endpoint: one app on one device.
package struct Device: Sendable, Equatable {
    /// Stands for the user's e-mail address where a device id is expected; the same for every user.
    package static let emailAddress = DeviceID(high: 0x8000, low: 0x8000_0065_6D61_696C)

    /// The most characters of a device's name, and of the id that its app gives it.
    package static let longestName = 255

    /// Prefix of tokens that name an FCM topic, and so reach all its subscribers.
    package static let topicPrefix = "/topics/"

    package let id: DeviceID
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
        id: DeviceID,
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

    /// Whether it receives pushes: neither Carillon nor its user has switched it off.
    package var getsPushes: Bool { self.isActive && !self.isSilenced }

    /// Whether it stands for an FCM topic, and so for all its subscribers.
    package var isTopic: Bool { self.provider == .fcm && Self.isTopic(self.token) }

    /// Whether a token names an FCM topic.
    ///
    /// Such a token would send a user's notifications to others.
    package static func isTopic(_ token: String) -> Bool { token.utf8.starts(with: Self.topicPrefix.utf8) }

    /// Whether a text has the form of an APNs device token: 32 to 100 bytes in hexadecimal.
    package static func isAPNSToken(_ token: String) -> Bool {
        (64...200).contains(token.utf8.count) && token.utf8.count.isMultiple(of: 2)
            && token.utf8.allSatisfy { $0.hexDigit != nil }
    }

    /// Returns the stored form of a token: hexadecimal APNs tokens are in lower case.
    package static func canonicalToken(_ token: String, of provider: Provider) -> String {
        provider == .apns ? token.lowercased() : token
    }

    /// Whether a client's text is the device's token.
    package func isToken(_ text: String) -> Bool {
        self.token == Self.canonicalToken(text, of: self.provider)
    }

    /// The error text for a token that is not an ``isAPNSToken(_:)``.
    package static let apnsTokenFault = "must be 64 to 200 hexadecimal digits, an even number of them, for APNs"
}

/// The number of active devices that a user may have with each app.
package struct DeviceLimits: Sendable {
    /// The range of the setting: calls that list devices return at most 100.
    package static let allowed = 1...100

    private let standard: Int
    private let ofApps: [String: Int]

    /// - Parameters:
    ///   - standard: the limit for apps without their own.
    ///   - ofApps: the limits of apps with their own, by app.
    package init(standard: Int = 20, ofApps: [String: Int] = [:]) {
        self.standard = standard
        self.ofApps = ofApps
    }

    package func limit(of app: String) -> Int { self.ofApps[app] ?? self.standard }
}

/// A service that delivers to devices.
///
/// Its name is part of Redis keys, metrics and space-separated lines. Swift stores up to 15 bytes
/// inline, so a copy costs nothing.
package struct Provider: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    package static let fcm = Self(word: "fcm")
    package static let apns = Self(word: "apns")
    package static let webpush = Self(word: "webpush")
    package static let email = Self(word: "email")
    package static let webhook = Self(word: "webhook")

    /// The providers of this build, in the order in which they are shown.
    package static let all = [Self.fcm, .apns, .webpush, .email, .webhook]

    private static let lengths = 1...15

    package let rawValue: String

    /// Nil unless the name is 1 to 15 characters out of `a` to `z` and `0` to `9`, beginning with a
    /// letter.
    package init?(rawValue: String) {
        let bytes = rawValue.utf8
        guard Self.lengths.contains(bytes.count), bytes.first.map(Self.isLetter) == true,
            bytes.allSatisfy({ Self.isLetter($0) || (0x30...0x39).contains($0) })
        else { return nil }
        self.rawValue = rawValue
    }

    /// A built-in provider.
    ///
    /// The name is a literal, so no input reaches this: a bad one fails the first test that runs
    /// it.
    package init(word: StaticString) {
        guard let provider = Self(rawValue: "\(word)") else { preconditionFailure("\(word) names no provider") }
        self = provider
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7A).contains(byte) }

    package var description: String { self.rawValue }

    /// Whether devices register with it.
    ///
    /// E-mail uses an address instead.
    package var isOfDevices: Bool { self != .email }
}

/// The platform of a device.
package enum Platform: String, Sendable, CaseIterable {
    case ios, android, web
    /// A program that is called over HTTP.
    case webhook

    /// The default provider for the platform's devices.
    package var provider: Provider {
        switch self {
        case .ios: .apns
        case .android: .fcm
        case .web: .webpush
        case .webhook: .webhook
        }
    }
}

/// The environment of APNs that a token belongs to.
package enum ProviderEnvironment: String, Sendable, CaseIterable {
    case production, sandbox
}
