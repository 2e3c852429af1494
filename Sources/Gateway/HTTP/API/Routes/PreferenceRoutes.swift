// Carillon · PreferenceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// A user's preferences and settings: `/v1/preferences` and `/v1/settings`.
struct PreferenceRoutes {
    static let tooManyQuietChanges = Answer(
        429, "The user exceeds the rate limit, or changes quiet hours or the time zone too often.")
    /// The entries that a call may change before it counts as another one.
    static let entriesPerCall = 10

    let users: UserServices
    let identity: IdentityServices

    func add(to routes: Routes) {
        routes.get("preferences", Self.preferences, self.preferences)
        routes.put("preferences", Self.setPreferences, self.setPreferences)
        routes.put("preferences/quiet-hours", Self.setQuietHours, self.setQuietHours)
        routes.get("settings", Self.settings, self.settings)
        routes.put("settings", Self.setSettings, self.setSettings)
    }

    // MARK: Per type

    private static let preferences = Operation(
        "getPreferences",
        "Lists the caller's effective preferences by type.",
        answers: [.ok("The types.", .preferences)])

    private func preferences(_ request: Request, _ context: APIContext) async throws -> Response {
        try await self.answerPreferences(try context.user())
    }

    /// Answers each type of the catalog with its effective preferences.
    private func answerPreferences(_ user: String) async throws -> Response {
        let preferences = try await EffectivePreferences(of: user, self.users)
        return Response.object { preferences.write(to: &$0) }
    }

    private static let setPreferences = Operation(
        "setPreferences",
        "Sets preferences of the given types and categories; the others stay. Each ten count as a call of the user.",
        body: .object(
            [
                "types?": .list(of: .typePreference, max: 1000),
                "categories?": .list(of: .categoryPreference, max: 1000),
            ], isClosed: true
        ).with("minProperties", .number("1")),
        answers: [.ok("The types.", .preferences), Self.tooManyQuietChanges])

    private func setPreferences(_ request: Request, _ context: APIContext) async throws -> Response {
        let caller = try context.requireCaller()
        let user = caller.user
        var body = try await FieldReader(body: request, of: Self.setPreferences)
        for name in ["types", "categories"] where body.value[name] == .null {
            body.fault(name, "must be an array; leave it out to change nothing")
        }
        if body.value["types"] == nil, body.value["categories"] == nil { body.fault("types", "is missing") }
        var preferences = self.users.fields.preferences("types", &body)
        preferences.merge(self.users.fields.categoryPreferences("categories", &body)) { one, _ in one }
        try body.finish()
        self.identity.count(furtherCalls: (preferences.count - 1) / Self.entriesPerCall, of: caller)
        try await self.users.change(preferences, of: user)
        return try await self.answerPreferences(user)
    }

    // MARK: In general

    private static let settings = Operation(
        "getSettings",
        "Returns the caller's settings.",
        answers: [.ok("The settings.", .settings)])

    private func settings(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        return try await self.answer(try await self.users.preferences.settings(user: user), user)
    }

    private static let setSettings = Operation(
        "setSettings",
        "Changes the caller's settings.",
        body: .settingsChange,
        answers: [.ok("The settings.", .settings), Self.tooManyQuietChanges])

    private func setSettings(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try FieldReader(try await FieldReader.body(request))
        let (settings, kept) = UserFields.settings(&body)
        try body.finish()
        return try await self.answer(try await self.users.change(settings, of: user, keeping: kept), user)
    }

    private static let setQuietHours = Operation(
        "setQuietHours",
        "Sets the quiet hours.",
        body: .quietHours,
        answers: [.ok("The settings.", .settings), Self.tooManyQuietChanges])

    private func setQuietHours(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try FieldReader(try await FieldReader.body(request))
        var settings = UserSettings()
        settings.quietHours = UserFields.quietHours(&body)
        try body.finish()
        return try await self.answer(
            try await self.users.change(settings, of: user, keeping: [.general, .emailOptOut]), user)
    }

    private func answer(_ settings: UserSettings, _ user: String) async throws -> Response {
        let isEmailMissing = try await EffectivePreferences(of: user, self.users).isEmailMissing
        return .json { SettingsShape.write(settings, isEmailMissing: isEmailMissing, to: &$0) }
    }
}

