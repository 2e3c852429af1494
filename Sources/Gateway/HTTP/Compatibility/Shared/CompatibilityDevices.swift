// Carillon · CompatibilityDevices.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Device operations that several systems share.
struct CompatibilityDevices {
    /// The app whose credentials serve the devices.
    static let app = "default"

    let services: APIServices
    /// The APNs environment of the tokens.
    let environment: ProviderEnvironment

    /// A device as a client describes it.
    struct Registration {
        var platform: Platform
        var provider: Provider
        var token: String
        var name: String?
        var deviceID: String?
        var appVersion: String?
        var locale: String?
        /// Whether the user has switched the device off; nil keeps the last choice.
        var isSilenced: Bool?
    }

    /// Registers a device; it replaces devices with the same name or `deviceID`.
    func register(_ registration: Registration, user: String) async throws -> Device {
        let device = self.device(registration, user: user)
        return try await self.services.users.register([device], silenced: registration.isSilenced)[0]
    }

    /// Returns a device to register.
    func device(_ registration: Registration, user: String) -> Device {
        var device = Device(
            id: DeviceID.random(),
            user: user,
            platform: registration.platform,
            provider: registration.provider,
            app: Self.app,
            environment: registration.provider == .apns ? self.environment : .production,
            token: registration.token,
            registeredAt: self.services.base.now()
        )
        device.name = registration.name
        device.deviceID = registration.deviceID
        device.appVersion = registration.appVersion
        device.locale = registration.locale
        return device
    }

    /// Returns the user's devices with the app of these systems, the last used first.
    func list(user: String) async throws -> [Device] {
        try await self.services.users.devices.list(user: user).filter { $0.app == Self.app }
    }

    /// Returns those that are active.
    func active(user: String) async throws -> [Device] {
        try await self.list(user: user).filter(\.isActive)
    }
}

extension FieldReader {
    /// Returns a token to register, with the same limits as the canonical paths.
    ///
    /// A topic of FCM is refused, because it would send the user's notifications to all
    /// subscribers.
    mutating func newToken(_ name: String, isRequired: Bool = true) -> String? {
        guard let token = self.token(name, isRequired: isRequired) else { return nil }
        if !UserFields.isPrintable(token) { self.fault(name, UserFields.unprintable) }
        if Device.isTopic(token) { self.fault(name, "is a topic, not a device") }
        return token
    }

    /// Returns text, cut to its first `limit` characters; nil if it is absent, null or empty.
    ///
    /// For values that the replaced system did not limit; its export cuts them in the same way.
    mutating func cutText(_ name: String, limit: Int) -> String? {
        guard case .string(let text) = self.value[name], text.unicodeScalars.count > limit
        else { return self.text(name, limit: limit) }
        return String(text.unicodeScalars.prefix(limit))
    }

    /// Returns a token of FCM or of a browser.
    mutating func token(_ name: String, isRequired: Bool = true) -> String? {
        self.text(name, limit: UserFields.longestToken, isRequired: isRequired)
    }
}
