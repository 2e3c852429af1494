// Carillon · APNSRequest.swift
// SPDX-License-Identifier: Apache-2.0

import JSON
package import Model

/// Makes requests of Apple's provider API, `POST /3/device/<token>`.
package enum APNSRequest {
    private static let sizeLimit = 4_096
    private static let collapseIDLimit = 64

    /// The request that sends `message` to one token.
    ///
    /// - Parameter topic: the app's bundle id.
    package static func make(
        _ message: PushMessage,
        device: Device,
        endpoint: String,
        topic: String,
        providerToken: String
    ) -> ProviderRequest {
        let notification = message.notification
        var headers: [(name: String, value: String)] = [
            ("authorization", "bearer \(providerToken)"),
            ("apns-topic", topic),
            ("apns-push-type", "alert"),
            ("apns-priority", message.isUrgent ? "10" : "5"),
            ("apns-id", notification.id.description),
        ]
        if let expiresAt = notification.expiresAt { headers.append(("apns-expiration", String(expiresAt.seconds))) }
        if let key = notification.collapseKey, Self.isCollapseID(key) {
            headers.append(("apns-collapse-id", key))
        }
        return ProviderRequest(
            url: "\(endpoint)/3/device/\(device.token)",
            headers: headers,
            body: self.payload(message)
        )
    }

    /// Whether a key can stand in the header as it is.
    private static func isCollapseID(_ key: String) -> Bool {
        key.utf8.count <= Self.collapseIDLimit && key.utf8.allSatisfy { (0x20...0x7E).contains($0) }
    }

    /// The payload within Apple's limit: data gives way first, then the end of the body.
    private static func payload(_ message: PushMessage) -> [UInt8] {
        let body = message.notification.body
        let whole = self.encode(message, body: body, withData: true)
        if whole.count <= Self.sizeLimit { return whole }
        let bare = self.encode(message, body: body, withData: false)
        if bare.count <= Self.sizeLimit { return bare }
        let shortened = body.shortened(by: bare.count - Self.sizeLimit) { JSONWriter.length(of: $0) }
        return self.encode(message, body: shortened, withData: false)
    }

    private static func encode(_ message: PushMessage, body: String, withData: Bool) -> [UInt8] {
        let notification = message.notification
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        writer.key("aps")
        writer.beginObject()
        writer.key("alert")
        writer.beginObject()
        writer.key("title")
        writer.string(notification.title)
        writer.key("body")
        writer.string(body)
        writer.endObject()
        writer.key("badge")
        writer.integer(message.badge)
        writer.key("sound")
        writer.string(notification.extras.sound ?? "default")
        if let category = notification.category {
            writer.key("category")
            writer.string(category)
        }
        writer.endObject()
        writer.key("notification_id")
        writer.string(notification.id.description)
        writer.key("type")
        writer.string(notification.type)
        if withData {
            if let url = notification.extras.url {
                writer.key("url")
                writer.string(url)
            }
            for member in message.dataMembers where !["aps", "notification_id", "type", "url"].contains(member.key) {
                writer.key(escaping: member.key)
                writer.value(member.value)
            }
        }
        writer.endObject()
        return writer.bytes
    }
}
