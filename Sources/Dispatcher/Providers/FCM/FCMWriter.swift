// Carillon · FCMWriter.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Writes a message as FCM's API has it (projects.messages).
struct FCMWriter {
    enum Target {
        case token(String)
        case topic(String)
    }

    /// FCM keeps a message four weeks at most.
    private static let longestTimeToLive: Int64 = 2_419_200

    var message: PushMessage
    var data: [(key: String, value: String)]
    let channel: String?
    /// Android opens only an activity whose intent filter has it; without one a tap opens the app.
    let clickAction: String?

    /// Keys and values of notification and data, as FCM counts them, those for Android included.
    var size: Int {
        let notification = self.message.notification
        var size = "title".utf8.count + notification.title.utf8.count + "body".utf8.count + notification.body.utf8.count
        if let image = notification.extras.image { size += "image".utf8.count + image.utf8.count }
        for (key, value) in self.androidTexts { size += key.utf8CodeUnitCount + value.utf8.count }
        if self.message.badge != nil { size += "notification_count".utf8.count + 5 }
        return self.data.reduce(size) { $0 + $1.key.utf8.count + $1.value.utf8.count }
    }

    private var androidTexts: [(key: StaticString, value: String)] {
        var texts: [(key: StaticString, value: String)] = [("tag", self.message.screenName)]
        if self.message.notification.collapseKey != nil {
            // Of what has this tag, the app sees nothing else by which it could tell the newer from the older.
            texts.append(("event_time", self.message.notification.createdAt.rfc3339))
        }
        if let channel { texts.append(("channel_id", channel)) }
        if let sound = self.message.notification.extras.sound { texts.append(("sound", sound)) }
        if let clickAction { texts.append(("click_action", clickAction)) }
        return texts
    }

    func body(target: Target) -> [UInt8] {
        let notification = self.message.notification
        return self.envelope(target) { writer in
            writer.key("notification")
            writer.beginObject()
            writer.member("title", notification.title)
            writer.member("body", notification.body)
            if let image = notification.extras.image {
                writer.member("image", image)
            }
            writer.endObject()
            self.writeData(to: &writer)
            self.writeAndroid(to: &writer)
            self.writeAPNS(to: &writer)
            self.writeWebPush(to: &writer)
        }
    }

    /// Data without anything to show.
    func silentBody(target: Target) -> [UInt8] {
        self.envelope(target) { writer in
            self.writeData(to: &writer)
            writer.key("android")
            writer.beginObject()
            writer.member("priority", "NORMAL")
            if let seconds = self.message.secondsToLive { writer.member("ttl", "\(seconds)s") }
            writer.endObject()
            writer.key("apns")
            writer.beginObject()
            writer.key("headers")
            writer.beginObject()
            writer.member("apns-priority", "5")
            writer.member("apns-push-type", "background")
            self.writeExpiration(to: &writer)
            writer.endObject()
            writer.key("payload")
            writer.raw(#"{"aps":{"content-available":1}}"#)
            writer.endObject()
        }
    }

    private func envelope(_ target: Target, _ content: (inout JSONWriter) -> Void) -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        writer.key("message")
        writer.beginObject()
        switch target {
        case .token(let token):
            writer.member("token", token)
        case .topic(let name):
            writer.member("topic", name)
        }
        content(&writer)
        writer.endObject()
        writer.endObject()
        return writer.bytes
    }

    private func writeData(to writer: inout JSONWriter) {
        writer.key("data")
        writer.beginObject()
        for (key, value) in self.data {
            writer.key(escaping: key)
            writer.string(value)
        }
        writer.endObject()
    }

    private func writeAndroid(to writer: inout JSONWriter) {
        writer.key("android")
        writer.beginObject()
        writer.member("priority", self.message.priority == .high ? "HIGH" : "NORMAL")
        if let seconds = self.message.secondsToLive {
            writer.member("ttl", "\(min(seconds, Self.longestTimeToLive))s")
        }
        if let key = self.message.notification.collapseKey {
            writer.member("collapse_key", key)
        }
        writer.key("notification")
        writer.beginObject()
        for (key, value) in self.androidTexts {
            writer.key(key)
            writer.string(value)
        }
        if let badge = self.message.badge {
            writer.member("notification_count", min(badge, 99_999))
        }
        writer.endObject()
        writer.endObject()
    }

    /// For Apple devices that FCM serves.
    private func writeAPNS(to writer: inout JSONWriter) {
        writer.key("apns")
        writer.beginObject()
        writer.key("headers")
        writer.beginObject()
        writer.member("apns-priority", self.message.priority.apns)
        self.writeExpiration(to: &writer)
        writer.member("apns-collapse-id", self.message.screenName)
        writer.endObject()
        writer.key("payload")
        writer.beginObject()
        writer.key("aps")
        writer.beginObject()
        APNSPayload.writeAside(self.message, to: &writer)
        writer.endObject()
        writer.endObject()
        writer.endObject()
    }

    private func writeExpiration(to writer: inout JSONWriter) {
        if let moment = self.message.expiration(within: .seconds(Self.longestTimeToLive)) {
            writer.member("apns-expiration", moment)
        }
    }

    /// For browsers that FCM serves.
    private func writeWebPush(to writer: inout JSONWriter) {
        writer.key("webpush")
        writer.beginObject()
        writer.key("headers")
        writer.beginObject()
        writer.member("Urgency", self.message.priority == .high ? "high" : "normal")
        if let seconds = self.message.secondsToLive {
            writer.member("TTL", "\(min(seconds, Self.longestTimeToLive))")
        }
        writer.endObject()
        if let url = self.message.notification.extras.url, url.hasPrefix("https://") {
            writer.key("fcm_options")
            writer.beginObject()
            writer.member("link", url)
            writer.endObject()
        }
        writer.endObject()
    }
}
