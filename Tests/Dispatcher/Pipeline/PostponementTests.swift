// Carillon · PostponementTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Support
import Testing

@testable import Pipeline

/// Postponed notifications whose user changes the quiet hours.
@Suite(.timeLimit(.minutes(10)))
struct PostponementTests {
    @Test(
        "decides again at once when quiet hours change; other postponements wait",
        arguments: [false, true])
    func changed(isOverride: Bool) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let pool = database.pool
                let dispatcher = try TestDispatcher.make(
                    pool, redis, Keyspace(prefix: prefix), [NotificationType(name: "news")])
                var settings = UserSettings()
                // Quiet all day except for one minute, which comes at another moment in Kolkata.
                settings.zone = "Pacific/Honolulu"
                settings.quietHours = QuietHours(start: 1, end: 0)
                var due: [Timestamp] = []
                let notifications = try ["steady", "moved"].enumerated().map { number, user in
                    let notification = Self.notification(number, user: user)
                    var wishes = RecipientStore.Wishes()
                    wishes.settings = settings
                    let end = dispatcher.releaseMoment(of: notification, wishes: wishes, now: TestDispatcher.now)
                    due.append(try #require(end))
                    return notification
                }
                let store = Database(pool).preferences
                try await store.set(user: "steady", settings: settings)
                if isOverride {
                    var preference = TypePreference()
                    preference.quietHours = QuietOverride.none
                    try await store.set(user: "moved", settings: settings)
                    try await store.set(user: "moved", preferences: ["news": preference])
                } else {
                    settings.zone = "Asia/Kolkata"
                    try await store.set(user: "moved", settings: settings)
                }
                try await dispatcher.putOff(
                    zip(notifications, due).map {
                        Postponement(
                            notification: $0, kind: .release, due: $1, reason: Reason.quietHours.rawValue)
                    })
                let taken = try await dispatcher.followUps.take(
                    now: TestDispatcher.now, until: TestDispatcher.now + .seconds(30), limit: 10)
                #expect(taken.map(\.item.user) == ["moved"])
            }
        }
    }

    private static func notification(_ number: Int, user: String) -> Notification {
        Notification(
            id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + UInt64(number)),
            user: user, type: "news", createdAt: TestDispatcher.now)
    }
}
