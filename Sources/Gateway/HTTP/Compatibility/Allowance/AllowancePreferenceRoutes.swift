// Carillon · AllowancePreferenceRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// The family-finance app's `/api/v1/notifications/preferences`.
struct AllowancePreferenceRoutes {
    let services: APIServices
    private var types: CodedTypes { CodedTypes(self.services.base.catalog.all) }

    func add(to routes: Routes) {
        routes.get("preferences", Self.preferences, self.preferences)
        routes.put("preferences", Self.setPreferences, self.setPreferences)
        routes.put("preferences/quiet-hours", Self.setQuietHours, self.setQuietHours)
    }

    private static let preferences = Operation(
        "allowanceGetPreferences",
        "Family finance: lists the preferences of types with a code.",
        answers: [.ok("The preferences.", .allowancePreferences)])

    private func preferences(_ request: Request, _ context: APIContext) async throws -> Response {
        try await self.answer(try context.user())
    }

    private func answer(_ user: String) async throws -> Response {
        let preferences = try await self.services.users.preferences.preferences(user: user)
        let settings = try await self.services.users.preferences.settings(user: user)
        return Response.object {
            AllowanceShape.write(self.types, preferences: preferences, settings: settings, to: &$0)
        }
    }

    private static let setPreferences = Operation(
        "allowanceSetPreferences",
        "Family finance: sets preferences by type; each ten types count as a call of the user.",
        body: .object([
            "preferences": .list(
                of: .object([
                    "notificationType": .integer("The code of a type."),
                    "inAppEnabled?": .bool.orNull,
                    "pushEnabled?": .bool.orNull,
                    "emailEnabled?": .bool.orNull,
                ])(
                    "Absent or null fields stay. Required types may be included unchanged, but not switched off."
                ), max: 1000)
        ]),
        answers: [.ok("The effective preference.", .allowancePreferences)])

    private func setPreferences(_ request: Request, _ context: APIContext) async throws -> Response {
        let caller = try context.requireCaller()
        let user = caller.user
        var fields = try await FieldReader(lenientBody: request)
        let changed = AllowanceRequests.preferences(&fields, types: self.types)
        try fields.finish()
        self.services.identity.count(
            furtherCalls: (changed.count - 1) / PreferenceRoutes.entriesPerCall, of: caller)
        try await self.services.users.changePreferences(user: user, changed)
        return try await self.answer(user)
    }

    private static let setQuietHours = Operation(
        "allowanceSetQuietHours",
        "Family finance: sets quiet hours or switches them on or off.",
        body: .object([
            "enabled": .bool,
            "startTime?": .lenientTimeOfDay.orNull,
            "endTime?": .lenientTimeOfDay.orNull,
        ])(
            "Without times, the previous ones stay; `enabled` true requires them. One time alone is invalid. "
                + "The same time twice means none. Times are in the user's zone."
        ),
        answers: [.ok("The effective preference.", .allowancePreferences), PreferenceRoutes.tooManyQuietChanges])

    private func setQuietHours(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var fields = try await FieldReader(lenientBody: request)
        let change = AllowanceRequests.quietHours(&fields)
        if case .switched(on: true) = change {
            let stored = try await self.services.users.preferences.settings(user: user)
            if stored.quietHours == nil, stored.pausedQuietHours == nil {
                for name in ["startTime", "endTime"] { fields.fault(name, "is missing") }
            }
        }
        try fields.finish()
        switch change {
        case .times(let hours, let isOn):
            var settings = UserSettings()
            if isOn { settings.quietHours = hours } else { settings.pausedQuietHours = hours }
            // The app's clients know no weekdays, so keep them.
            try await self.services.users.change(
                settings, of: user, keeping: [.general, .emailOptOut, .weekdays])
        case .switched(let isOn):
            try await self.services.users.switchQuietHours(of: user, isOn: isOn)
        case nil: break
        }
        return try await self.answer(user)
    }
}

/// Parses and checks preferences from the family-finance app's clients.
enum AllowanceRequests {
    /// A catalog has dozens of types, and a client sends each once.
    private static let mostPreferences = 1_000

    /// Parses `UpdateNotificationPreferencesDto`: the listed types; other preferences stay.
    ///
    /// Clients send all types back, so required types may be listed unchanged.
    static func preferences(_ fields: inout FieldReader, types: CodedTypes) -> [String: TypePreference] {
        guard let items = fields.value["preferences"]?.array, items.count <= Self.mostPreferences else {
            fields.fault("preferences", "must be an array of at most \(Self.mostPreferences) objects")
            return [:]
        }
        var changed: [String: TypePreference] = [:]
        for (index, item) in items.enumerated() {
            var entry = FieldReader(lenient: item, prefix: "preferences[\(index)].")
            let code = entry.integer("notificationType", isRequired: true)
            let inApp = entry.flag("inAppEnabled")
            let push = entry.flag("pushEnabled")
            let email = entry.flag("emailEnabled")
            let type = code.flatMap { types[Int($0)] }
            if code != nil, type == nil { entry.fault("notificationType", "is not in the catalog") }
            if let type, EffectivePreference.isRefused(TypePreference(inApp: inApp, push: push), type) {
                entry.fault("notificationType", "is required and cannot be switched off")
            }
            if let type {
                var preference = changed[type.name] ?? TypePreference()
                if !type.isRequired {
                    preference.inApp = inApp ?? preference.inApp
                    preference.push = push ?? preference.push
                }
                preference.email = email ?? preference.email
                changed[type.name] = preference
            }
            fields.add(entry)
        }
        return changed
    }

    /// A change of quiet hours.
    enum QuietChange: Equatable {
        /// New times; nil for none, because start and end are equal.
        case times(QuietHours?, isOn: Bool)
        /// Switches quiet hours on or off; their times stay.
        case switched(on: Bool)
    }

    /// Parses `UpdateQuietHoursDto`, which applies to all days; nil after a fault.
    static func quietHours(_ fields: inout FieldReader) -> QuietChange? {
        let isOn = fields.flag("enabled")
        if isOn == nil, fields.faults.isEmpty { fields.fault("enabled", "is missing") }
        let start: Int? = fields.time("startTime") ?? nil
        let end: Int? = fields.time("endTime") ?? nil
        guard let isOn, fields.faults.isEmpty else { return nil }
        switch (start, end) {
        case (nil, nil): return .switched(on: isOn)
        case (let start?, let end?):
            return .times(start == end ? nil : QuietHours(start: start, end: end), isOn: isOn)
        case (nil, _): fields.fault("startTime", "is missing")
        case (_, nil): fields.fault("endTime", "is missing")
        }
        return nil
    }
}
