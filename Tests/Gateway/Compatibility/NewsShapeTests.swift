// Carillon · NewsShapeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core
@testable import HTTP

@Suite("The news app's JSON", .timeLimit(.minutes(10)))
struct NewsShapeTests {
    private static func device(_ platform: Platform) -> Device {
        Device(
            id: NotificationID(high: 1, low: 2),
            user: "u",
            platform: platform,
            provider: .fcm,
            app: "default",
            environment: .production,
            token: "secret-token",
            registeredAt: Timestamp(seconds: 0)
        )
    }

    private static func type(_ name: String, category: String?, isOn: Bool = true) -> NotificationType {
        var type = NotificationType(name: name)
        type.category = category
        type.isOnByDefault = isOn
        return type
    }

    private static func status(_ devices: [Device], isOptedOut: Bool, preferences: [String: TypePreference] = [:])
        -> String
    {
        let types = [
            Self.type("breaking_news", category: NewsShape.category),
            Self.type("daily_digest", category: NewsShape.category, isOn: false),
            Self.type("invoice_created", category: "invoices"),
        ]
        var writer = JSONWriter()
        writer.beginObject()
        NewsShape.writeStatus(
            devices: devices,
            isOptedOut: isOptedOut,
            types: types,
            preferences: preferences,
            to: &writer
        )
        writer.endObject()
        return String(decoding: writer.bytes, as: UTF8.self)
    }

    @Test("lists preferences of a user without a device, but no notifications")
    func nobody() {
        #expect(
            Self.status([], isOptedOut: false)
                == #"{"notifications_enabled":false,"has_token":false,"token_count":0,"platform":null,"#
                + #""preferences":{"breaking_news":true,"daily_digest":false}}"#)
    }

    @Test("takes the platform of the last used device and preferences before defaults; opting out disables all")
    func somebody() {
        let preferences = ["breaking_news": TypePreference(push: false), "daily_digest": TypePreference(push: true)]
        let devices = [Self.device(.android), Self.device(.ios)]
        #expect(
            Self.status(devices, isOptedOut: false, preferences: preferences)
                == #"{"notifications_enabled":true,"has_token":true,"token_count":2,"platform":"android","#
                + #""preferences":{"breaking_news":false,"daily_digest":true}}"#)
        #expect(Self.status(devices, isOptedOut: true).hasPrefix(#"{"notifications_enabled":false,"has_token":true"#))
        var silenced = Self.device(.ios)
        silenced.isSilenced = true
        #expect(
            Self.status([silenced], isOptedOut: false)
                .hasPrefix(#"{"notifications_enabled":false,"has_token":true"#))
    }

    @Test("applies a category's preference to its types unless a type has its own")
    func category() {
        let preferences = [
            PreferenceKey.category(NewsShape.category): TypePreference(push: false),
            "daily_digest": TypePreference(push: true),
        ]
        #expect(
            Self.status([], isOptedOut: false, preferences: preferences)
                .hasSuffix(#""preferences":{"breaking_news":false,"daily_digest":true}}"#))
    }
}
