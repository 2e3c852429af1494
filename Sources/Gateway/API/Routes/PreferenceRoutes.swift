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
        return Response.object { writer in
            writer.key("types")
            writer.beginArray()
            for type in self.services.catalog.all {
                let wish = wishes[type.name] ?? TypePreference()
                func effective(_ wish: Bool?, _ channel: Channels) -> Bool {
                    type.channels.contains(channel) && (type.isRequired || (wish ?? type.isOnByDefault))
                }
                writer.beginObject()
                writer.key("type")
                writer.string(type.name)
                writer.key("category")
                writer.string(type.category)
                writer.key("required")
                writer.bool(type.isRequired)
                writer.key("in_app")
                writer.bool(effective(wish.inApp, .inApp))
                writer.key("push")
                writer.bool(effective(wish.push, .push))
                writer.key("email")
                writer.bool(effective(wish.email, .email))
                writer.endObject()
            }
            writer.endArray()
        }
    }

    private func setPreferences(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request))
        body.allow(["types"])
        var preferences: [String: TypePreference] = [:]
        let entries = body.value["types"]?.array ?? []
        if entries.isEmpty { body.fault("types", "must be an array of objects with type, in_app, push and email") }
        for (index, entry) in entries.enumerated() {
            guard let name = entry["type"]?.string, let type = self.services.catalog[name] else {
                body.fault("types[\(index)].type", "is not in the catalog")
                continue
            }
            guard !type.isRequired else {
                body.fault("types[\(index)].type", "is required and cannot be switched off")
                continue
            }
            var entryBody = try JSONBody(entry)
            preferences[name] = TypePreference(
                inApp: entryBody.flag("in_app"),
                push: entryBody.flag("push"),
                email: entryBody.flag("email")
            )
            for fault in entryBody.faults { body.fault("types[\(index)].\(fault.field)", fault.reason) }
        }
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
        var body = try JSONBody(try await JSONBody.read(request))
        body.allow(["zone", "locale", "email", "opted_out", "quiet_hours"])
        var settings = try await self.services.preferences.settings(user: user)
        settings.zone = body.text("zone", limit: 64)
        settings.locale = body.text("locale", limit: 35)
        settings.email = body.text("email", limit: 254)
        settings.isOptedOut = body.flag("opted_out") ?? false
        if let zone = settings.zone, !ZoneNames.isKnown(zone) { body.fault("zone", "is no IANA time zone") }
        if let value = body.value["quiet_hours"] { settings.quietHours = Self.quietHours(value, &body) }
        try body.finish()
        try await self.services.preferences.set(user: user, settings: settings)
        return self.answer(settings)
    }

    private func setQuietHours(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try context.user()
        var body = try JSONBody(try await JSONBody.read(request))
        let quietHours = Self.quietHours(body.value, &body)
        try body.finish()
        var settings = try await self.services.preferences.settings(user: user)
        settings.quietHours = quietHours
        try await self.services.preferences.set(user: user, settings: settings)
        return self.answer(settings)
    }

    /// `{"start":"22:00","end":"07:00","weekdays":[1,…,7]}` with 1 for Monday; start = end means none.
    private static func quietHours(_ value: JSONValue, _ body: inout JSONBody) -> QuietHours? {
        if value == .null { return nil }
        guard let start = Self.minutes(value["start"]), let end = Self.minutes(value["end"]) else {
            body.fault("quiet_hours", "must have start and end as HH:MM")
            return nil
        }
        var weekdays: UInt8 = 0x7F
        if let days = value["weekdays"] {
            let numbers = days.array?.compactMap(\.integer) ?? []
            guard numbers.count == days.array?.count, numbers.allSatisfy({ (1...7).contains($0) }) else {
                body.fault("weekdays", "must be an array of numbers from 1 (Monday) to 7")
                return nil
            }
            weekdays = numbers.reduce(0) { $0 | 1 << UInt8($1 - 1) }
        }
        return start == end ? nil : QuietHours(start: start, end: end, weekdays: weekdays)
    }

    private static func minutes(_ value: JSONValue?) -> Int? {
        guard let parts = value?.string?.split(separator: ":"), parts.count == 2, parts.allSatisfy({ $0.count == 2 }),
            let hours = Int(parts[0]), let minutes = Int(parts[1]), (0..<24).contains(hours), (0..<60).contains(minutes)
        else { return nil }
        return hours * 60 + minutes
    }

    private static func clock(_ minutes: Int) -> String {
        func two(_ value: Int) -> String { (value < 10 ? "0" : "") + String(value) }
        return two(minutes / 60) + ":" + two(minutes % 60)
    }

    private func answer(_ settings: UserSettings) -> Response {
        Response.object { writer in
            writer.key("zone")
            writer.string(settings.zone)
            writer.key("locale")
            writer.string(settings.locale)
            writer.key("email")
            writer.string(settings.email)
            writer.key("opted_out")
            writer.bool(settings.isOptedOut)
            writer.key("quiet_hours")
            guard let quietHours = settings.quietHours else { return writer.null() }
            writer.beginObject()
            writer.key("start")
            writer.string(Self.clock(quietHours.start))
            writer.key("end")
            writer.string(Self.clock(quietHours.end))
            writer.key("weekdays")
            writer.beginArray()
            for day in 1...7 where quietHours.weekdays & 1 << UInt8(day - 1) != 0 { writer.integer(day) }
            writer.endArray()
            writer.endObject()
        }
    }
}
