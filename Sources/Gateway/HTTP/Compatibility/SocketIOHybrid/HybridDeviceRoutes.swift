// Carillon · HybridDeviceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Protocols
import Storage

/// The accounting app's `/api/push`; its tokens are for FCM on every platform.
struct HybridDeviceRoutes {
    let devices: CompatibilityDevices

    func add(to groups: CompatibilityGroups) {
        let group = groups.group("api/push")
        group.post("register", Self.register, self.register)
        group.delete("unregister", Self.unregister, self.unregister)
        group.post("unregister", Self.unregisterByPost, self.unregister)
        group.get("devices", Self.list, self.list)
    }

    private static let register = Operation(
        "accountingRegisterDevice",
        "Accounting: registers a device by its FCM token.",
        body: .object([
            "fcm_token": .deviceToken("Printable ASCII, and no topic (/topics/…)."),
            "platform": .choice("ios", "android", "web"),
            "device_id?": .string(max: Device.longestName).orNull("Replaces its previous registration."),
        ]),
        answers: [
            .ok("The device.", .object(["status": .constant(.string("registered")), "device": .accountingDevice]))
        ])

    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        let token = fields.newToken("fcm_token")
        let platform = fields.choice("platform", of: Platform.self, isRequired: true)
        if platform == .webhook { fields.fault("platform", "must be one of ios, android, web") }
        let deviceID = fields.text("device_id", limit: Device.longestName)
        try fields.finish()
        guard let token, let platform else { throw Problem(.badRequest, "fields are missing") }
        let device = try await self.devices.register(
            CompatibilityDevices.Registration(platform: platform, provider: .fcm, token: token, deviceID: deviceID),
            user: user
        )
        return Response.object { writer in
            writer.member("status", "registered")
            writer.key("device")
            HybridShape.write(device, to: &writer)
        }
    }

    private static let unregister = Operation(
        "accountingUnregisterDevice",
        "Accounting: removes a device, at logout.",
        query: ["fcm_token?": .deviceToken("Replaces the body.")],
        body: .object(["fcm_token": .deviceToken]),
        isBodyRequired: false,
        answers: [.ok("Unknown tokens are no error.", .accountingUnregistration)])

    private static let unregisterByPost = Operation(
        "accountingUnregisterDeviceByPost",
        "Accounting: same as DELETE.",
        query: ["fcm_token?": .deviceToken("Replaces the body.")],
        body: .object(["fcm_token": .deviceToken]),
        isBodyRequired: false,
        answers: [.ok("Unknown tokens are no error.", .accountingUnregistration)])

    /// Removes the token in the body, or in the query because some proxies drop the body of a
    /// DELETE.
    ///
    /// An unknown token is not an error, so that a client may log out twice.
    private func unregister(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        if !fields.isPresent, let token = try RequestQuery(of: request)["fcm_token"] {
            fields = FieldReader(lenient: .object([JSONMember("fcm_token", .string(token))]))
        }
        let token = fields.token("fcm_token")
        try fields.finish()
        let isRemoved = try await self.devices.services.users.devices.remove(user: user, token: token ?? "")
        return Response.object { writer in
            writer.member("status", "unregistered")
            writer.member("removed", isRemoved ? 1 : 0)
        }
    }

    private static let list = Operation(
        "accountingListDevices",
        "Accounting: lists the caller's active devices, most recently used first.",
        answers: [
            .ok("The devices.", .object(["devices": .list(of: .accountingDevice, max: 100)]))
        ])

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        let devices = try await self.devices.active(user: try context.user())
        return Response.object { writer in
            writer.array("devices", devices.filter { $0.provider == .fcm }) { HybridShape.write($1, to: &$0) }
        }
    }
}
