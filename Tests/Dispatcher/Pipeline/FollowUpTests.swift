// Carillon · FollowUpTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Pipeline
@testable import Storage

/// Postponed notifications whose user changes the quiet hours.
@Suite(.timeLimit(.minutes(10)))
struct PostponementTests {
    @Test(
        "brings a follow-up forward whose quiet hours have changed",
        arguments: [false, true])
    func changed(isOverride: Bool) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let pool = database.pool
                let dispatcher = try TestDispatcher.make(
                    pool, redis, Keyspace(prefix: prefix), [NotificationType(name: "news")])
                var settings = UserSettings()
                // Quiet all day except for a minute, which differs in Kolkata.
                settings.zone = "Pacific/Honolulu"
                settings.quietHours = QuietHours(start: 1, end: 0)
                var due: [Timestamp] = []
                let notifications = try ["steady", "moved"].enumerated().map { number, user in
                    let notification = Self.notification(number, user: user)
                    var preferences = RecipientStore.Preferences()
                    preferences.settings = settings
                    let end = dispatcher.releaseMoment(
                        of: notification, preferences: preferences, now: TestDispatcher.now)
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
                try await dispatcher.postpone(
                    zip(notifications, due).map {
                        Postponement(
                            notification: $0, kind: .release, due: $1, reason: Reason.quietHours.rawValue)
                    })
                let taken = try await dispatcher.database.followUps.take(
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

@Suite("Follow-ups of a disabled type", .timeLimit(.minutes(10)))
struct DisabledTypeTests {
    @Test(
        "end without a delivery when the type was disabled while they waited",
        arguments: [
            (FollowUp.release, Channels.inApp.union(.push), NotificationStatus.sent),
            (.release, .push, .suppressed), (.email, .email, .suppressed),
        ])
    func disabled(kind: FollowUp, channels: Channels, status: NotificationStatus) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                var type = NotificationType(name: "news")
                type.isEnabled = false
                type.isRequired = true
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, [type])
                var notification = Notification(
                    id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001), user: "ada",
                    type: "news", createdAt: TestDispatcher.now)
                notification.channels = channels
                let store = dispatcher.database.notifications
                _ = try await store.store([notification], areRepeats: false)
                let due = TestDispatcher.now + .seconds(-1)
                try await dispatcher.postpone([
                    Postponement(notification: notification, kind: kind, due: due, reason: "delay")
                ])
                #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
                let stored = try await store.load([("ada", notification.id)])
                #expect(stored.map(\.status) == [status])
                #expect(stored.map(\.statusReason) == ["type_disabled"])
                #expect(try await redis.send("XLEN", .text(keys.deliveries(.email, .normal))).integer() == 0)
            }
        }
    }
}

@Suite("Delayed mail", .timeLimit(.minutes(10)))
struct DelayedMailTests {
    @Test(
        "ends a queued notification whose push was dropped when it does not go out, with an event",
        arguments: [("opted_out", NotificationStatus.suppressed), ("no_provider", .failed)])
    func unsent(reason: String, status: NotificationStatus) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, keys, [NotificationType(name: "news")], eventsLength: 100)
                var notification = Notification(
                    id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001), user: "ada",
                    type: "news", createdAt: TestDispatcher.now)
                notification.channels = [.push, .email]
                let store = dispatcher.database.notifications
                _ = try await store.store([notification], areRepeats: false)
                try await store.mark([("ada", notification.id, .pending, "queued", nil)])
                try await dispatcher.database.preferences.set(
                    user: "ada", preferences: ["news": TypePreference(email: reason != "opted_out")])
                let due = TestDispatcher.now + .seconds(-1)
                try await dispatcher.postpone([
                    Postponement(notification: notification, kind: .email, due: due, reason: "delay")
                ])
                #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
                let stored = try await store.load([("ada", notification.id)])
                #expect(stored.map(\.status) == [status])
                #expect(stored.map(\.statusReason) == [reason])
                #expect(try await redis.send("XLEN", .text(keys.events)).integer() == 1)
            }
        }
    }
}

