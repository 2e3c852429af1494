// Carillon · APNSRequest.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Builds requests for Apple's provider API, `POST /3/device/<token>`.
struct APNSRequest {
    private static let sizeLimit = 4_096
    /// Apple stores a notification for at most 30 days.
    private static let longestLifetime: Duration = .seconds(30 * 86_400)

    private var message: PushMessage
    private var overrides: APNSOverrides
    private let shape: PushShape

    /// Returns the request that sends `message` to one token.
    ///
    /// - Parameters:
    ///   - topic: the app's bundle id.
    ///   - shape: the data that the app's clients read.
    /// - Throws: ``MessageRefusal`` with the part that is too large, if the payload cannot be
    ///   brought within Apple's limit.
    static func make(
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

    private var isBackground: Bool { self.message.purpose == .retract || self.overrides.isBackground }

    private func headers(topic: String, providerToken: String, device: Device) -> [(name: String, value: String)] {
        let own = self.overrides.priority ?? self.message.priority.apns
        // Apple accepts only priority 5 for background pushes.
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

    /// Fits the payload into Apple's limit: drops data first, then the image, then cuts the body.
    ///
    /// The job's `platform.apns` stays complete, so the payload may still be too large.
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
        writer.object("aps") { writer in
            if self.isBackground {
                writer.member("content-available", 1)
            } else {
                writer.object("alert") { writer in
                    writer.member("title", self.message.notification.title)
                    writer.member("body", body)
                }
                APNSPayload.writeAPSMembers(self.message, to: &writer)
            }
        }
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

    /// Wakes the app to remove the notification; ignores the job's `platform.apns`.
    private func retraction() -> [UInt8] {
        var plain = self
        plain.message.notification.extras.image = nil
        plain.overrides = APNSOverrides(nil)
        return plain.encode(body: "", data: self.shape.retraction(of: self.message))
    }
}

/// A job's `platform.apns`: short names, whole members of `aps`, and headers.
struct APNSOverrides {
    /// Applied in order; a null removes the member from the payload or an earlier change.
    private var changes: [JSONValue] = []
    /// Whether the push wakes the app without showing anything.
    private(set) var isBackground = false
    private(set) var priority: String?

    init(_ value: JSONValue?) {
        guard let members = value?.object else { return }
        var aps: [JSONMember] = []
        var alert: [JSONMember] = []
        for member in members {
            let name = member.key.replacing("_", with: "-")
            if PlatformFields.aps.contains(member.key) {
                aps.append(JSONMember(name, member.value))
            } else if PlatformFields.apsSwitches.contains(member.key) {
                aps.append(JSONMember(name, member.value.isOn == true ? .number("1") : .null))
            } else if PlatformFields.apsAlert.contains(member.key) {
                alert.append(JSONMember(name, member.value))
            }
        }
        if !alert.isEmpty { aps.append(JSONMember("alert", .object(alert))) }
        if !aps.isEmpty { self.changes.append(.object(aps)) }
        if let own = value?["aps"], own.object != nil { self.changes.append(own) }
        self.isBackground = value?["push_type"]?.string == "background"
        let priority = value?["priority"]?.integer ?? 0
        if PlatformFields.apnsPriorities.contains(priority) { self.priority = String(priority) }
    }

    func applied(to payload: [UInt8]) -> [UInt8] {
        guard !self.changes.isEmpty, !self.isBackground, let whole = try? JSONParser.parse(stored: payload) else {
            return payload
        }
        return JSONWriter.bytes(of: self.changes.reduce(whole) { $0.merging(.object([JSONMember("aps", $1)])) })
    }
}

extension PushPriority {
    /// The value of Apple's priority header.
    var apns: String { self == .high ? "10" : "5" }
}

/// The parts of Apple's payload that APNs and FCM's Apple block share.
enum APNSPayload {
    /// Writes the members of `aps` other than the alert.
    static func writeAPSMembers(_ message: PushMessage, to writer: inout JSONWriter) {
        let notification = message.notification
        if let badge = message.badge {
            writer.member("badge", badge)
        }
        writer.member("sound", notification.extras.sound ?? "default")
        if let category = message.buttonCategory {
            writer.member("category", category)
        }
        if message.isTimeSensitive {
            writer.member("interruption-level", "time-sensitive")
        }
        if notification.extras.image != nil {
            // Lets the app's extension fetch the image.
            writer.member("mutable-content", 1)
        }
    }
}
