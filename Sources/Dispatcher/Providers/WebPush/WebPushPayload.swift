// Carillon · WebPushPayload.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a service worker gets to show, as JSON.
enum WebPushPayload {
    /// What of a message goes along; the later ones give way first.
    private enum Part: CaseIterable {
        case url, actions, options, image, data
    }

    /// The JSON of a message in at most `limit` bytes.
    ///
    /// Data gives way first, then image, options and buttons, then the end of the body, and the link last.
    static func make(_ message: PushMessage, shape: PushShape, limit: Int) -> [UInt8] {
        guard message.purpose == .show else { return Self.retraction(message) }
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

    /// Has the page take away what it shows.
    private static func retraction(_ message: PushMessage) -> [UInt8] {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("retract", message.notification.id.description)
        writer.member("tag", message.replacementKey)
        if let badge = message.badge {
            writer.member("badge", badge)
        }
        writer.endObject()
        return writer.bytes
    }

    /// How much of a body must be left for it to be worth more than the link.
    private static let leastBody = 64

    /// A message's values, taken apart once.
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
            // Where pages look for it that were served by FCM.
            writer.key("notification")
            writer.beginObject()
            writer.member("title", notification.title)
            writer.member("body", body)
            writer.endObject()
            writer.member("notification_id", notification.id.description)
            writer.member("type", notification.type)
            writer.member("severity", notification.severity.rawValue)
            writer.key("created_at")
            notification.createdAt.write(to: &writer)
            // What the page replaces what it shows by, and takes it away by.
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