@Suite("Late mail", .timeLimit(.minutes(10)))
struct LateMailTests {
    @Test("is recorded as skipped when the notification in the inbox has expired before it was due")
    func expired() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(prefix: prefix), [NotificationType(name: "news")])
                var notification = Notification(
                    id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001), user: "ada",
                    type: "news", createdAt: TestDispatcher.now)
                notification.channels = [.inApp, .email]
                notification.expiresAt = TestDispatcher.now
                let store = dispatcher.database.notifications
                _ = try await store.store([notification], areRepeats: false)
                try await store.mark([("ada", notification.id, .sent, "offline", "inbox")])
                let due = TestDispatcher.now + .seconds(-1)
                try await dispatcher.postpone([
                    Postponement(notification: notification, kind: .email, due: due, reason: "unread")
                ])
                #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
                let record = try #require(
                    try await dispatcher.database.traces.record(notification.id, user: "ada"))
                let attempts = record.attempts.map { "\($0.kind) \($0.outcome) \($0.reason ?? "")" }
                #expect(attempts == ["email skipped expired"])
                #expect(record.notification.status == .sent)
                #expect(record.followUps.isEmpty)
            }
        }
    }

    @Test("ends a notification outside the inbox that is no longer kept")
    func kept() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(prefix: prefix), [NotificationType(name: "news")])
                var notification = Notification(
                    id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001), user: "ada",
                    type: "news", createdAt: TestDispatcher.now)
                notification.channels = [.email]
                notification.keepUntil = TestDispatcher.now
                let store = dispatcher.database.notifications
                _ = try await store.store([notification], areRepeats: false)
                try await store.mark([("ada", notification.id, .pending, "unread", nil)])
                try await dispatcher.database.preferences.set(
                    user: "ada", preferences: ["news": TypePreference(email: true)])
                let due = TestDispatcher.now + .seconds(-1)
                try await dispatcher.postpone([
                    Postponement(notification: notification, kind: .email, due: due, reason: "unread")
                ])
                #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
                let stored = try await store.load([("ada", notification.id)])
                #expect(stored.map { "\($0.status) \($0.statusReason ?? "")" } == ["expired expired"])
            }
        }
    }
}

@Suite("Releases of a dispatcher that died", .timeLimit(.minutes(10)))
struct RetakenReleaseTests {
    @Test(
        "are enqueued again after the user has read the notification or it has expired, so that the sender ends it",
        arguments: ["read_at", "expires_at"])
    func ended(column: String) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, keys, [NotificationType(name: "news")], Silent())
                _ = try await dispatcher.database.devices.register(
                    Device(
                        id: NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0003), user: "ada",
                        platform: .android, provider: .fcm, app: "default", environment: .production,
                        token: "phone", registeredAt: TestDispatcher.now))
                var notification = Notification(
                    id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001), user: "ada",
                    type: "news", createdAt: TestDispatcher.now)
                notification.channels = [.inApp, .push]
                let store = dispatcher.database.notifications
                _ = try await store.store([notification], areRepeats: false)
                let due = TestDispatcher.now + .seconds(-1)
                try await dispatcher.postpone([
                    Postponement(notification: notification, kind: .release, due: due, reason: "delay")
                ])
                // It died before the push was in its stream.
                try await store.mark([("ada", notification.id, .pending, "queued", nil)], areReleases: true)
                let past = PostgresValue.timestamptz(TestDispatcher.now.microseconds)
                try await database.pool.query("UPDATE carillon.notifications SET \(column) = $1", past)
                #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
                let stream = RedisArgument.text(keys.deliveries(.fcm, .normal))
                #expect(try await redis.send("XLEN", stream).integer() == 1)
                let status = try await database.pool.query("SELECT status FROM carillon.notifications")
                #expect(try status.map { try $0.text(0) } == ["pending"])
            }
        }
    }
}

@Suite("The words of summaries", .timeLimit(.minutes(10)))
struct SummaryTextTests {
    private static func catalog(_ body: String) throws -> Catalog {
        try CatalogParser.parse([
            (
                "c.yaml",
                """
                types:
                  reply:
                    digest: {window: 1h}
                    summary:
                      en: {title: "{{count}} replies", body: "\(body)"}
                """
            )
        ])
    }

    /// Three lines; the second has no data.
    private static let lines = (1...3).map { number in
        DigestStore.Line(
            id: NotificationID(high: 1, low: UInt64(number)), title: "t\(number)", body: "b\(number)",
            data: number == 2 ? nil : Array(#"{"post":"p\#(number)"}"#.utf8))
    }

    private static func text(_ body: String) throws -> SummaryText {
        SummaryText(count: 3, lines: Self.lines, type: "reply", catalog: try self.catalog(body), locale: nil)
    }

    @Test("renders variables that every item has")
    func complete() throws {
        let text = try Self.text("{{#items}}{{title}};{{/items}}")
        #expect(text.title == "3 replies")
        #expect(text.body == "t1;t2;t3;")
        #expect(text.fault == nil)
    }

    @Test("leaves out an item that lacks a variable, and reports it")
    func incomplete() throws {
        let text = try Self.text("{{#items}}{{data.post}};{{/items}}")
        #expect(text.title == "3 replies")
        #expect(text.body == "p1;p3;")
        #expect(text.fault?.field.contains("data.post") == true)
    }

    @Test(
        "uses plain text when no item has a variable",
        arguments: ["{{#items}}{{data.none}}{{/items}}", "{{total}}"])
    func plain(body: String) throws {
        let text = try Self.text(body)
        #expect(text.title == "3 notifications")
        #expect(text.body == "t1\nt2\nt3")
        #expect(text.fault != nil)
    }
}
