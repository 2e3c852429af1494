// Carillon · FCMRequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The settings of an app's messages.
struct FCMSettings {
    /// The URL of the project's `messages:send`.
    let url: String
    /// The data that the app's clients read.
    var shape = PushShape.standard
    /// The Android channel, unless the job sets one.
    var channel: String?
    /// The intent action of a tap on Android, unless the job sets one; `category` means the
    /// message's button category.
    ///
    /// Android opens only an activity with a matching filter; with nil a tap opens the app.
    var clickAction: String?
}

/// Builds requests for FCM's HTTP v1 API, `messages:send`.
struct FCMRequest {
    /// FCM's limit on the keys and values of notification and data.
    private static let sizeLimit = 4_096
    /// The limit for a topic.
    private static let topicSizeLimit = 2_048
    /// Apple's limit on the payload that FCM makes, less room for the members that FCM adds.
    private static let appleSizeLimit = 4_096 - 200

    private let message: PushMessage
    private let token: String
    private let platform: Platform
    private let settings: FCMSettings
    private let overrides: FCMOverrides

    /// Returns the request that sends `message` to one token, or to a topic if the token is
    /// `/topics/<name>`.
    static func make(
        _ message: PushMessage,
        device: Device,
        settings: FCMSettings,
        accessToken: String
    ) -> ProviderRequest {
        let request = FCMRequest(
            message: message, token: device.token, platform: device.platform, settings: settings,
            overrides: FCMOverrides(message.overrides(.fcm)))
        return ProviderRequest(
            url: settings.url,
            headers: [("authorization", "Bearer \(accessToken)"), ("content-type", "application/json")],
            body: request.fitted()
        )
    }

    private var topic: Substring? {
        self.token.hasPrefix(Device.topicPrefix) ? self.token.dropFirst(Device.topicPrefix.count) : nil
    }

    /// Fits the body into FCM's limit, and Apple's for its devices: drops data first, then the
    /// image, then cuts the text.
    private func fitted() -> [UInt8] {
        guard self.message.purpose == .show else { return self.retraction() }
        var writer = self.writer(data: self.settings.shape.data(of: self.message))
        if !self.fits(writer) {
            // Keeps only the identifying keys; the client fetches the rest.
            writer.data = FCMData.strings(self.settings.shape.essentials(of: self.message))
            if !self.fits(writer) { writer.message.notification.extras.image = nil }
            let body = writer.message.notification.body.shortened(by: self.excess(writer))
            writer.message.notification.body = body
            writer.message.notification.body = body.shortened(by: self.appleExcess(writer)) {
                JSONWriter.length(of: $0)
            }
        }
        return self.overrides.applied(to: writer.body(target: self.target))
    }

    private func fits(_ writer: FCMWriter) -> Bool { self.excess(writer) <= 0 && self.appleExcess(writer) <= 0 }

    /// The bytes beyond FCM's limit.
    private func excess(_ writer: FCMWriter) -> Int {
        writer.size + self.overrides.size - (self.topic == nil ? Self.sizeLimit : Self.topicSizeLimit)
    }

    /// The bytes beyond Apple's limit; at most 0 for other devices.
    private func appleExcess(_ writer: FCMWriter) -> Int {
        guard self.platform == .ios else { return 0 }
        return self.overrides.appliedToApple(writer.applePayload()).count - Self.appleSizeLimit
    }

    private var target: FCMWriter.Target {
        self.topic.map { .topic(String($0)) } ?? .token(self.token)
    }

    /// Data only: the app gets it without showing anything and removes the notification.
    private func retraction() -> [UInt8] {
        let name = self.platform == .ios ? self.overrides.collapseID : self.overrides.tag
        return self.writer(data: self.settings.shape.retraction(of: self.message, name: name))
            .silentBody(target: self.target)
    }

    private func writer(data: [JSONMember]) -> FCMWriter {
        FCMWriter(
            message: self.message, data: FCMData.strings(data), settings: self.settings, overrides: self.overrides)
    }
}

/// Converts data to FCM's form.
enum FCMData {
    /// Converts values to strings and prefixes FCM's reserved names with `data_`, unless that name
    /// exists already; the existing member then wins.
    static func strings(_ members: [JSONMember]) -> [(key: String, value: String)] {
        var strings: [(key: String, value: String)] = []
        strings.reserveCapacity(members.count)
        for member in members {
            let isReserved =
                ["", "from", "message_type", "collapse_key"].contains(member.key)
                || member.key.hasPrefix("google") || member.key.hasPrefix("gcm")
            let text = member.value.string ?? String(decoding: JSONWriter.bytes(of: member.value), as: UTF8.self)
            let key = isReserved ? "data_" + member.key : member.key
            if isReserved, members.contains(where: { ExactText($0.key) == ExactText(key) }) { continue }
            strings.append((key, text))
        }
        return strings
    }
}

