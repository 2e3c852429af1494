// Carillon · TaskDeviceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Protocols
import Storage

/// The household-task app's `/api/push/apns`, `/api/push/gcm` and `/api/push/test`.
struct TaskDeviceRoutes {
    /// The type of test sends; without it in the catalog they are off.
    private static let testType = "push_test"

    let devices: CompatibilityDevices
    private var services: APIServices { self.devices.services }

    /// The paths of one provider.
    private struct Endpoint {
        let provider: Provider
        let platform: Platform
        /// The provider's name in operations.
        let name: String
        let token: Schema
        let device: Schema

        var register: Operation {
            Operation(
                "tasksRegister\(self.name)Device",
                "Household tasks: registers a device by its \(self.name) token.",
                body: .object([
                    "registration_id": self.token,
                    "name?": .string.orNull("Cut to \(Device.longestName) characters."),
                    "device_id?": .string(max: Device.longestName)
                        .with("type", .array([.string("string"), .string("number")]))
                        .orNull("Replaces its previous registration."),
                    "active?": .bool.orNull(
                        "Whether pushes go to the device; unchanged if absent."),
                ]),
                answers: [.created("The device.", self.device)])
        }

        var list: Operation {
            Operation(
                "tasksList\(self.name)Devices",
                "Household tasks: lists the caller's \(self.name) devices, most recently used first.",
                answers: [.ok("The devices.", .list(of: self.device, max: 100))])
        }

        var remove: Operation {
            Operation(
                "tasksRemove\(self.name)Device", "Household tasks: removes an \(self.name) device.",
                path: ["key": .string(min: 1)("Its `registration_id`, percent-encoded, or its id.")],
                answers: [.done, 404])
        }

        var removeNamed: Operation {
            Operation(
                "tasksRemove\(self.name)DeviceByToken",
                "Household tasks: removes an \(self.name) device by its token, at logout.",
                query: ["registration_id?": .deviceToken("Replaces the body.")],
                body: .object(["registration_id": .deviceToken]),
                isBodyRequired: false,
                answers: [.done, 404])
        }
    }

    private static let endpoints = [
        "apns": Endpoint(
            provider: .apns, platform: .ios, name: "APNs",
            token: .string(min: 64, max: 200, pattern: "^([0-9A-Fa-f]{2})+$")("The APNs token."),
            device: .taskAPNsDevice),
        "gcm": Endpoint(
            provider: .fcm, platform: .android, name: "FCM",
            token: .deviceToken("Printable ASCII, and no topic (/topics/…)."), device: .taskFCMDevice),
    ]

    private static let sendTest = Operation(
        "tasksSendTest", "Household tasks: sends a test push to the caller's devices.",
        body: .object(["title": .text(JobLimits.title), "message": .text(JobLimits.body)]),
        answers: [
            .ok("The id of the job.", .object(["message": .string, "id": .uuid])),
            Answer(404, "The catalog has no type `push_test`."),
            Answer(429, "The user exceeds the rate limit, or snoozes or sends tests too often."),
        ])

    func add(to groups: CompatibilityGroups) {
        for (path, endpoint) in Self.endpoints.sorted(by: { $0.key < $1.key }) {
            let group = groups.group("api/push/\(path)")
            group.post("", endpoint.register) { try await self.register($0, $1, endpoint) }
            group.get("", endpoint.list) { try await self.list($0, $1, endpoint) }
            group.delete("", endpoint.removeNamed) { try await self.removeNamed($0, $1, endpoint) }
            group.delete(":key", endpoint.remove) { try await self.remove($0, $1, endpoint) }
        }
        groups.group("api/push/test").post("", Self.sendTest, self.sendTest)
    }

