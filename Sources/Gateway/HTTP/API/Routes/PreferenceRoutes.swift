// Carillon · PreferenceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// What a user wants: `/v1/preferences` and `/v1/settings`.
struct PreferenceRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.get("preferences", use: self.preferences)
        group.put("preferences", use: self.setPreferences)
        group.put("preferences/quiet-hours", use: self.setQuietHours)
        group.get("settings", use: self.settings)
        group.put("settings", use: self.setSettings)
    }

    // MARK: Per type

    private func preferences(_ request: Request, _ context: APIContext) async throws -> Response {
        try await self.answerPreferences(try context.user())
    }

    /// Every type of the catalog with what holds for the user, and whether the user may change it.
    private func answerPreferences(_ user: String) async throws -> Response {
        let wishes = try await self.services.preferences.preferences(user: user)
        let isEmailMissing = try await self.isEmailMissing(user, wishes)
        let categories = Set(self.services.catalog.categories.map(\.category)).sorted()
        return Response.object { writer in
            writer.key("types")
            writer.beginArray()
            for type in self.services.catalog.all { Self.write(type, wishes: wishes, to: &writer) }
            writer.endArray()
            writer.key("categories")
            writer.beginArray()
            for category in categories {
                let wish = wishes[PreferenceKey.category(category)] ?? TypePreference()
                writer.beginObject()
                writer.member("category", category)
                for (channel, value) in [("in_app", wish.inApp), ("push", wish.push), ("email", wish.email)] {
                    writer.key(escaping: channel)
                    if let value { writer.bool(value) } else { writer.null() }
                }
                writer.endObject()
            }
            writer.endArray()
            writer.member("email_missing", isEmailMissing)
        }
    }

    /// Whether the user would get e-mail of some type, and there is no address that takes it.
    private func isEmailMissing(_ user: String, _ wishes: [String: TypePreference]) async throws -> Bool {
        let reach = try await self.services.preferences.emailReach(user: user)
        guard !reach.hasAddress else { return false }
        return self.services.catalog.all.contains { type in
            type.isEnabled && (type.isRequired || !reach.isOptedOut) && Self.isEmailOn(type, wishes.wish(for: type))
        }
    }

    private static func isEmailOn(_ type: NotificationType, _ wish: TypePreference) -> Bool {
        type.channels.contains(.email) && (type.isRequired || (wish.email ?? type.isEmailOnByDefault))
    }

    /// A type with what holds for the user: their wish, that for its category, or the type's default.
    private static func write(
        _ type: NotificationType,
        wishes: [String: TypePreference],
        to writer: inout JSONWriter
    ) {
        let wish = wishes.wish(for: type)
        func effective(_ wish: Bool?, _ channel: Channels) -> Bool {
            type.channels.contains(channel) && (type.isRequired || (wish ?? type.isOnByDefault))
        }
        writer.beginObject()
        writer.member("type", type.name)
        writer.member("category", type.category)
        writer.member("required", type.isRequired)
        writer.key("channels")
        writer.beginArray()
        for channel in DeliveryChannel.allCases where type.channels.contains(Channels(channel)) {
            writer.string(channel.rawValue)
        }
        writer.endArray()
        writer.member("in_app", effective(wish.inApp, .inApp))
        writer.member("push", effective(wish.push, .push))
        writer.member("email", Self.isEmailOn(type, wish))
        writer.key("quiet_hours")
        switch wishes[type.name]?.quietHours {
        case .some(QuietOverride.none): writer.string("none")
        case .hours(let hours): SettingsJSON.write(hours, to: &writer)
        case .inherited, nil: writer.null()
        }
        writer.endObject()
    }

    private func setPreferences(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        body.allow(["types", "categories"])
        for name in ["types", "categories"] where body.value[name] == .null {
            body.fault(name, "must be an array; leave it out to change nothing")
        }
        if body.value["types"] == nil, body.value["categories"] == nil { body.fault("types", "is missing") }
        var preferences = self.services.userFields.preferences("types", &body)
        preferences.merge(self.services.userFields.categoryPreferences("categories", &body)) { one, _ in one }
        try body.finish()
        try await self.services.preferences.set(user: user, preferences: preferences)
        return try await self.answerPreferences(user)
    }

    // MARK: In general

    private func settings(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        return try await self.answer(try await self.services.preferences.settings(user: user), user)
    }

    private func setSettings(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        let (settings, kept) = UserFields.settings(&body)
        try body.finish()
        return try await self.answer(
            try await self.services.preferences.set(user: user, settings: settings, keeping: kept), user)
    }

    private func setQuietHours(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        var settings = UserSettings()
        settings.quietHours = UserFields.quietHours(&body)
        try body.finish()
        return try await self.answer(
            try await self.services.preferences.set(user: user, settings: settings, keeping: [.general, .emailOptOut]),
            user)
    }

    private func answer(_ settings: UserSettings, _ user: String) async throws -> Response {
        let wishes = try await self.services.preferences.preferences(user: user)
        let isEmailMissing = try await self.isEmailMissing(user, wishes)
        var writer = JSONWriter()
        SettingsJSON.write(settings, isEmailMissing: isEmailMissing, to: &writer)
        return .json(writer)
    }
}