/// Writes a message for FCM's API (projects.messages).
struct FCMWriter {
    enum Target {
        case token(String)
        case topic(String)
    }

    /// FCM stores a message for at most four weeks.
    private static let longestTimeToLive: Int64 = 2_419_200

    var message: PushMessage
    var data: [(key: String, value: String)]
    private let screenName: String
    private var androidTexts: [(key: StaticString, value: String)]

    /// The bytes of keys and values of notification and data, Android's included, as FCM counts
    /// them.
    var size: Int {
        let notification = self.message.notification
        var size = "title".utf8.count + notification.title.utf8.count + "body".utf8.count + notification.body.utf8.count
        if let image = notification.extras.image { size += "image".utf8.count + image.utf8.count }
        for (key, value) in self.androidTexts { size += key.utf8CodeUnitCount + value.utf8.count }
        if self.message.badge != nil { size += "notification_count".utf8.count + 5 }
        return self.data.reduce(size) { $0 + $1.key.utf8.count + $1.value.utf8.count }
    }

    init(
        message: PushMessage,
        data: [(key: String, value: String)],
        settings: FCMSettings,
        overrides: FCMOverrides
    ) {
        self.message = message
        self.data = data
        self.screenName = message.screenName
        let tag = overrides.tag
        self.androidTexts = [("tag", tag ?? self.screenName)]
        if tag != nil || message.notification.collapseKey != nil {
            // The app cannot tell the newer of two messages with this tag in another way.
            self.androidTexts.append(("event_time", message.notification.createdAt.rfc3339))
        }
        if let channel = overrides.channel ?? settings.channel { self.androidTexts.append(("channel_id", channel)) }
        if let sound = message.notification.extras.sound { self.androidTexts.append(("sound", sound)) }
        let clickAction = settings.clickAction == "category" ? message.buttonCategory : settings.clickAction
        if let clickAction { self.androidTexts.append(("click_action", clickAction)) }
    }

    func body(target: Target) -> [UInt8] {
        let notification = self.message.notification
        return self.envelope(target) { writer in
            writer.object("notification") { writer in
                writer.member("title", notification.title)
                writer.member("body", notification.body)
                if let image = notification.extras.image { writer.member("image", image) }
            }
            self.writeData(to: &writer)
            self.writeAndroid(to: &writer)
            self.writeAPNS(to: &writer)
            self.writeWebPush(to: &writer)
        }
    }

    /// Returns the payload that FCM makes of the message for an Apple device, without the members
    /// that FCM adds.
    func applePayload() -> [UInt8] {
        let notification = self.message.notification
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        writer.object("aps") { writer in
            writer.object("alert") { writer in
                writer.member("title", notification.title)
                writer.member("body", notification.body)
            }
            APNSPayload.writeAPSMembers(self.message, to: &writer)
        }
        for (key, value) in self.data {
            writer.key(escaping: key)
            writer.string(value)
        }
        if let image = notification.extras.image {
            writer.object("fcm_options") { $0.member("image", image) }
        }
        writer.endObject()
        return writer.bytes
    }

    /// Returns the body of a message that shows nothing.
    func silentBody(target: Target) -> [UInt8] {
        self.envelope(target) { writer in
            self.writeData(to: &writer)
            writer.object("android") { writer in
                writer.member("priority", "NORMAL")
                if let seconds = self.message.secondsToLive { writer.member("ttl", "\(seconds)s") }
            }
            writer.object("apns") { writer in
                writer.object("headers") { writer in
                    writer.member("apns-priority", "5")
                    writer.member("apns-push-type", "background")
                    self.writeExpiration(to: &writer)
                }
                writer.key("payload")
                writer.raw(#"{"aps":{"content-available":1}}"#)
            }
        }
    }

    private func envelope(_ target: Target, _ content: (inout JSONWriter) -> Void) -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        writer.object("message") { writer in
            switch target {
            case .token(let token): writer.member("token", token)
            case .topic(let name): writer.member("topic", name)
            }
            content(&writer)
        }
        writer.endObject()
        return writer.bytes
    }

    private func writeData(to writer: inout JSONWriter) {
        writer.object("data") { writer in
            for (key, value) in self.data {
                writer.key(escaping: key)
                writer.string(value)
            }
        }
    }

