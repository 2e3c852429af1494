// Carillon · APNSRequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Makes requests of Apple's provider API, `POST /3/device/<token>`.
package struct APNSRequest {
    private static let sizeLimit = 4_096
    /// Apple stores a notification for 30 days at most.
    private static let longestLifetime: Duration = .seconds(30 * 86_400)

    private var message: PushMessage
    private var overrides: APNSOverrides
    private let shape: PushShape

    /// The request that sends `message` to one token.
    ///
    /// - Parameters:
    ///   - topic: the app's bundle id.
    ///   - shape: which data the app's clients read.
    /// - Throws: ``MessageRefusal`` if it cannot be brought within Apple's limit, with what is too large.
    package static func make(
        _ message: PushMessage,
        device: Device,
        endpoint: String,
        topic: String,
        providerToken: String,
        shape: PushShape = .standard
    ) throws(MessageRefusal) -> ProviderRequest {
        let request = APNSRequest(
            message: message, overrides: APNSOverrides(message.overrides(.apns)), shape: shape)
        return ProviderRequest(
            url: "\(endpoint)/3/device/\(device.token)",
            headers: request.headers(topic: topic, providerToken: providerToken, device: device),
            body: try request.payload()
        )
    }

    private init(message: PushMessage, overrides: APNSOverrides, shape: PushShape) {
        self.message = message
        self.overrides = overrides
        self.shape = shape
    }

    private var isBackground: Bool { self.message.purpose == .retract || self.overrides.isBackground }

    private func headers(topic: String, providerToken: String, device: Device) -> [(name: String, value: String)] {
        let own = self.overrides.priority ?? self.message.priority.apns
        // Apple takes nothing but 5 for what shows nothing.
        let priority = self.isBackground ? PushPriority.normal.apns : own
        var headers: [(name: String, value: String)] = [
            ("authorization", "bearer \(providerToken)"),
            ("apns-topic", topic),
            ("apns-push-type", self.isBackground ? "background" : "alert"),
            ("apns-priority", priority),
            ("apns-id", self.message.deliveryID(to: device).description),
        ]
        if let moment = self.message.expiration(within: Self.longestLifetime) {
            headers.append(("apns-expiration", moment))
        }
        if self.message.purpose == .show { headers.append(("apns-collapse-id", self.message.screenName)) }
        return headers
    }

    /// The payload within Apple's limit: data gives way first, then the image, then the end of the body.
    ///
    /// What the job asks of Apple goes in as it is, so that nothing may help.
    private func payload() throws(MessageRefusal) -> [UInt8] {
        guard self.message.purpose == .show else { return self.retraction() }
        let body = self.message.notification.body
        let whole = self.encode(body: body, data: self.shape.data(of: self.message))
        if whole.count <= Self.sizeLimit { return whole }
        let essentials = self.shape.essentials(of: self.message)
        let bare = self.encode(body: body, data: essentials)
        if bare.count <= Self.sizeLimit { return bare }
        var plain = self
        plain.message.notification.extras.image = nil
        let text = plain.encode(body: body, data: essentials)
        if text.count <= Self.sizeLimit { return text }
        let shortened = body.shortened(by: text.count - Self.sizeLimit) { JSONWriter.length(of: $0) }
        let least = plain.encode(body: shortened, data: essentials)
        if least.count <= Self.sizeLimit { return least }
        plain.overrides = APNSOverrides(nil)
        let isOurs = plain.encode(body: "", data: essentials).count > Self.sizeLimit
        throw MessageRefusal(isOurs ? "too_large:title" : "too_large:platform.apns")
    }

    private func encode(body: String, data: [JSONMember]) -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024)
        writer.beginObject()
        writer.key("aps")
        writer.beginObject()
        if self.isBackground {
            writer.member("content-available", 1)
        } else {
            self.writeAlert(body, to: &writer)
            APNSPayload.writeAside(self.message, to: &writer)
        }
        writer.endObject()
        for member in data where member.key != "aps" {
            writer.key(escaping: member.key)
            writer.value(member.value)
        }
        if let image = self.message.notification.extras.image, !data.contains(where: { $0.key == "image" }) {
            writer.member("image", image)
        }
        writer.endObject()
        return self.overrides.applied(to: writer.bytes)
    }

    /// Wakes the app, which takes the notification off the screen; nothing of what the job asks of Apple is for that.
    private func retraction() -> [UInt8] {
        var plain = self
        plain.message.notification.extras.image = nil
        plain.overrides = APNSOverrides(nil)
        return plain.encode(body: "", data: self.shape.retraction(of: self.message))
    }

    private func writeAlert(_ body: String, to writer: inout JSONWriter) {
        writer.key("alert")
        writer.beginObject()
        writer.member("title", self.message.notification.title)
        writer.member("body", body)
        writer.endObject()
    }
}
