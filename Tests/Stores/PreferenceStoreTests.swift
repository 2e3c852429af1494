// Carillon · PreferenceStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Postgres
import Stores
import Testing

@Suite(.timeLimit(.minutes(2)))
struct PreferenceStoreTests {
    @Test("what is kept stays, what is not is replaced")
    func keeping() async throws {
        try await Samples.withStores { pool in
            let store = PreferenceStore(pool: pool)
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

    @Test("e-mail switched off as a whole is a wish of every type")
    func emailOptOut() async throws {
        try await Samples.withStores { pool in
            var settings = UserSettings()
            settings.isEmailOptedOut = true
            try await PreferenceStore(pool: pool).set(user: "a", settings: settings)
            let wishes = try await RecipientStore(pool: pool).wishes([("a", "x", false), ("b", "x", false)])
            #expect(wishes.map(\.preference.email) == [false, nil])
            #expect(wishes.map(\.isOptedOut) == [false, false])
            let batch = [Samples.notification(0, user: "a")]
            #expect(try await NotificationStore(pool: pool).storeUnlessWished(batch, areRepeats: false) == nil)
        }
    }
}