    private func writeAndroid(to writer: inout JSONWriter) {
        writer.object("android") { writer in
            writer.member("priority", self.message.priority == .high ? "HIGH" : "NORMAL")
            if let seconds = self.message.secondsToLive {
                writer.member("ttl", "\(min(seconds, Self.longestTimeToLive))s")
            }
            writer.object("notification") { writer in
                for (key, value) in self.androidTexts { writer.member(key, value) }
                if let badge = self.message.badge {
                    writer.member("notification_count", min(badge, 99_999))
                }
            }
        }
    }

    /// Writes the block for Apple devices.
    private func writeAPNS(to writer: inout JSONWriter) {
        writer.object("apns") { writer in
            writer.object("headers") { writer in
                writer.member("apns-priority", self.message.priority.apns)
                self.writeExpiration(to: &writer)
                writer.member("apns-collapse-id", self.screenName)
            }
            writer.object("payload") { writer in
                writer.object("aps") { APNSPayload.writeAPSMembers(self.message, to: &$0) }
            }
        }
    }

    private func writeExpiration(to writer: inout JSONWriter) {
        if let moment = self.message.expiration(within: .seconds(Self.longestTimeToLive)) {
            writer.member("apns-expiration", moment)
        }
    }

    /// Writes the block for browsers.
    private func writeWebPush(to writer: inout JSONWriter) {
        writer.object("webpush") { writer in
            writer.object("headers") { writer in
                writer.member("Urgency", self.message.priority == .high ? "high" : "normal")
                if let seconds = self.message.secondsToLive {
                    writer.member("TTL", "\(min(seconds, Self.longestTimeToLive))")
                }
            }
            writer.object("notification") { $0.member("tag", self.screenName) }
            if let url = self.message.notification.extras.url, url.hasPrefix("https://") {
                writer.object("fcm_options") { $0.member("link", url) }
            }
        }
    }
}

/// A job's `platform.fcm`: members of Android's notification, and whole blocks.
struct FCMOverrides {
    /// Applied in order; a null removes the member from the message or an earlier change.
    private var changes: [JSONValue] = []

    init(_ value: JSONValue?) {
        guard let members = value?.object else { return }
        let named = members.filter { PlatformFields.android.contains($0.key) }
        let blocks = members.filter { PlatformFields.fcmBlocks.contains($0.key) }
        if !named.isEmpty {
            let android = JSONValue.object([JSONMember("notification", .object(named))])
            self.changes.append(.object([JSONMember("android", android)]))
        }
        if !blocks.isEmpty { self.changes.append(.object(blocks)) }
    }

    /// The channel that the job sets.
    var channel: String? { self.text { $0["android"]?["notification"]?["channel_id"] } }

    /// The name on Android's screen that the job sets.
    var tag: String? { self.text { $0["android"]?["notification"]?["tag"] } }

    /// The name on the screen of Apple devices that the job sets.
    var collapseID: String? { self.text { $0["apns"]?["headers"]?["apns-collapse-id"] } }

    private func text(_ member: (JSONValue) -> JSONValue?) -> String? {
        self.changes.reversed().compactMap { member($0)?.string }.first
    }

    /// The bytes that the changes add to FCM's count.
    var size: Int {
        let counted = self.changes.flatMap { change in
            [change["android"]?["notification"], change["android"]?["data"], change["notification"]]
        }
        return counted.reduce(0) { $0 + Self.size($1) }
    }

    func applied(to body: [UInt8]) -> [UInt8] {
        guard !self.changes.isEmpty, let whole = try? JSONParser.parse(stored: body) else { return body }
        return JSONWriter.bytes(of: self.changes.reduce(whole) { $0.merging(.object([JSONMember("message", $1)])) })
    }

    /// Merges the changes to Apple's payload into it.
    func appliedToApple(_ payload: [UInt8]) -> [UInt8] {
        let changes = self.changes.compactMap { $0["apns"]?["payload"] }
        guard !changes.isEmpty, let whole = try? JSONParser.parse(stored: payload) else { return payload }
        return JSONWriter.bytes(of: changes.reduce(whole) { $0.merging($1) })
    }

    private static func size(_ value: JSONValue?) -> Int {
        switch value {
        case .string(let text): text.utf8.count
        case .object(let members): members.reduce(0) { $0 + $1.key.utf8.count + self.size($1.value) }
        case .array(let elements): elements.reduce(0) { $0 + self.size($1) }
        case .number(let text): text.utf8.count
        case .bool, .null: 5
        case nil: 0
        }
    }
}
