// Carillon · Messages.swift
// SPDX-License-Identifier: Apache-2.0

import Core

@testable import Providers

/// Messages and devices for tests.
enum Messages {
    static let now = Timestamp(seconds: 1_795_168_800)
    static let id = NotificationID(high: 0x01A1_F866_0D7B_841C, low: 0xA9A6_5597_AA05_75F3)

    static func make(
        unread: Int64 = 3,
        _ change: (inout Notification) -> Void = { _ in }
    ) -> PushMessage {
        var notification = Notification(id: self.id, user: "u1", type: "greeting", createdAt: self.now)
        notification.title = "Hello"
        notification.body = "World"
        change(&notification)
        var message = PushMessage(notification: notification, now: self.now)
        message.badge = notification.extras.badge ?? unread
        return message
    }

    static func device(_ provider: Provider, token: String) -> Device {
        Device(
            id: NotificationID(high: 1, low: 2), user: "u1", platform: .ios, provider: provider, app: "default",
            environment: .production, token: token, registeredAt: self.now)
    }

    static func fcm(_ message: PushMessage, platform: Platform = .ios) -> ProviderRequest {
        var device = self.device(.fcm, token: "tok\"en")
        device.platform = platform
        return FCMRequest.make(
            message, device: device, settings: FCMSettings(url: "https://fcm.example/v1/projects/p1/messages:send"),
            accessToken: "ya29")
    }

    static func apns(_ message: PushMessage) throws -> ProviderRequest {
        try APNSRequest.make(
            message, device: self.device(.apns, token: "a1b2"), endpoint: "https://apns.example",
            topic: "org.example.app",
            providerToken: "jwt")
    }

    static func text(_ request: ProviderRequest) -> String { String(decoding: request.body, as: UTF8.self) }

    static func headers(_ request: ProviderRequest) -> [String] { request.headers.map { "\($0.name): \($0.value)" } }

    static func json(_ request: ProviderRequest) throws -> JSONValue { try JSONParser.parse(request.body) }

    /// Returns the bytes that FCM counts: keys and values of notification and data.
    static func fcmSize(_ request: ProviderRequest) throws -> Int {
        let message = try self.json(request)["message"]
        let members =
            (message?["notification"]?.object ?? []) + (message?["data"]?.object ?? [])
            + (message?["android"]?["notification"]?.object ?? [])
        return members.reduce(0) { $0 + $1.key.utf8.count + ($1.value.string?.utf8.count ?? 5) }
    }
}
