// Carillon · AllowanceDeviceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// The family-finance app's `/api/v1/devices`; its tokens are for FCM on every platform.
struct AllowanceDeviceRoutes {
    private static let tokenHeader = "X-Device-Token"

    let devices: DeviceKeeper

    func add(to group: RouterGroup<APIContext>) {
        group.post(use: self.register)
        group.get(use: self.list)
        group.delete("current", use: self.removeCurrent)
        group.delete(":id", use: self.remove)
    }

    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await RequestFields.read(request)
        let token = fields.newToken("token")
        let platform = AllowanceShape.platform(fields.value["platform"])
        if platform == nil { fields.fault("platform", "must be 1 (iOS), 2 (Android) or 3 (Web)") }
        let name = fields.text("deviceName", limit: DeviceKeeper.longestName)
        let version = fields.text("appVersion", limit: 64)
        try fields.finish()
        guard let token, let platform else { throw Problem(.badRequest, "fields are missing") }
        let device = try await self.devices.register(
            DeviceKeeper.Registration(
                platform: platform,
                provider: .fcm,
                token: token,
                name: name,
                appVersion: version
            ),
            user: user
        )
        var writer = JSONWriter()
        AllowanceShape.write(device, to: &writer)
        return Response.json(writer)
    }

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let devices = try await self.devices.services.devices.list(user: try context.user())
        var writer = JSONWriter()
        writer.beginArray()
        for device in devices { AllowanceShape.write(device, to: &writer) }
        writer.endArray()
        return Response.json(writer)
    }

    private func remove(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        guard try await self.devices.services.devices.remove(user: user, id: try InboxKeeper.id(context)) else {
            throw Answer.notFound
        }
        return Answer.noContent
    }

    /// Logs a device out; an unknown token is not an error.
    private func removeCurrent(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let name = HTTPField.Name(Self.tokenHeader)
        guard let token = name.flatMap({ request.headers[$0] }), !token.isEmpty else {
            throw Problem(
                .badRequest,
                "a header is missing",
                faults: [JobFault(Self.tokenHeader, "is missing; it must contain the device's token")]
            )
        }
        _ = try await self.devices.services.devices.remove(user: user, token: token)
        return Answer.noContent
    }
}
