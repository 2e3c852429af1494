// Carillon · DeviceKeeper.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// What several systems do with devices.
struct DeviceKeeper {
    static let longestName = 128

    let services: APIServices
    let defaults: CompatibilityRouter.Defaults

    /// A device as a client describes it.
    struct Registration {
        var platform: Platform
        var provider: Provider
        var token: String
        var name: String?
        var deviceID: String?
        var appVersion: String?
        var locale: String?
        /// Whether its user has switched it off; nil keeps what the user said before.
        var isSilenced: Bool?
    }

    /// Registers a device; what the same name or the same `deviceID` had registered before goes.
    func register(_ registration: Registration, user: String) async throws -> Device {
        var device = Device(
            id: NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)).asRandomUUID,
            user: user,
            platform: registration.platform,
            provider: registration.provider,
            app: self.defaults.app,
            environment: registration.provider == .apns ? self.defaults.environment : .production,
            token: registration.token,
            registeredAt: self.services.now()
        )
        device.name = registration.name
        device.deviceID = registration.deviceID
        device.appVersion = registration.appVersion
        device.locale = registration.locale
        return try await self.services.register(device, replacing: true, silenced: registration.isSilenced)
    }

    /// The user's devices that are sent to, the latest used first.
    func active(user: String) async throws -> [Device] {
        try await self.services.devices.list(user: user).filter(\.isActive)
    }
}

extension RequestFields {
    /// A token that is to be registered, of the length and the characters that the canonical calls take: one app's on one
    /// device, and no topic of FCM's, which would pass the user's notifications on to all who have subscribed to it.
    mutating func newToken(_ name: String, isRequired: Bool = true) -> String? {
        guard let token = self.token(name, isRequired: isRequired) else { return nil }
        if !UserFields.isPrintable(token) { self.fault(name, UserFields.unprintable) }
        if Device.isTopic(token) { self.fault(name, "stands for a topic, and not for a device") }
        return token
    }

    /// A token of FCM or of a browser.
    mutating func token(_ name: String, isRequired: Bool = true) -> String? {
        self.text(name, limit: UserFields.longestToken, isRequired: isRequired)
    }
}
