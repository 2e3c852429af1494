// Carillon · PreferenceStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Testing

@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct PreferenceStoreTests {
    @Test("keeps the chosen settings and replaces the others")
    func keeping() async throws {
        try await Samples.withStores { database in
            let store = database.preferences
            var settings = UserSettings()
            settings.zone = "Europe/Zurich"
            settings.isEmailOptedOut = true
            settings.quietHours = QuietHours(start: 60, end: 120, weekdays: 3)
            #expect(try await store.set(user: "a", settings: settings) == settings)
            let kept = try await store.set(user: "a", settings: UserSettings(), keeping: [.quietHours, .emailOptOut])
            #expect(kept.zone == nil)
            #expect(kept.isEmailOptedOut)
            #expect(kept.quietHours == settings.quietHours)
            #expect(try await store.settings(user: "a") == kept)
            #expect(try await store.set(user: "a", settings: UserSettings()) == UserSettings())
        }
    }

    @Test("keeps each part of the settings on its own")
    func keepingParts() async throws {
        try await Samples.withStores { (database) async throws in
            let store = database.preferences
            var settings = UserSettings()
            settings.zone = "Europe/Zurich"
            settings.locale = "de-CH"
            settings.email = "a@example.com"
            settings.isOptedOut = true
            settings.isEmailOptedOut = true
            settings.quietHours = QuietHours(start: 60, end: 120, weekdays: 3)
            let parts: [(KeptSettings, (inout UserSettings) -> Void)] = [
                (.zone, { $0.zone = "Europe/Zurich" }), (.locale, { $0.locale = "de-CH" }),
                (.email, { $0.email = "a@example.com" }), (.optOut, { $0.isOptedOut = true }),
                (.emailOptOut, { $0.isEmailOptedOut = true }),
                (.quietHours, { $0.quietHours = QuietHours(start: 60, end: 120, weekdays: 3) }),
            ]
            for (part, assign) in parts {
                try await store.set(user: "a", settings: settings)
                var alone = UserSettings()
                assign(&alone)
                #expect(try await store.set(user: "a", settings: UserSettings(), keeping: part) == alone)
                #expect(try await store.settings(user: "a") == alone)
            }
        }
    }

    @Test("decides again about what waits for the end of quiet hours only if a change may concern it")
    func reconsidering() async throws {
        try await Samples.withStores { database in
            let notification = Samples.notification(1, user: "a")
            _ = try await database.notifications.store([notification], areRepeats: false)
            let item = FollowUpStore.Item(user: "a", notification: notification.id, kind: .release)
            let end = Timestamp(seconds: 4_000_000_000)
            func isDue(after change: () async throws -> Void) async throws -> Bool {
                try await database.followUps.postpone([(item, end, "quiet_hours")], now: Samples.start)
                try await change()
                return try await database.pool.query(
                    "SELECT FROM carillon.follow_ups WHERE due_at = $1", .timestamp(end)
                ).isEmpty
            }
            let all: KeptSettings = [.general, .quietHours, .emailOptOut]
            var optOut = UserSettings()
            optOut.isOptedOut = true
            let parts: [(KeptSettings, UserSettings, concerns: Bool)] = [
                (.locale, UserSettings(), false), (.email, UserSettings(), false),
                (.emailOptOut, UserSettings(), false), (.zone, UserSettings(), true), (.optOut, optOut, true),
                (.optOut, UserSettings(), false), (.quietHours, UserSettings(), true),
            ]
            for (part, settings, concerns) in parts {
                let kept = all.subtracting(part)
                let changed = try await isDue {
                    try await database.preferences.set(user: "a", settings: settings, keeping: kept)
                }
                #expect(changed == concerns, "\(part)")
                var record = UserRecord(user: "a")
                record.settings = settings
                record.keptSettings = kept
                record.preferences = ["x": TypePreference(push: false)]
                #expect(try await isDue { _ = try await database.users.put([record]) } == concerns, "\(part)")
            }
            let hours = TypePreference(quietHours: QuietOverride.none)
            for (preference, concerns) in [(TypePreference(push: true), false), (hours, true)] {
                let changed = try await isDue {
                    try await database.preferences.set(user: "a", preferences: ["x": preference])
                }
                #expect(changed == concerns)
            }
        }
    }

    @Test("keeps the weekdays of quiet hours when there were and are quiet hours")
    func weekdays() async throws {
        try await Samples.withStores { (database) async throws in
            let store = database.preferences
            func set(_ hours: QuietHours?, keeping kept: KeptSettings) async throws -> QuietHours? {
                var settings = UserSettings()
                settings.quietHours = hours
                return try await store.set(user: "a", settings: settings, keeping: kept).quietHours
            }
            let first = QuietHours(start: 60, end: 120, weekdays: 3)
            #expect(try await set(first, keeping: [.weekdays]) == first)
            let second = QuietHours(start: 90, end: 150)
            #expect(try await set(second, keeping: [.weekdays]) == QuietHours(start: 90, end: 150, weekdays: 3))
            #expect(try await set(second, keeping: []) == second)
            #expect(try await set(first, keeping: []) == first)
            #expect(try await set(nil, keeping: [.weekdays]) == nil)
            // Weekdays are removed together with their quiet hours.
            #expect(try await set(second, keeping: [.weekdays]) == second)
        }
    }

    @Test("switches quiet hours off and restores them")
    func paused() async throws {
        try await Samples.withStores { (database) async throws in
            let store = database.preferences
            let hours = QuietHours(start: 60, end: 120, weekdays: 3)
            func holds() async throws -> QuietHours? {
                try await database.recipients.preferences([.init(user: "a", type: "x", category: nil)]).first?
                    .settings.quietHours
            }
            #expect(try await store.switchQuietHours(user: "a", isOn: true) == UserSettings())
            var settings = UserSettings()
            settings.pausedQuietHours = hours
            #expect(try await store.set(user: "a", settings: settings) == settings)
            #expect(try await holds() == nil)
            #expect(try await store.switchQuietHours(user: "a", isOn: true).quietHours == hours)
            #expect(try await holds() == hours)
            #expect(try await store.switchQuietHours(user: "a", isOn: false).pausedQuietHours == hours)
            #expect(try await holds() == nil)
            // A change without quiet hours keeps them.
            let kept = try await store.set(user: "a", settings: UserSettings(), keeping: [.quietHours])
            #expect(kept.pausedQuietHours == hours)
            #expect(try await store.set(user: "a", settings: UserSettings()) == UserSettings())
        }
    }

    @Test("opting in only removes the opt-out")
    func optingIn() async throws {
        try await Samples.withStores { database in
            let store = database.preferences
            var settings = UserSettings()
            settings.isOptedOut = true
            settings.zone = "Europe/Zurich"
            try await store.set(user: "a", settings: settings)
            try await store.set(user: "b", settings: settings)
            try await store.optIn(user: "a")
            settings.isOptedOut = false
            #expect(try await store.settings(user: "a") == settings)
            #expect(try await store.settings(user: "b").isOptedOut)
        }
    }

    @Test("stops e-mail again without a write", arguments: ["x", nil])
    func stoppedAgain(type: String?) async throws {
        try await Samples.withStores { database in
            let store = database.preferences
            _ = try await database.users.put([UserRecord(user: "a")])
            let table = type == nil ? "user_settings" : "preferences"
            func version() async throws -> String? {
                try await database.pool.query("SELECT xmin::text FROM carillon.\(table)").first?.text(0)
            }
            try await store.stopEmail(user: "a", type: type)
            let first = try #require(try await version())
            try await store.stopEmail(user: "a", type: type)
            let second = try await version()
            #expect(second == first)
            // The user has switched e-mail on since.
            try await store.set(user: "a", settings: UserSettings())
            try await store.set(user: "a", preferences: ["x": TypePreference(email: true)])
            try await store.stopEmail(user: "a", type: type)
            let isStopped = try await store.settings(user: "a").isEmailOptedOut
            #expect(isStopped == (type == nil))
            let preference = try await store.preferences(user: "a")["x"]
            #expect(preference == TypePreference(email: type == nil))
        }
    }

    @Test("sets the same preferences again without a write")
    func setAgain() async throws {
        try await Samples.withStores { database in
            let store = database.preferences
            let hours = QuietOverride.hours(QuietHours(start: 60, end: 120, weekdays: 3))
            let (some, none) = (
                TypePreference(inApp: true, push: false, quietHours: hours),
                TypePreference(email: true, quietHours: QuietOverride.none)
            )
            func versions() async throws -> [String] {
                try await database.pool.query("SELECT xmin::text FROM carillon.preferences ORDER BY type")
                    .map { row in try row.text(0) }
            }
            try await store.set(user: "a", preferences: ["x": some, "y": none])
            let first = try await versions()
            try #require(first.count == 2)
            try await store.set(user: "a", preferences: ["x": some, "y": none])
            #expect(try await versions() == first)
            try await store.set(user: "a", preferences: ["x": TypePreference(push: false), "y": TypePreference()])
            #expect(try await versions() == first)
            try await store.set(user: "a", preferences: ["x": some, "y": TypePreference(email: false)])
            let changed = try await versions()
            #expect(changed[0] == first[0] && changed[1] != first[1])
            #expect(
                try await store.preferences(user: "a")
                    == ["x": some, "y": TypePreference(email: false, quietHours: QuietOverride.none)])
        }
    }

    @Test("keeps channels that are not named, and returns cleared ones to their default")
    func unsaid() async throws {
        try await Samples.withStores { database in
            let store = database.preferences
            func preference() async throws -> TypePreference? { try await store.preferences(user: "a")["x"] }
            try await store.set(user: "a", preferences: ["x": TypePreference(push: false)])
            #expect(try await preference() == TypePreference(push: false))
            try await store.set(user: "a", preferences: ["x": TypePreference(inApp: true, email: false)])
            #expect(try await preference() == TypePreference(inApp: true, push: false, email: false))
            try await store.set(user: "a", preferences: ["x": TypePreference(inApp: false, push: true)])
            #expect(try await preference() == TypePreference(inApp: false, push: true, email: false))
            var cleared = TypePreference(email: true)
            cleared.cleared = [.inApp, .push]
            try await store.set(user: "a", preferences: ["x": cleared])
            #expect(try await preference() == TypePreference(email: true))
        }
    }

    @Test("does not store a type's preference that repeats its category's")
    func repeated() async throws {
        try await Samples.withStores { database in
            let store = database.preferences
            let category = PreferenceKey.category("c")
            func say(_ type: String, _ preference: TypePreference) async throws -> TypePreference? {
                try await store.set(
                    user: "a", preferences: [type: preference], categories: ["x": "c", "y": "c"])
                return try await store.preferences(user: "a")[type]
            }
            try await store.set(
                user: "a",
                preferences: [category: TypePreference(inApp: true, push: false), "y": TypePreference(push: true)])
            let all = TypePreference(inApp: true, push: false, email: false)
            // A first preference, a second one, and one that differs from the category's.
            #expect(try await say("x", all) == TypePreference(email: false))
            #expect(try await say("x", all) == TypePreference(email: false))
            #expect(try await say("x", TypePreference(push: true)) == TypePreference(push: true, email: false))
            #expect(try await say("x", TypePreference(push: false)) == TypePreference(push: false, email: false))
            // A type with a preference ignores its category; types of other categories are not
            // affected.
            #expect(try await say("y", all) == TypePreference(push: false, email: false))
            #expect(try await say("z", all) == all)
            #expect(try await store.preferences(user: "a")[category] == TypePreference(inApp: true, push: false))
        }
    }

    @Test("applies the e-mail switch to every type")
    func emailOptOut() async throws {
        try await Samples.withStores { database in
            var settings = UserSettings()
            settings.isEmailOptedOut = true
            try await database.preferences.set(user: "a", settings: settings)
            let preferences = try await database.recipients.preferences(
                ["a", "b"].map { RecipientStore.Key(user: $0, type: "x", category: nil) })
            #expect(preferences.map(\.preference.email) == [false, nil])
            #expect(preferences.map(\.settings.isOptedOut) == [false, false])
        }
    }

    @Test("prefers the preference of a type over its category's, including quiet hours")
    func categories() async throws {
        try await Samples.withStores { database in
            let store = database.preferences
            let hours = QuietHours(start: 60, end: 120, weekdays: 3)
            try await store.set(
                user: "a",
                preferences: [
                    "x": TypePreference(push: true, quietHours: .hours(hours)),
                    PreferenceKey.category("c"): TypePreference(push: false, email: false),
                ])
            func preference(_ type: String) async throws -> TypePreference? {
                try await database.recipients
                    .preferences([RecipientStore.Key(user: "a", type: type, category: "c")]).first?.preference
            }
            #expect(try await preference("x") == TypePreference(push: true, email: false, quietHours: .hours(hours)))
            #expect(try await preference("y") == TypePreference(push: false, email: false))
            // Fields of quiet hours that are not given stay; null restores the user's quiet hours.
            try await store.set(user: "a", preferences: ["x": TypePreference(push: false)])
            #expect(try await preference("x")?.quietHours == .hours(hours))
            try await store.set(user: "a", preferences: ["x": TypePreference(quietHours: QuietOverride.none)])
            #expect(try await preference("x")?.quietHours == QuietOverride.none)
            try await store.set(user: "a", preferences: ["x": TypePreference(quietHours: .inherited)])
            #expect(try await preference("x")?.quietHours == nil)
        }
    }
}
