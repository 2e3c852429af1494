// Carillon · AllowanceDeviceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// The family-finance app's `/api/v1/devices`; its tokens are for FCM on every platform.
struct AllowanceDeviceRoutes {
    private static let tokenHeader = "X-Device-Token"

    let devices: CompatibilityDevices

    func add(to routes: Routes) {
        routes.post("", Self.register, self.register)
        routes.get("", Self.list, self.list)
        routes.delete("current", Self.removeCurrent, self.removeCurrent)
        routes.delete(":id", Self.remove, self.remove)
    }

    private static let register = Operation(
        "allowanceRegisterDevice",
        "Family finance: registers a device by its FCM token.",
        body: .object([
            "token": .deviceToken("Printable ASCII, and no topic (/topics/…)."),
            "platform": .oneOf(.integer(1...3), .choice("1", "2", "3", "ios", "android", "web"))(
                "1 is iOS, 2 Android, 3 the web."),
            "deviceName?": .string.orNull(
                "Replaces a device with the same name and platform; cut to \(Device.longestName) characters."),
            "appVersion?": .string.orNull("Cut to 64 characters."),
        ]),
        answers: [.ok("The device.", .allowanceDevice)])

    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        let token = fields.newToken("token")
        let platform = AllowanceShape.platform(fields.value["platform"])
        if platform == nil { fields.fault("platform", "must be 1 (iOS), 2 (Android) or 3 (Web)") }
        let name = fields.cutText("deviceName", limit: Device.longestName)
        let version = fields.cutText("appVersion", limit: 64)
        try fields.finish()
        guard let token, let platform else { throw Problem(.badRequest, "fields are missing") }
        let device = try await self.devices.register(
            CompatibilityDevices.Registration(
                platform: platform,
                provider: .fcm,
                token: token,
                name: name,
                appVersion: version
            ),
            user: user
        )
        return .json { AllowanceShape.write(device, to: &$0) }
    }

    private static let list = Operation(
        "allowanceListDevices",
        "Family finance: lists the caller's devices, most recently used first.",
        answers: [.ok("The devices.", .list(of: .allowanceDevice, max: 100))])

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let devices = try await self.devices.list(user: try context.user())
        var writer = JSONWriter()
        writer.beginArray()
        for device in devices { AllowanceShape.write(device, to: &writer) }
        writer.endArray()
        return Response.json(writer)
    }

    private static let remove = Operation(
        "allowanceRemoveDevice",
        "Family finance: removes a device.",
        path: ["id": .uuid("One of the caller's devices.")],
        answers: [.done, 404])

    private func remove(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let id = try context.pathID(of: "device")
        guard try await self.devices.services.users.devices.remove(user: user, id: id) else {
            throw Problem.noSuch("device")
        }
        return Response(status: .noContent)
    }

    private static let removeCurrent = Operation(
        "allowanceRemoveCurrentDevice",
        "Family finance: removes a device by its token, at logout.",
        headers: ["X-Device-Token": .string(min: 1)("The device's token.")],
        answers: [.noContent("Done, even for an unknown token."), 400])

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
        _ = try await self.devices.services.users.devices.remove(user: user, token: token)
        return Response(status: .noContent)
    }
}
