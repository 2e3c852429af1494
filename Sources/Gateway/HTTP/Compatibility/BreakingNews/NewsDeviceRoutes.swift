// Carillon · NewsDeviceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// The news app's `/device-token`; its tokens are FCM's.
struct NewsDeviceRoutes {
    /// The name under which a token is stored: the app keeps one a user and platform, and a newer one replaces it.
    private static let deviceName = "device-token"

    let devices: DeviceKeeper
    private var services: APIServices { self.devices.services }

    func add(to groups: CompatibilityGroups) {
        let group = groups.group("device-token")
        group.post("register", use: self.register)
        group.post("unregister", use: self.unregister)
        group.get("status", use: self.status)
    }

    /// Registers a token, and so switches notifications on: for the device, and for a user who has
    /// opted out of all.
    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await RequestFields.read(request)
        let token = fields.newToken("fcm_token")
        let platform = fields.choice("platform", of: Platform.self) ?? .ios
        if platform == .webhook { fields.fault("platform", "must be one of ios, android, web") }
        let version = fields.text("app_version", limit: 64)
        try fields.finish()
        _ = try await self.devices.register(
            DeviceKeeper.Registration(
                platform: platform,
                provider: .fcm,
                token: token ?? "",
                name: Self.deviceName,
                appVersion: version,
                isSilenced: false
            ),
            user: user
        )
        try await self.services.preferences.optIn(user: user)
        return Response.object { NewsShape.writeOutcome("Device token registered successfully", to: &$0) }
    }

    /// Removes the token that the body names, or else all: the app's clients name none, as a user
    /// had one.
    private func unregister(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await RequestFields.read(request)
        let token = fields.token("fcm_token", isRequired: false)
        try fields.finish()
        if let token {
            _ = try await self.services.devices.remove(user: user, token: token)
        } else {
            _ = try await self.services.devices.removeAll(user: user, app: self.devices.defaults.app, provider: .fcm)
        }
        return Response.object { NewsShape.writeOutcome("Device token unregistered successfully", to: &$0) }
    }

    private func status(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let devices = try await self.devices.active(user: user)
        let settings = try await self.services.preferences.settings(user: user)
        let wishes = try await self.services.preferences.preferences(user: user)
        return Response.object { writer in
            NewsShape.writeStatus(
                devices: devices,
                isOptedOut: settings.isOptedOut,
                types: self.services.catalog.all,
                wishes: wishes,
                to: &writer
            )
        }
    }
}
