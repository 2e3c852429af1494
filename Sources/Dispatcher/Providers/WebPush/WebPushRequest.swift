// Carillon · WebPushRequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Builds requests to push services (RFC 8030).
enum WebPushRequest {
    /// Services store a message for at most four weeks.
    private static let longestTimeToLive: Int64 = 2_419_200

    /// Returns the request with the encrypted `body`.
    static func make(
        _ message: PushMessage,
        subscription: WebPushSubscription,
        authorization: String,
        body: [UInt8]
    ) -> ProviderRequest {
        var headers: [(name: String, value: String)] = [
            ("authorization", authorization),
            ("content-encoding", "aes128gcm"),
            ("content-type", "application/octet-stream"),
            // Microsoft's service refuses 0.
            ("ttl", String(max(1, min(message.secondsToLive ?? .max, Self.longestTimeToLive)))),
            ("urgency", Self.urgency(of: message)),
        ]
        if message.notification.collapseKey != nil {
            headers.append(("topic", KeyHash.text(message.replacementKey)))
        }
        return ProviderRequest(url: subscription.endpoint, headers: headers, body: body)
    }

    /// Phones in battery saver hold back `low` (RFC 8030 section 5.3).
    private static func urgency(of message: PushMessage) -> String {
        if let own = message.overrides(.webpush)?["urgency"]?.string, PlatformFields.urgencies.contains(own) {
            return own
        }
        if message.priority == .high { return "high" }
        return message.notification.severity == .info && message.notification.lane == .bulk ? "low" : "normal"
    }
}

/// The JSON payload for a service worker.
enum WebPushPayload {
    /// The optional parts of a payload; later ones are dropped first.
    private enum Part: CaseIterable {
        case url, actions, options, image, data
    }

    /// Returns the JSON of a message in at most `limit` bytes.
    ///
    /// Drops data first, then image, options and buttons, then cuts the body; the link goes last.
    static func make(_ message: PushMessage, shape: PushShape, limit: Int) -> [UInt8] {
        let content = Content(message, shape: shape)
        var parts = Set(Part.allCases)
        let body = message.notification.body
        for part in Part.allCases.reversed() {
            let bytes = content.encode(parts, body: body)
            if bytes.count <= limit { return bytes }
            if part == .url { break }
            parts.remove(part)
        }
        let empty = content.encode(parts, body: "").count
        if empty + Self.leastBody > limit { parts = [] }
        let whole = content.encode(parts, body: body)
        return content.encode(
            parts, body: body.shortened(by: whole.count - limit) { JSONWriter.length(of: $0) })
    }

    /// The shortest useful rest of a body; below it the link is dropped instead.
    private static let leastBody = 64

    /// A message's values, parsed once.
    private struct Content {
        private let message: PushMessage
        private let actions: JSONValue?
        private let options: JSONValue?
        private let essentials: [JSONMember]
        private let data: [JSONMember]

        init(_ message: PushMessage, shape: PushShape) {
            self.message = message
            self.actions = message.dataMembers.first { $0.key == "actions" }?.value
            self.options = message.overrides(.webpush)?["options"].flatMap { $0.object == nil ? nil : $0 }
            self.essentials = shape.essentials(of: message)
            self.data = shape.data(of: message).filter { $0.key != "actions" }
        }

        func encode(_ parts: Set<Part>, body: String) -> [UInt8] {
            let notification = self.message.notification
            var writer = JSONWriter(capacity: 1_024)
            writer.beginObject()
            // Pages written for FCM look here.
            writer.object("notification") { writer in
                writer.member("title", notification.title)
                writer.member("body", body)
            }
            writer.member("notification_id", notification.id.description)
            writer.member("type", notification.type)
            writer.member("severity", notification.severity.rawValue)
            writer.key("created_at")
            notification.createdAt.write(to: &writer)
            // The page replaces notifications by this tag.
            writer.member("tag", self.message.replacementKey)
            if let badge = self.message.badge {
                writer.member("badge", badge)
            }
            if parts.contains(.url), let url = notification.extras.url {
                writer.member("url", url)
            }
            if parts.contains(.image), let image = notification.extras.image {
                writer.member("image", image)
            }
            if parts.contains(.actions), let actions = self.actions {
                writer.member("actions", actions)
            }
            if parts.contains(.options), let options = self.options {
                writer.member("options", options)
            }
            writer.member("data", .object(parts.contains(.data) ? self.data : self.essentials))
            writer.endObject()
            return writer.bytes
        }
    }
}
