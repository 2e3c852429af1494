// Carillon · WebhookRequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Builds requests to an app's receiver: the notification as JSON, signed like events.
enum WebhookRequest {
    /// Lets a receiver recognise repeats.
    static let deliveryHeader = "carillon-delivery"

    static func make(
        _ message: PushMessage,
        device: Device,
        url: String,
        secret: String,
        shape: PushShape,
        at moment: Timestamp
    ) -> ProviderRequest {
        let body = Self.body(message, device: device, shape: shape)
        return ProviderRequest(
            url: url,
            headers: [
                ("content-type", "application/json"),
                (Self.deliveryHeader, message.deliveryID(to: device).description),
                (WebhookSignature.header, WebhookSignature.make(secret: secret, body: body, at: moment)),
            ],
            body: body
        )
    }

    private static func body(_ message: PushMessage, device: Device, shape: PushShape) -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        writer.member("delivery", message.deliveryID(to: device).description)
        writer.member("user", device.user)
        writer.member("device", device.id.description)
        writer.member("token", device.token)
        writer.member("app", device.app)
        writer.member("tag", message.replacementKey)
        if let badge = message.badge {
            writer.member("badge", badge)
        }
        switch message.purpose {
        case .show:
            writer.key("notification")
            Self.write(message, shape: shape, to: &writer)
        case .retract:
            writer.member("retract", message.notification.id.description)
        }
        writer.endObject()
        return writer.bytes
    }

    private static func write(_ message: PushMessage, shape: PushShape, to writer: inout JSONWriter) {
        let notification = message.notification
        writer.beginObject()
        for (name, text) in [
            ("id", notification.id.description), ("type", notification.type),
            ("severity", notification.severity.rawValue), ("title", notification.title), ("body", notification.body),
        ] {
            writer.key(escaping: name)
            writer.string(text)
        }
        for (name, text) in [
            ("category", notification.category), ("entity_type", notification.entityType),
            ("entity_id", notification.entityID), ("url", notification.extras.url),
            ("image", notification.extras.image), ("expires_at", notification.expiresAt?.rfc3339),
        ] {
            guard let text else { continue }
            writer.key(escaping: name)
            writer.string(text)
        }
        writer.key("created_at")
        notification.createdAt.write(to: &writer)
        writer.member("data", .object(shape.data(of: message)))
        writer.endObject()
    }
}
