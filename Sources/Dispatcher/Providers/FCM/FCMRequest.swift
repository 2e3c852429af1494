// Carillon · FCMRequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Makes requests of FCM's HTTP v1 API, `messages:send`.
package struct FCMRequest {
    /// The most that keys and values of notification and data may add up to.
    private static let sizeLimit = 4_096
    /// The same for a topic.
    private static let topicSizeLimit = 2_048

    private let message: PushMessage
    private let token: String
    private let shape: PushShape
    private let channel: String?
    private let clickAction: String?
    private let overrides: FCMOverrides

    /// The request that sends `message` to one token, or to a topic where the token is `/topics/<name>`.
    ///
    /// - Parameters:
    ///   - shape: which data the app's clients read.
    ///   - channel: the Android channel that it belongs to, unless the job names one.
    ///   - clickAction: the intent action that a tap asks for on Android, unless the job names one;
    ///     `category` for the message's button category; nil for none, so that a tap opens the app.
    package static func make(
        _ message: PushMessage,
        device: Device,
        endpoint: String,
        project: String,
        accessToken: String,
        shape: PushShape = .standard,
        channel: String? = nil,
        clickAction: String? = nil
    ) -> ProviderRequest {
        let request = FCMRequest(
            message: message, token: device.token, shape: shape, channel: channel, clickAction: clickAction,
            overrides: FCMOverrides(message.overrides(.fcm)))
        return ProviderRequest(
            url: "\(endpoint)/v1/projects/\(project)/messages:send",
            headers: [("authorization", "Bearer \(accessToken)"), ("content-type", "application/json")],
            body: request.fitted()
        )
    }

    private init(
        message: PushMessage,
        token: String,
        shape: PushShape,
        channel: String?,
        clickAction: String?,
        overrides: FCMOverrides
    ) {
        self.message = message
        self.token = token
        self.shape = shape
        self.channel = channel
        self.clickAction = clickAction
        self.overrides = overrides
    }

    private var topic: Substring? {
        self.token.hasPrefix(Device.topicPrefix) ? self.token.dropFirst(Device.topicPrefix.count) : nil
    }

    /// The body within FCM's limit: data gives way first, then the image, then the end of the text.
    private func fitted() -> [UInt8] {
        guard self.message.purpose == .show else { return self.retraction() }
        let limit = self.topic == nil ? Self.sizeLimit : Self.topicSizeLimit
        var writer = FCMWriter(
            message: self.message, data: FCMData.strings(self.shape.data(of: self.message)),
            channel: self.overrides.channel ?? self.channel,
            clickAction: self.clickAction == "category" ? self.message.buttonCategory : self.clickAction)
        var excess = writer.size + self.overrides.size - limit
        if excess > 0 {
            // What does not fit goes out as the id alone; the client fetches the rest.
            writer.data = FCMData.strings(self.shape.essentials(of: self.message))
            excess = writer.size + self.overrides.size - limit
        }
        if excess > 0, writer.message.notification.extras.image != nil {
            writer.message.notification.extras.image = nil
            excess = writer.size + self.overrides.size - limit
        }
        writer.message.notification.body = writer.message.notification.body.shortened(by: excess)
        return self.overrides.applied(to: writer.body(target: self.target))
    }

    private var target: FCMWriter.Target {
        self.topic.map { .topic(String($0)) } ?? .token(self.token)
    }

    /// Data alone, which an app gets without showing anything: it takes the notification off the screen.
    private func retraction() -> [UInt8] {
        let data = FCMData.strings(self.shape.retraction(of: self.message))
        return FCMWriter(message: self.message, data: data, channel: nil, clickAction: nil)
            .silentBody(target: self.target)
    }
}

/// Data as FCM takes it.
enum FCMData {
    /// Values must be strings, and some names are FCM's own: those get `data_` before them, unless the result is a name that
    /// is there already, which stays.
    static func strings(_ members: [JSONMember]) -> [(key: String, value: String)] {
        members.compactMap { member -> (key: String, value: String)? in
            let isReserved =
                ["", "from", "message_type", "collapse_key"].contains(member.key)
                || member.key.hasPrefix("google") || member.key.hasPrefix("gcm")
            let text = member.value.string ?? String(decoding: JSONWriter.bytes(of: member.value), as: UTF8.self)
            guard isReserved else { return (member.key, text) }
            let key = "data_" + member.key
            return members.contains { ExactText($0.key) == ExactText(key) } ? nil : (key, text)
        }
    }
}