    private func register(
        _ request: Request,
        _ context: APIContext,
        _ endpoint: Endpoint
    ) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        let registration = TaskShape.registration(
            &fields,
            platform: endpoint.platform,
            provider: endpoint.provider
        )
        try fields.finish()
        let device = try await self.devices.register(registration, user: user)
        return .json(status: .created) { TaskShape.write(device, to: &$0) }
    }

    private func own(_ user: String, _ endpoint: Endpoint) async throws -> [Device] {
        try await self.devices.list(user: user).filter { $0.provider == endpoint.provider }
    }

    private func list(_ request: Request, _ context: APIContext, _ endpoint: Endpoint) async throws -> Response {
        let devices = try await self.own(try context.user(), endpoint)
        var writer = JSONWriter()
        writer.beginArray()
        for device in devices { TaskShape.write(device, to: &writer) }
        writer.endArray()
        return Response.json(writer)
    }

    /// Removes the device with the token or id in the path.
    private func remove(_ request: Request, _ context: APIContext, _ endpoint: Endpoint) async throws -> Response {
        let user = try context.user()
        guard let key = PercentCoding.decode(try context.parameters.require("key")),
            !CombiningMarks.areTooMany(in: key)
        else {
            throw Problem.noSuch("device")
        }
        return try await self.remove(key, user, endpoint)
    }

    /// Removes the device with the token in the body or the query.
    private func removeNamed(
        _ request: Request,
        _ context: APIContext,
        _ endpoint: Endpoint
    ) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        if !fields.isPresent, let token = try RequestQuery(of: request)["registration_id"] {
            fields = FieldReader(lenient: .object([JSONMember("registration_id", .string(token))]))
        }
        let token = fields.token("registration_id")
        try fields.finish()
        return try await self.remove(token ?? "", user, endpoint)
    }

    private func remove(_ key: String, _ user: String, _ endpoint: Endpoint) async throws -> Response {
        guard let device = TaskDeviceNumber.find(key, in: try await self.own(user, endpoint)),
            try await self.services.users.devices.remove(user: user, id: device.id)
        else { throw Problem.noSuch("device") }
        return Response(status: .noContent)
    }

    /// Sends a test push to the caller's devices.
    private func sendTest(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        guard let type = self.services.base.catalog[Self.testType] else {
            throw Problem(.notFound, "test sends are off: the catalog has no type \(Self.testType)")
        }
        var fields = try await FieldReader(lenientBody: request)
        let title = fields.text("title", limit: JobLimits.title, isRequired: true)
        let message = fields.text("message", limit: JobLimits.body, isRequired: true)
        try fields.finish()
        try await self.services.base.countOwnSend(of: user)
        let id = try await JobSender(services: self.services)
            .send(type, [("user", user), ("title", title ?? ""), ("body", message ?? ""), ("channels", #"["push"]"#)])
        return Response.object { writer in
            writer.member("message", "Test notification sent")
            writer.member("id", id)
        }
    }
}

/// A device's id as an integer, for clients that store 32 bits.
///
/// It comes from the random part of the device's UUID and is looked up only among a user's devices,
/// at most a hundred. Two of them collide for about one in 400,000 users; such a number is refused.
enum TaskDeviceNumber {
    static func number(of id: DeviceID) -> Int {
        Int(id.low & 0x7FFF_FFFF)
    }

    /// Finds a device by its number, UUID or token; nil if none or several match.
    static func find(_ key: String, in devices: [Device]) -> Device? {
        let found = devices.filter { device in
            device.isToken(key) || DeviceID(key) == device.id || Int(key) == Self.number(of: device.id)
        }
        return found.count == 1 ? found.first : nil
    }
}

/// The household-task app's JSON.
enum TaskShape {
    /// Writes a device as a row of the app's table, the same for APNs and FCM.
    static func write(_ device: Device, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("id", TaskDeviceNumber.number(of: device.id))
        writer.member("name", device.name)
        writer.member("registration_id", device.token)
        writer.member("device_id", device.deviceID)
        writer.member("active", device.getsPushes)
        writer.member("date_created", device.createdAt.rfc3339)
        if device.provider == .fcm {
            writer.member("cloud_message_type", "FCM")
        }
        writer.endObject()
    }

    /// Parses a registration.
    static func registration(
        _ fields: inout FieldReader,
        platform: Platform,
        provider: Provider
    ) -> CompatibilityDevices.Registration {
        let token = fields.newToken("registration_id")
        if provider == .apns, let token, !Device.isAPNSToken(token) {
            fields.fault("registration_id", Device.apnsTokenFault)
        }
        var registration = CompatibilityDevices.Registration(platform: platform, provider: provider, token: token ?? "")
        registration.name = fields.cutText("name", limit: Device.longestName)
        registration.deviceID = Self.deviceID(&fields)
        registration.isSilenced = fields.flag("active").map { !$0 }
        return registration
    }

    /// Android clients may send it as a number.
    private static func deviceID(_ fields: inout FieldReader) -> String? {
        if case .number(let text) = fields.value["device_id"] { return String(text.prefix(Device.longestName)) }
        return fields.text("device_id", limit: Device.longestName)
    }
}

extension Schema {
    private static let taskDevice: Fields = [
        "id": .integer(0...2_147_483_647),
        "name": .string.orNull,
        "registration_id": .string,
        "device_id": .string.orNull,
        "active": .bool,
        "date_created": .time,
    ]

    static let taskAPNsDevice = Schema("TaskAPNsDevice", taskDevice)

    static let taskFCMDevice = Schema(
        "TaskFCMDevice", taskDevice + ["cloud_message_type": .constant(.string("FCM"))])
}
