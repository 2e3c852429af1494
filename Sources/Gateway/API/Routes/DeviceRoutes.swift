// Carillon · DeviceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Hummingbird
import JSON
import Model
import Services
import Stores

/// Devices: `/v1/devices`.
struct DeviceRoutes {
    /// FCM's tokens have some 160 characters, a Web Push subscription may have 2,000.
    private static let longestToken = 4_096

    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        let devices = group.group("devices")
        devices.post(use: self.register)
        devices.get(use: self.list)
        devices.delete("current", use: self.removeCurrent)
        devices.delete(":id", use: self.remove)
    }

    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request))
        body.allow([
            "platform", "provider", "token", "app", "environment", "name", "device_id", "app_version", "locale",
        ])
        let platform = body.choice("platform", of: Platform.self, isRequired: true)
        var provider = body.choice("provider", of: Provider.self)
        let token = body.text("token", limit: Self.longestToken, isRequired: true)
        let app = body.text("app", limit: 64) ?? "default"
        let environment = body.choice("environment", of: ProviderEnvironment.self) ?? .production
        let name = body.text("name", limit: 128)
        let deviceID = body.text("device_id", limit: 128)
        let appVersion = body.text("app_version", limit: 64)
        let locale = body.text("locale", limit: 35)
        if provider == nil, let platform {
            provider = platform == .ios ? .apns : platform == .android ? .fcm : .webpush
        }
        if provider == .email { body.fault("provider", "must be one of fcm, apns, webpush") }
        if provider == .apns, let token, !token.utf8.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit }) {
            body.fault("token", "must be hexadecimal for apns")
        }
        try body.finish()
        guard let platform, let provider, let token else { throw Problem(.badRequest, "fields are missing") }
        var device = Device(
            id: NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)).asRandomUUID,
            user: user,
            platform: platform,
            provider: provider,
            app: app,
            environment: environment,
            token: token,
            registeredAt: self.services.now()
        )
        device.name = name
        device.deviceID = deviceID
        device.appVersion = appVersion
        device.locale = locale
        let stored = try await self.services.devices.register(device)
        var writer = JSONWriter()
        Self.write(stored, to: &writer)
        return .json(writer, status: .created)
    }

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let devices = try await self.services.devices.list(user: try context.user())
        return Response.object { writer in
            writer.key("devices")
            writer.beginArray()
            for device in devices { Self.write(device, to: &writer) }
            writer.endArray()
        }
    }

    private func remove(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let id = NotificationID(try context.parameters.require("id")),
            try await self.services.devices.remove(user: try context.user(), id: id)
        else { throw Problem.notFound }
        return Response(status: .noContent)
    }

    /// Removes the device whose token the body names, as an app does when its user logs out.
    private func removeCurrent(_ request: Request, _ context: APIContext) async throws -> Response {
        var body = try JSONBody(try await JSONBody.read(request))
        body.allow(["token"])
        let token = body.text("token", limit: Self.longestToken, isRequired: true)
        try body.finish()
        guard let token, try await self.services.devices.remove(user: try context.user(), token: token) else {
            throw Problem.notFound
        }
        return Response(status: .noContent)
    }

    /// A device as its owner sees it; the token stays out.
    private static func write(_ device: Device, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("id")
        writer.string(device.id.description)
        writer.key("platform")
        writer.string(device.platform.rawValue)
        writer.key("provider")
        writer.string(device.provider.rawValue)
        writer.key("app")
        writer.string(device.app)
        writer.key("environment")
        writer.string(device.environment.rawValue)
        writer.key("name")
        writer.string(device.name)
        writer.key("device_id")
        writer.string(device.deviceID)
        writer.key("app_version")
        writer.string(device.appVersion)
        writer.key("locale")
        writer.string(device.locale)
        writer.key("active")
        writer.bool(device.isActive)
        writer.key("deactivated_reason")
        writer.string(device.deactivatedReason)
        writer.key("registered_at")
        writer.string(device.registeredAt.rfc3339)
        writer.key("last_used_at")
        writer.string(device.lastUsedAt.rfc3339)
        writer.endObject()
    }
}
