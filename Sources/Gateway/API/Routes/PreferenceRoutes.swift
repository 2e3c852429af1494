// Carillon · PreferenceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import Hummingbird
import JSON
import Model
import Services
import Stores

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
        }
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
        for channel in Channel.allCases where type.channels.contains(Channels(channel)) {
            writer.string(channel.rawValue)
        }
        writer.endArray()
        writer.member("in_app", effective(wish.inApp, .inApp))
        writer.member("push", effective(wish.push, .push))
        writer.member("email", effective(wish.email ?? type.isEmailOnByDefault, .email))
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
        let isRequired = body.value["categories"] == nil
        var preferences = self.services.userFields.preferences("types", &body, isRequired: isRequired)
        preferences.merge(self.services.userFields.categoryPreferences("categories", &body)) { one, _ in one }
        try body.finish()
        try await self.services.preferences.set(user: user, preferences: preferences)
        return try await self.answerPreferences(user)
    }

    // MARK: In general

    private func settings(_ request: Request, _ context: APIContext) async throws -> Response {
        self.answer(try await self.services.preferences.settings(user: try context.user()))
    }

    private func setSettings(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        let (settings, kept) = UserFields.settings(&body)
        try body.finish()
        return self.answer(try await self.services.preferences.set(user: user, settings: settings, keeping: kept))
    }

    private func setQuietHours(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request, isRequired: true))
        var settings = UserSettings()
        settings.quietHours = UserFields.quietHours(&body)
        try body.finish()
        return self.answer(
            try await self.services.preferences.set(user: user, settings: settings, keeping: [.general, .emailOptOut])
        )
    }

    private func answer(_ settings: UserSettings) -> Response {
        var writer = JSONWriter()
        SettingsJSON.write(settings, to: &writer)
        return .json(writer)
    }
}
