// Carillon · PreferenceStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Testing

@Suite(.timeLimit(.minutes(10)))
struct PreferenceStoreTests {
    @Test("what is kept stays, what is not is replaced")
    func keeping() async throws {
        try await Samples.withStores { pool in
            let store = Database(pool).preferences
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

    @Test("days of quiet hours can be kept, where there are any before and after")
    func weekdays() async throws {
        try await Samples.withStores { (pool) async throws in
            let store = Database(pool).preferences
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
            // Those of hours that are no more are gone with them.
            #expect(try await set(second, keeping: [.weekdays]) == second)
        }
    }

    @Test("quiet hours that are switched off do not hold, and come back as they were")
    func paused() async throws {
        try await Samples.withStores { (pool) async throws in
            let store = Database(pool).preferences
            let hours = QuietHours(start: 60, end: 120, weekdays: 3)
            func holds() async throws -> QuietHours? {
                try await Database(pool).recipients.wishes([.init(user: "a", type: "x", category: nil)]).first?
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
            // A change without quiet hours leaves them as they are.
            let kept = try await store.set(user: "a", settings: UserSettings(), keeping: [.quietHours])
            #expect(kept.pausedQuietHours == hours)
            #expect(try await store.set(user: "a", settings: UserSettings()) == UserSettings())
        }
    }

    @Test("opting in takes back the opt-out alone")
    func optingIn() async throws {
        try await Samples.withStores { pool in
            let store = Database(pool).preferences
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

    @Test("channels of which nothing is said are as by default, or stay as they are if that is wanted")
    func unsaid() async throws {
        try await Samples.withStores { pool in
            let store = Database(pool).preferences
            func wish() async throws -> TypePreference? { try await store.preferences(user: "a")["x"] }
            try await store.set(user: "a", preferences: ["x": TypePreference(push: false)], keepsUnsaid: true)
            #expect(try await wish() == TypePreference(push: false))
            try await store.set(
                user: "a", preferences: ["x": TypePreference(inApp: true, email: false)], keepsUnsaid: true)
            #expect(try await wish() == TypePreference(inApp: true, push: false, email: false))
            try await store.set(
                user: "a", preferences: ["x": TypePreference(inApp: false, push: true)], keepsUnsaid: true)
            #expect(try await wish() == TypePreference(inApp: false, push: true, email: false))
            try await store.set(user: "a", preferences: ["x": TypePreference(email: true)])
            #expect(try await wish() == TypePreference(email: true))
        }
    }

    @Test("what only repeats the word for a category is not stored for the type, where that has none of its own")
    func repeated() async throws {
        try await Samples.withStores { pool in
            let store = Database(pool).preferences
            let category = PreferenceKey.category("c")
            func say(_ type: String, _ wish: TypePreference) async throws -> TypePreference? {
                try await store.set(
                    user: "a", preferences: [type: wish], keepsUnsaid: true, categories: ["x": "c", "y": "c"])
                return try await store.preferences(user: "a")[type]
            }
            try await store.set(
                user: "a",
                preferences: [category: TypePreference(inApp: true, push: false), "y": TypePreference(push: true)])
            let all = TypePreference(inApp: true, push: false, email: false)
            // A first word, one more, and one that changes what the category says.
            #expect(try await say("x", all) == TypePreference(email: false))
            #expect(try await say("x", all) == TypePreference(email: false))
            #expect(try await say("x", TypePreference(push: true)) == TypePreference(push: true, email: false))
            #expect(try await say("x", TypePreference(push: false)) == TypePreference(push: false, email: false))
            // Own words change whatever the category says, and those of types of other categories do not know of it.
            #expect(try await say("y", all) == TypePreference(push: false, email: false))
            #expect(try await say("z", all) == all)
            #expect(try await store.preferences(user: "a")[category] == TypePreference(inApp: true, push: false))
        }
    }

    @Test("e-mail switched off as a whole is a wish of every type")
    func emailOptOut() async throws {
        try await Samples.withStores { pool in
            var settings = UserSettings()
            settings.isEmailOptedOut = true
            try await Database(pool).preferences.set(user: "a", settings: settings)
            let wishes = try await Database(pool).recipients.wishes(
                ["a", "b"].map { RecipientStore.Key(user: $0, type: "x", category: nil) })
            #expect(wishes.map(\.preference.email) == [false, nil])
            #expect(wishes.map(\.settings.isOptedOut) == [false, false])
            let batch = [Samples.notification(0, user: "a")]
            #expect(try await Database(pool).notifications.storeUnlessWished(batch, areRepeats: false) == nil)
        }
    }

    @Test("a type's wish decides first, then its category's; a type may have quiet hours of its own")
    func categories() async throws {
        try await Samples.withStores { pool in
            let store = Database(pool).preferences
            let hours = QuietHours(start: 60, end: 120, weekdays: 3)
            try await store.set(
                user: "a",
                preferences: [
                    "x": TypePreference(push: true, quietHours: .hours(hours)),
                    PreferenceKey.category("c"): TypePreference(push: false, email: false),
                ])
            func wish(_ type: String) async throws -> TypePreference? {
                try await Database(pool).recipients
                    .wishes([RecipientStore.Key(user: "a", type: type, category: "c")]).first?.preference
            }
            #expect(try await wish("x") == TypePreference(push: true, email: false, quietHours: .hours(hours)))
            #expect(try await wish("y") == TypePreference(push: false, email: false))
            // What is not said of quiet hours stays; null gives them back to the user's.
            try await store.set(user: "a", preferences: ["x": TypePreference(push: false)])
            #expect(try await wish("x")?.quietHours == .hours(hours))
            try await store.set(user: "a", preferences: ["x": TypePreference(quietHours: QuietOverride.none)])
            #expect(try await wish("x")?.quietHours == QuietOverride.none)
            try await store.set(user: "a", preferences: ["x": TypePreference(quietHours: .inherited)])
            #expect(try await wish("x")?.quietHours == nil)
            let batch = [Samples.notification(0, user: "a") { $0.type = "z" }]
            #expect(try await Database(pool).notifications.storeUnlessWished(batch, areRepeats: false) == nil)
        }
    }
}
