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
        answers: [.ok("The types.", EffectivePreferences.shape.schema)])

    private func preferences(_ request: Request, _ context: APIContext) async throws -> Response {
        try await self.answerPreferences(try context.user())
    }

    /// Answers each type of the catalog with its effective preferences.
    private func answerPreferences(_ user: String) async throws -> Response {
        .json(try await EffectivePreferences(of: user, self.users), as: EffectivePreferences.shape)
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
        answers: [.ok("The types.", EffectivePreferences.shape.schema), Self.tooManyQuietChanges])

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
        answers: [.ok("The settings.", settingsShape.schema)])

    private func settings(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        return try await self.answer(try await self.users.preferences.settings(user: user), user)
    }

    private static let setSettings = Operation(
        "setSettings",
        "Changes the caller's settings.",
        body: .settingsChange,
        answers: [.ok("The settings.", settingsShape.schema), Self.tooManyQuietChanges])

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
        answers: [.ok("The settings.", settingsShape.schema), Self.tooManyQuietChanges])

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
        return .json((settings, isEmailMissing), as: Self.settingsShape)
    }

    static let settingsShape = Shape<(settings: UserSettings, isEmailMissing: Bool)>(
        "Settings",
        UserSettings.shape.of { $0.settings } + [
            "email_missing": .value(
                .bool, "Whether e-mail is on for a type although the user has no valid address."
            ) { $0.isEmailMissing }
        ])
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

    // MARK: JSON

    static let shape = Shape<EffectivePreferences>(
        "Preferences",
        [
            "types": .list(of: type, max: 100_000) { $0.types },
            "categories": .written(.list(of: .categoryPreference, max: 100_000)) { $0.writeCategories(to: &$1) },
            "email_missing": .value(
                .bool, "Whether e-mail is on for a type although the user has no valid address."
            ) { $0.isEmailMissing },
        ])

    /// A type and its effective preferences: the user's for the type, else for its category, else
    /// the default.
    private typealias TypeRow = (type: NotificationType, effective: TypePreference, own: TypePreference)

    private var types: [TypeRow] {
        self.catalog.all.filter(\.isEnabled).map { type in
            (type, self.preferences.preference(for: type), self.preferences[type.name] ?? TypePreference())
        }
    }

    private static let type: Shape<TypeRow> = [
        "type": .value(.text(JobLimits.name)) { $0.type.name },
        "category": .value(.string) { $0.type.category },
        "required": .value(.bool) { $0.type.isRequired },
        "channels": .value(.list(of: .channel, max: 3), "The channels of the type; the others are always off.") { row in
            DeliveryChannel.allCases.filter { row.type.channels.contains(Channels($0)) }.map(\.rawValue)
        },
        "in_app": .value(.bool) { EffectivePreference.inApp($0.effective, $0.type) },
        "push": .value(.bool) { EffectivePreference.push($0.effective, $0.type) },
        "email": .value(.bool) { EffectivePreference.email($0.effective, $0.type) },
        "own": .object(
            choices, "The user's choices for the type; null where it follows its category or the catalog."
        ) { $0.own },
        "quiet_hours": .written(
            .oneOf(.quietHours, .constant(.string("none"))).orNull,
            "The type's own; \"none\" for none, null for the user's."
        ) { row, writer in
            switch row.type.isRequired ? nil : row.own.quietHours {
            case .some(QuietOverride.none): writer.string("none")
            case .hours(let hours): hours.write(to: &writer)
            case .inherited, nil: writer.null()
            }
        },
    ]

    /// The user's choices; null for channels without one.
    private static let choices: Shape<TypePreference> = [
        "in_app": .value(.bool) { $0.inApp },
        "push": .value(.bool) { $0.push },
        "email": .value(.bool) { $0.email },
    ]

    private func writeCategories(to writer: inout JSONWriter) {
        writer.beginArray()
        for category in Set(self.catalog.categories.map(\.category)).sorted() {
            writer.beginObject()
            writer.member("category", category)
            let own = self.preferences[PreferenceKey.category(category)] ?? TypePreference()
            Self.choices.writeMembers(of: own, to: &writer)
            writer.endObject()
        }
        writer.endArray()
    }
}
