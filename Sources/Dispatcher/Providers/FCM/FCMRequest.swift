// Carillon · FCMRequest.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import Model

/// Makes requests of FCM's HTTP v1 API, `messages:send`.
package enum FCMRequest {
    /// The most that keys and values of notification and data may add up to.
    private static let sizeLimit = 4_096
    /// FCM keeps a message four weeks at most.
    private static let longestTimeToLive: Int64 = 2_419_200

    /// The request that sends `message` to one token.
    package static func make(
        _ message: PushMessage,
        device: Device,
        endpoint: String,
        project: String,
        accessToken: String
    ) -> ProviderRequest {
        var message = message
        var data = self.data(message)
        var excess = self.size(message, data) - Self.sizeLimit
        if excess > 0 {
            // What does not fit goes out as the id alone; the client fetches the rest.
            data = Array(data.prefix(2))
            excess = self.size(message, data) - Self.sizeLimit
        }
        if excess > 0, message.notification.extras.image != nil {
            message.notification.extras.image = nil
            excess = self.size(message, data) - Self.sizeLimit
        }
        message.notification.body = message.notification.body.shortened(by: excess)
        return ProviderRequest(
            url: "\(endpoint)/v1/projects/\(project)/messages:send",
            headers: [("authorization", "Bearer \(accessToken)"), ("content-type", "application/json")],
            body: self.body(message, token: device.token, data: data)
        )
    }

    /// Keys and values of notification and data, as FCM counts them.
    private static func size(_ message: PushMessage, _ data: [(key: String, value: String)]) -> Int {
        let notification = message.notification
        var size = "title".utf8.count + notification.title.utf8.count + "body".utf8.count + notification.body.utf8.count
        if let image = notification.extras.image { size += "image".utf8.count + image.utf8.count }
        return data.reduce(size) { $0 + $1.key.utf8.count + $1.value.utf8.count }
    }

    /// Values must be strings, and some names are FCM's own.
    private static func data(_ message: PushMessage) -> [(key: String, value: String)] {
        var data = [
            (key: "notification_id", value: message.notification.id.description),
            (key: "type", value: message.notification.type),
        ]
        for member in message.dataMembers where member.key != "notification_id" && member.key != "type" {
            let isReserved =
                ["from", "message_type", "collapse_key"].contains(member.key)
                || member.key.hasPrefix("google") || member.key.hasPrefix("gcm")
            let text = member.value.string ?? String(decoding: JSONWriter.bytes(of: member.value), as: UTF8.self)
            data.append((isReserved ? "data_" + member.key : member.key, text))
        }
        if let url = message.notification.extras.url, !data.contains(where: { $0.key == "url" }) {
            data.append(("url", url))
        }
        return data
    }

    private static func body(
        _ message: PushMessage,
        token: String,
        data: [(key: String, value: String)]
    ) -> [UInt8] {
        let notification = message.notification
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        writer.key("message")
        writer.beginObject()
        writer.key("token")
        writer.string(token)
        writer.key("notification")
        writer.beginObject()
        writer.key("title")
        writer.string(notification.title)
        writer.key("body")
        writer.string(notification.body)
        if let image = notification.extras.image {
            writer.key("image")
            writer.string(image)
        }
        writer.endObject()
        writer.key("data")
        writer.beginObject()
        for (key, value) in data {
            writer.key(escaping: key)
            writer.string(value)
        }
        writer.endObject()
        self.writeAndroid(message, to: &writer)
        self.writeAPNS(message, to: &writer)
        writer.endObject()
        writer.endObject()
        return writer.bytes
    }

    private static func writeAndroid(_ message: PushMessage, to writer: inout JSONWriter) {
        writer.key("android")
        writer.beginObject()
        writer.key("priority")
        writer.string(message.isUrgent ? "HIGH" : "NORMAL")
        if let seconds = message.secondsToLive {
            writer.key("ttl")
            writer.string("\(min(seconds, Self.longestTimeToLive))s")
        }
        if let key = message.notification.collapseKey {
            writer.key("collapse_key")
            writer.string(key)
        }
        writer.endObject()
    }

    /// For Apple devices that FCM serves.
    private static func writeAPNS(_ message: PushMessage, to writer: inout JSONWriter) {
        writer.key("apns")
        writer.beginObject()
        writer.key("headers")
        writer.beginObject()
        writer.key("apns-priority")
        writer.string(message.isUrgent ? "10" : "5")
        if let expiresAt = message.notification.expiresAt {
            writer.key("apns-expiration")
            writer.string(String(expiresAt.seconds))
        }
        writer.endObject()
        writer.key("payload")
        writer.beginObject()
        writer.key("aps")
        writer.beginObject()
        writer.key("badge")
        writer.integer(message.badge)
        writer.key("sound")
        writer.string(message.notification.extras.sound ?? "default")
        writer.endObject()
        writer.endObject()
        writer.endObject()
    }
}
