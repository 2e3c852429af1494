// Carillon · RecipientLocaleTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Testing

@Suite(.timeLimit(.minutes(10)))
struct RecipientLocaleTests {
    @Test("finds a user's locale in the settings or the device used last")
    func locales() async throws {
        try await Samples.withStores { pool in
            let devices = Database(pool).devices
            for (second, locale) in [(1, "fr"), (3, "de-CH"), (2, "it"), (4, nil)] {
                var device = Samples.device(user: "devices", token: "t\(second)", at: Int64(second))
                device.locale = locale
                _ = try await devices.register(device)
            }
            var device = Samples.device(user: "both", token: "b")
            device.locale = "fr"
            _ = try await devices.register(device)
            var settings = UserSettings()
            settings.locale = "pt-BR"
            try await Database(pool).preferences.set(user: "both", settings: settings)
            try await Database(pool).preferences.set(user: "both", preferences: ["x": TypePreference(push: false)])
            let asked = [
                ("none", true), ("devices", true), ("both", true), ("both", false), ("devices", false),
            ]
            let wishes = try await Database(pool).recipients.wishes(
                asked.map { RecipientStore.Key(user: $0.0, type: "x", category: nil, needsLocale: $0.1) })
            #expect(wishes.map(\.settings.locale) == [nil, "de-CH", "pt-BR", "pt-BR", nil])
            #expect(wishes.map(\.preference.push) == [nil, nil, false, false, nil])
        }
    }
}
