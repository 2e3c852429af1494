// Carillon · DeviceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Devices: `/v1/devices`.
struct DeviceRoutes {
    let users: UserServices

    func add(to routes: Routes) {
        let devices = routes.group("devices")
        devices.post("", Self.register, self.register)
        devices.get("", Self.list, self.list)
        devices.delete("current", Self.removeCurrent, self.removeCurrent)
        devices.put(":id", Self.change, self.change)
        devices.delete(":id", Self.remove, self.remove)
        routes.get("web-push/key", Self.webPushKey, self.webPushKey)
    }

    private static let register = Operation(
        "registerDevice",
        "Registers or renews a device; another user's phone or browser moves to the caller.",
        body: .deviceRegistration,
        answers: [
            .created("The device.", Device.shape.schema),
            Answer(429, "The user exceeds the rate limit, or has changed tokens 200 times within the hour."),
        ])

    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try FieldReader(try await FieldReader.body(request))
        let device = self.users.fields.device(&body, user: user, allowsTopics: context.isService)
        try body.finish()
        guard let device else { throw Problem(.badRequest, "fields are missing") }
        let stored = try await self.users.register([device])[0]
        return .json(stored, as: Device.shape, status: .created)
    }

    private static let list = Operation(
        "listDevices",
        "Lists the caller's devices, most recently used first.",
        answers: [.ok("The devices.", devices.schema)])

    private static let devices: Shape<[Device]> = ["devices": .list(of: Device.shape, max: 100) { $0 }]

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        .json(try await self.users.devices.list(user: try context.user()), as: Self.devices)
    }

    private static let change = Operation(
        "changeDevice",
        "Switches pushes to a device off or on.",
        path: ["id": .uuid("One of the caller's devices.")],
        body: .object(["enabled": .bool], isClosed: true),
        answers: [.ok("The updated device.", Device.shape.schema), 404])

    /// Switches the pushes of a device off or on; its registration stays.
    private func change(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try await FieldReader(body: request, of: Self.change)
        let isEnabled = body.flag("enabled")
        if isEnabled == nil, body.faults.isEmpty { body.fault("enabled", "is missing") }
        try body.finish()
        let id = try context.pathID(of: "device")
        guard let isEnabled,
            let device = try await self.users.devices.setSilenced(!isEnabled, user: user, id: id)
        else { throw Problem.noSuch("device") }
        return .json(device, as: Device.shape)
    }

    private static let remove = Operation(
        "removeDevice",
        "Removes a device.",
        path: ["id": .uuid("One of the caller's devices.")],
        answers: [.done, 404])

    private func remove(_ request: Request, _ context: APIContext) async throws -> Response {
        let id = try context.pathID(of: "device")
        guard try await self.users.devices.remove(user: try context.user(), id: id) else {
            throw Problem.noSuch("device")
        }
        return Response(status: .noContent)
    }

    private static let removeCurrent = Operation(
        "removeCurrentDevice",
        "Removes the device with this `token` or `device_id`, at logout.",
        query: [
            "device_id?": .text(Device.longestName)("Replaces the body."),
            "app?": .text(64)("As in the body."),
        ],
        body: .object(
            [
                "token?": .text(2048).orNull,
                "device_id?": .text(Device.longestName).orNull,
                "app?": .text(64).orNull("Removes the device of this app only."),
            ], isClosed: true
        )("Exactly one of `token` and `device_id`, unless the query names the device."),
        isBodyRequired: false,
        answers: [.done, 404])

    /// Removes the device of an app whose user logs out, by its token or `device_id`.
    ///
    /// Some clients cannot send a body with DELETE, so `device_id` may be in the query. The token
    /// may not, because queries are logged.
    private func removeCurrent(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var query = FieldReader(query: request, of: Self.removeCurrent)
        let named = query.text("device_id", limit: Device.longestName)
        let namedApp = query.text("app", limit: 64)
        try query.finish()
        var body = try await FieldReader(body: request, of: Self.removeCurrent)
        let token = body.text("token", limit: UserFields.longestToken)
        let deviceID = body.text("device_id", limit: Device.longestName)
        if [token, deviceID, named].count(where: { $0 != nil }) != 1 {
            body.fault("token", "or device_id must name the device; give one of them")
        }
        // Apps of one vendor may share a `device_id`, so a client can name its own.
        let app = body.text("app", limit: 64) ?? namedApp
        if let namedApp, app != namedApp { body.fault("app", "differs from that of the query") }
        try body.finish()
        let isRemoved =
            if let token {
                try await self.users.devices.remove(user: user, token: Self.stored(token), app: app)
            } else {
                try await self.users.devices.remove(user: user, deviceID: deviceID ?? named ?? "", app: app)
            }
        guard isRemoved else { throw Problem.noSuch("device") }
        return Response(status: .noContent)
    }

    /// Returns the stored form of a token: Web Push subscriptions have a canonical form.
    private static func stored(_ token: String) -> String {
        guard token.hasPrefix("{"), let subscription = try? WebPushSubscription(token: token) else { return token }
        return subscription.token
    }

    private static let webPushKey = Operation(
        "getWebPushKey",
        "Returns the public key for browser subscriptions of the app `default`.",
        answers: [.ok("The key in base64url.", .object(["key": .string])), 404])

    /// Returns the public key for subscriptions of browsers (RFC 8292 section 4.1).
    private func webPushKey(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let key = self.users.webPushKey?.publicKey else {
            throw Problem(.notFound, "Web Push is not configured here: VAPID_KEY is not set")
        }
        return Response.object { writer in
            writer.member("key", key)
        }
    }
}
