// Carillon · DeviceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// Devices: `/v1/devices`.
struct DeviceRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        let devices = group.group("devices")
        devices.post(use: self.register)
        devices.get(use: self.list)
        devices.delete("current", use: self.removeCurrent)
        devices.put(":id", use: self.change)
        devices.delete(":id", use: self.remove)
        group.get("web-push/key", use: self.webPushKey)
    }

    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        let device = self.services.userFields.device(&body, user: user, allowsTopics: context.isService)
        try body.finish()
        guard let device else { throw Problem(.badRequest, "fields are missing") }
        let stored = try await self.services.register(device)
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

    /// Switches a device off or on; what it is registered with stays.
    private func change(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        body.allow(["enabled"])
        let isEnabled = body.flag("enabled")
        if isEnabled == nil, body.faults.isEmpty { body.fault("enabled", "is missing") }
        try body.finish()
        guard let id = NotificationID(try context.parameters.require("id")), let isEnabled,
            let device = try await self.services.devices.setSilenced(!isEnabled, user: user, id: id)
        else { throw Problem.notFound }
        var writer = JSONWriter()
        Self.write(device, to: &writer)
        return .json(writer)
    }

    private func remove(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let id = NotificationID(try context.parameters.require("id")),
            try await self.services.devices.remove(user: try context.user(), id: id)
        else { throw Problem.notFound }
        return Response(status: .noContent)
    }

    /// Removes the device that the call names, as an app does when its user logs out.
    ///
    /// It goes by its token, or by the `device_id` that it was registered with. Some clients cannot send a body with
    /// DELETE; `device_id` may stand in the query, but not the token, which would end in logs.
    private func removeCurrent(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var query = QueryFields(request, allowing: ["device_id"])
        let named = query.text("device_id", limit: 128)
        try query.finish()
        var body = try JSONBody(try await JSONBody.read(request))
        body.allow(["token", "device_id"])
        let token = body.text("token", limit: UserFields.longestToken)
        let deviceID = body.text("device_id", limit: 128)
        if [token, deviceID, named].count(where: { $0 != nil }) != 1 {
            body.fault("token", "or device_id must name the device; give one of them")
        }
        try body.finish()
        let isRemoved =
            if let token {
                try await self.services.devices.remove(user: user, token: Self.stored(token))
            } else {
                try await self.services.devices.remove(user: user, deviceID: deviceID ?? named ?? "")
            }
        guard isRemoved else { throw Problem.notFound }
        return Response(status: .noContent)
    }

    /// A token as it is stored: subscriptions of Web Push have one form.
    private static func stored(_ token: String) -> String {
        guard token.hasPrefix("{"), let subscription = try? WebPushSubscription(token: token) else { return token }
        return subscription.token
    }

    /// The public key that a browser subscribes with (RFC 8292 section 4.1).
    private func webPushKey(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let key = self.services.webPushKey?.publicKey else {
            throw Problem(.notFound, "Web Push is not configured here: VAPID_KEY is not set")
        }
        return Response.object { writer in
            writer.member("key", key)
        }
    }

    /// A device as its owner sees it; the token stays out.
    static func write(_ device: Device, to writer: inout JSONWriter) {
        writer.beginObject()
        Self.writeMembers(device, to: &writer)
        writer.endObject()
    }

    static func writeMembers(_ device: Device, to writer: inout JSONWriter) {
        writer.member("id", device.id.description)
        writer.member("platform", device.platform.rawValue)
        writer.member("provider", device.provider.rawValue)
        writer.member("app", device.app)
        writer.member("environment", device.environment.rawValue)
        writer.member("name", device.name)
        writer.member("device_id", device.deviceID)
        writer.member("app_version", device.appVersion)
        writer.member("locale", device.locale)
        writer.member("active", device.isActive)
        writer.member("enabled", !device.isSilenced)
        writer.member("deactivated_reason", device.deactivatedReason)
        writer.member("registered_at", device.registeredAt.rfc3339)
        writer.member("last_used_at", device.lastUsedAt.rfc3339)
    }
}
