// Carillon · NewsShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The news app's JSON.
enum NewsShape {
    /// The category of the types that its settings page shows.
    static let category = "news"

    /// The answer to a registration and to its end.
    static func writeOutcome(_ message: String, to writer: inout JSONWriter) {
        writer.member("success", true)
        writer.member("message", message)
    }

    /// How a user stands: whether breaking news reaches a phone, which one, and what it may be about.
    ///
    /// - Parameter devices: those whose token is good, the latest used first.
    static func writeStatus(
        devices: [Device],
        isOptedOut: Bool,
        types: [NotificationType],
        wishes: [String: TypePreference],
        to writer: inout JSONWriter
    ) {
        writer.member("notifications_enabled", devices.contains(where: \.getsPushes) && !isOptedOut)
        writer.member("has_token", !devices.isEmpty)
        writer.member("token_count", devices.count)
        writer.member("platform", devices.first?.platform.rawValue)
        writer.key("preferences")
        writer.beginObject()
        for type in types where type.category == Self.category {
            writer.key(escaping: type.name)
            writer.bool(EffectiveWish.push(wishes.wish(for: type), type))
        }
        writer.endObject()
    }
}
