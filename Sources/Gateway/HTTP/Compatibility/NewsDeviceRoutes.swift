// Carillon · NewsDeviceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// The news app's `/device-token`; its tokens are for FCM.
struct NewsDeviceRoutes {
    /// The name of the stored device: the app has one token per user and platform, which a new one
    /// replaces.
    private static let deviceName = "device-token"

    let devices: CompatibilityDevices
    private var services: APIServices { self.devices.services }

    func add(to groups: CompatibilityGroups) {
        let group = groups.group("device-token")
        group.post("register", Self.register, self.register)
        group.post("unregister", Self.unregister, self.unregister)
        group.get("status", Self.status, self.status)
    }

    private static let register = Operation(
        "newsRegisterToken",
        "Breaking news: registers an FCM token and enables notifications; replaces the platform's previous token.",
        body: .object([
            "fcm_token": .deviceToken("Printable ASCII, and no topic (/topics/…)."),
            "platform?": .choice("ios", "android", "web").orNull("Defaults to iOS."),
            "app_version?": .string.orNull("Cut to 64 characters."),
        ]),
        answers: [.ok("Done.", .newsOutcome)])

    /// Registers a token, and switches notifications on for the device and for a user who had opted
    /// out.
    private func register(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        let token = fields.newToken("fcm_token")
        let platform = fields.choice("platform", of: Platform.self) ?? .ios
        if platform == .webhook { fields.fault("platform", "must be one of ios, android, web") }
        let version = fields.cutText("app_version", limit: 64)
        try fields.finish()
        _ = try await self.devices.register(
            CompatibilityDevices.Registration(
                platform: platform,
                provider: .fcm,
                token: token ?? "",
                name: Self.deviceName,
                appVersion: version,
                isSilenced: false
            ),
            user: user
        )
        try await self.services.users.preferences.optIn(user: user)
        return Response.object { NewsShape.writeOutcome("Device token registered successfully", to: &$0) }
    }

    private static let unregister = Operation(
        "newsUnregisterToken",
        "Breaking news: removes one or all of the caller's tokens.",
        body: .object([
            "fcm_token?": .string(max: 2048, pattern: "^[ -~]*$").orNull("All tokens if absent.")
        ]),
        isBodyRequired: false,
        answers: [.ok("Done, even for an unknown token.", .newsOutcome)])

    /// Removes the token in the body, or all tokens: old clients send none, because a user had only
    /// one.
    private func unregister(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        let token = fields.token("fcm_token", isRequired: false)
        try fields.finish()
        if let token {
            _ = try await self.services.users.devices.remove(user: user, token: token)
        } else {
            _ = try await self.services.users.devices.removeAll(
                user: user, app: CompatibilityDevices.app, provider: .fcm)
        }
        return Response.object { NewsShape.writeOutcome("Device token unregistered successfully", to: &$0) }
    }

    private static let status = Operation(
        "newsGetStatus",
        "Breaking news: returns the caller's status.",
        answers: [
            .ok(
                "The status.",
                .object([
                    "notifications_enabled": .bool(
                        "Whether there is an active device and the user has not opted out."),
                    "has_token": .bool,
                    "token_count": .integer(0...100),
                    "platform": .platform.orNull("The platform of the most recently used device."),
                    "preferences": .map(of: .bool)("Whether each type of the category `news` is pushed."),
                ]))
        ])

    private func status(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        let devices = try await self.devices.active(user: user)
        let settings = try await self.services.users.preferences.settings(user: user)
        let preferences = try await self.services.users.preferences.preferences(user: user)
        return Response.object { writer in
            NewsShape.writeStatus(
                devices: devices,
                isOptedOut: settings.isOptedOut,
                types: self.services.base.catalog.all,
                preferences: preferences,
                to: &writer
            )
        }
    }
}

/// The news app's JSON.
enum NewsShape {
    /// The category of the types on the app's settings page.
    static let category = "news"

    /// Writes the response to a registration or its removal.
    static func writeOutcome(_ message: String, to writer: inout JSONWriter) {
        writer.member("success", true)
        writer.member("message", message)
    }

    /// Writes a user's status: whether breaking news reaches a device, its platform, and the
    /// preferences.
    ///
    /// - Parameter devices: the active devices, the last used first.
    static func writeStatus(
        devices: [Device],
        isOptedOut: Bool,
        types: [NotificationType],
        preferences: [String: TypePreference],
        to writer: inout JSONWriter
    ) {
        writer.member("notifications_enabled", devices.contains(where: \.getsPushes) && !isOptedOut)
        writer.member("has_token", !devices.isEmpty)
        writer.member("token_count", devices.count)
        writer.member("platform", devices.first?.platform.rawValue)
        writer.key("preferences")
        writer.beginObject()
        for type in types where type.isEnabled && type.category == Self.category {
            writer.key(escaping: type.name)
            writer.bool(EffectivePreference.push(preferences.preference(for: type), type))
        }
        writer.endObject()
    }
}

extension Schema {
    static let newsOutcome = Schema(
        "NewsOutcome",
        ["success": .constant(.bool(true)), "message": .string])
}