/// A user's preferences for each type of the catalog.
struct EffectivePreferences {
    private let catalog: Catalog
    private let preferences: [String: TypePreference]
    /// Whether e-mail is on for some type although the user has no valid address.
    let isEmailMissing: Bool

    init(of user: String, _ users: UserServices) async throws {
        let catalog = users.base.catalog
        let preferences = try await users.preferences.preferences(user: user)
        let reach = try await users.preferences.emailReach(user: user)
        self.catalog = catalog
        self.preferences = preferences
        self.isEmailMissing =
            !reach.hasAddress
            && catalog.all.contains { type in
                type.isEnabled && (type.isRequired || !reach.isOptedOut)
                    && EffectivePreference.email(preferences.preference(for: type), type)
            }
    }

    /// Writes the members of the object.
    func write(to writer: inout JSONWriter) {
        writer.array("types", self.catalog.all.filter(\.isEnabled)) { self.write($1, to: &$0) }
        writer.array("categories", Set(self.catalog.categories.map(\.category)).sorted()) { writer, category in
            writer.beginObject()
            writer.member("category", category)
            self.writeChoices(PreferenceKey.category(category), to: &writer)
            writer.endObject()
        }
        writer.member("email_missing", self.isEmailMissing)
    }

    /// Writes the user's choices for a type or a category; null for channels without one.
    private func writeChoices(_ key: String, to writer: inout JSONWriter) {
        let choices = self.preferences[key] ?? TypePreference()
        for (channel, value) in [("in_app", choices.inApp), ("push", choices.push), ("email", choices.email)] {
            writer.key(escaping: channel)
            if let value { writer.bool(value) } else { writer.null() }
        }
    }

    /// Writes a type with its effective preferences: the user's for the type, else for its
    /// category, else the default.
    private func write(_ type: NotificationType, to writer: inout JSONWriter) {
        let preference = self.preferences.preference(for: type)
        writer.beginObject()
        writer.member("type", type.name)
        writer.member("category", type.category)
        writer.member("required", type.isRequired)
        let channels = DeliveryChannel.allCases.filter { type.channels.contains(Channels($0)) }
        writer.array("channels", channels) { $0.string($1.rawValue) }
        writer.member("in_app", EffectivePreference.inApp(preference, type))
        writer.member("push", EffectivePreference.push(preference, type))
        writer.member("email", EffectivePreference.email(preference, type))
        writer.key("own")
        writer.beginObject()
        self.writeChoices(type.name, to: &writer)
        writer.endObject()
        writer.key("quiet_hours")
        switch type.isRequired ? nil : self.preferences[type.name]?.quietHours {
        case .some(QuietOverride.none): writer.string("none")
        case .hours(let hours): SettingsShape.write(hours, to: &writer)
        case .inherited, nil: writer.null()
        }
        writer.endObject()
    }
}

extension Schema {
    static let preferences = Schema(
        "Preferences",
        [
            "types": .list(
                of: .object([
                    "type": .text(JobLimits.name),
                    "category": .string.orNull,
                    "required": .bool,
                    "channels": .list(of: .channel, max: 3)(
                        "The channels of the type; the others are always off."),
                    "in_app": .bool,
                    "push": .bool,
                    "email": .bool,
                    "own": .object(["in_app": .bool.orNull, "push": .bool.orNull, "email": .bool.orNull])(
                        "The user's choices for the type; null where it follows its category or the catalog."),
                    "quiet_hours": .oneOf(.quietHours, .constant(.string("none"))).orNull(
                        "The type's own; \"none\" for none, null for the user's."),
                ]), max: 100_000),
            "categories": .list(of: .categoryPreference, max: 100_000),
            "email_missing": .bool("Whether e-mail is on for a type although the user has no valid address."),
        ])
}

extension Schema {
    static let quietHours = Schema(
        "QuietHours", "Wall-clock times in the user's zone; start = end means none.",
        [
            "start": .timeOfDay,
            "end": .timeOfDay,
            "weekdays?": .list(of: .integer(1...7), min: 1, max: 7).orNull("1 is Monday; all if absent."),
        ], isClosed: true)

    static let settings = Schema(
        "Settings",
        [
            "zone": .string.orNull,
            "locale": .string.orNull,
            "email": .string.orNull,
            "opted_out": .bool,
            "email_opted_out": .bool,
            "quiet_hours": .quietHours.orNull,
            "email_missing": .bool("Whether e-mail is on for a type although the user has no valid address."),
        ])
}
