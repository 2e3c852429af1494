// Carillon · FollowUpTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import FoundationEssentials
import Operations
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
        try await TestDispatcher.with { dispatcher, database in
            let pool = database.pool
            var settings = UserSettings()
            // Quiet all day except for a minute, which differs in Kolkata.
            settings.zone = "Pacific/Honolulu"
            settings.quietHours = QuietHours(start: 1, end: 0)
            var due: [Timestamp] = []
            let notifications = try ["steady", "moved"].enumerated().map { number, user in
                let notification = TestDispatcher.notification(UInt64(number), of: user)
                var preferences = RecipientStore.Preferences()
                preferences.settings = settings
                let end = dispatcher.releaseMoment(
                    of: notification, preferences: preferences, now: TestDispatcher.now)
                due.append(try #require(end))
                return notification
            }
            _ = try await dispatcher.database.notifications.store(notifications, areRepeats: false)
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
            let taken = try await dispatcher.database.followUps.claim(
                now: TestDispatcher.now, until: TestDispatcher.now + .seconds(30), limit: 10)
            #expect(taken.map(\.item.user) == ["moved"])
        }
    }

    @Test("records a postponement once, however often it is decided again, until its end changes")
    func again() async throws {
        try await TestDispatcher.with(FakeChannel(), eventsLength: 100) { dispatcher, database in
            _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
            var preferences = RecipientStore.Preferences()
            // Quiet all day except for a minute, which differs in Kolkata.
            preferences.settings.zone = "Pacific/Honolulu"
            preferences.settings.quietHours = QuietHours(start: 1, end: 0)
            var settings = preferences.settings
            try await dispatcher.database.preferences.set(user: "ada", settings: settings)
            let notification = TestDispatcher.notification(channels: [.inApp, .push])
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            let due = try #require(
                dispatcher.releaseMoment(of: notification, preferences: preferences, now: TestDispatcher.now))
            try await dispatcher.postpone([
                Postponement(
                    notification: notification, kind: .release, due: due, reason: Reason.quietHours.rawValue)
            ])
            func decideAgain(_ settings: UserSettings) async throws -> [Int64] {
                try await dispatcher.database.preferences.set(user: "ada", settings: settings)
                try await dispatcher.database.followUps.reconsiderReleases(now: TestDispatcher.now, over: .zero)
                #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
                let steps = try await database.pool.query(
                    "SELECT FROM carillon.delivery_attempts WHERE outcome = 'deferred'")
                let events = try await dispatcher.redis.send("XLEN", .text(dispatcher.keys.events)).integer()
                return [Int64(steps.count), events]
            }
            for _ in 1...2 { #expect(try await decideAgain(settings) == [1, 0]) }
            settings.zone = "Asia/Kolkata"
            #expect(try await decideAgain(settings) == [2, 1])
        }
    }

    @Test("says that no provider serves a device when the push goes out, not when quiet hours postpone it")
    func unserved() async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, database in
            let devices = dispatcher.database.devices
            _ = try await devices.register(TestDispatcher.phone())
            let browser = Device(
                id: NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0004), user: "ada",
                platform: .web, provider: .webpush, app: "default", environment: .production, token: "browser",
                registeredAt: TestDispatcher.now)
            _ = try await devices.register(browser)
            var settings = UserSettings()
            settings.quietHours = QuietHours(start: 1, end: 0)
            let preferences = dispatcher.database.preferences
            try await preferences.set(user: "ada", settings: settings)
            let notification = TestDispatcher.notification(channels: [.inApp, .push])
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            func skipped() async throws -> Int {
                try await database.pool.query(
                    "SELECT FROM carillon.delivery_attempts WHERE reason = 'no_provider'"
                ).count
            }
            try await Router(dispatcher: dispatcher).route([RoutedNotification(notification, .stored)])
            #expect(try await skipped() == 0)
            settings.quietHours = nil
            try await preferences.set(user: "ada", settings: settings)
            try await dispatcher.database.followUps.reconsiderReleases(now: TestDispatcher.now, over: .zero)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            #expect(try await skipped() == 1)
        }
    }

    @Test("reports devices that no provider serves in one event, and records each")
    func unservedDevices() async throws {
        try await TestDispatcher.with(eventsLength: 100) { dispatcher, database in
            for number in UInt64(1)...3 {
                let device = Device(
                    id: NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0000 + number),
                    user: "ada", platform: .android, provider: .fcm, app: "invented-\(number)",
                    environment: .production, token: "phone-\(number)", registeredAt: TestDispatcher.now)
                _ = try await dispatcher.database.devices.register(device)
            }
            let notification = TestDispatcher.notification(channels: [.inApp, .push])
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            try await Router(dispatcher: dispatcher).route([RoutedNotification(notification, .stored)])
            let skipped = try await database.pool.query(
                "SELECT FROM carillon.delivery_attempts WHERE reason = 'no_provider'")
            #expect(skipped.count == 3)
            let events = try await dispatcher.redis.entries(of: dispatcher.keys.events).compactMap { $0.texts["event"] }
            #expect(events.count { $0 == "failed" } == 1)
        }
    }

    @Test("says nothing of unserved devices when quiet hours hold a connected user's push back for good")
    func unservedAttention() async throws {
        var type = NotificationType(name: "news")
        type.quietHours = .inAppOnly
        try await TestDispatcher.with(FakeChannel(), types: [type]) { dispatcher, database in
            let browser = Device(
                id: NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0004), user: "ada",
                platform: .web, provider: .webpush, app: "default", environment: .production, token: "browser",
                registeredAt: TestDispatcher.now)
            for device in [TestDispatcher.phone(), browser] {
                _ = try await dispatcher.database.devices.register(device)
            }
            var settings = UserSettings()
            settings.quietHours = QuietHours(start: 1, end: 0)
            try await dispatcher.database.preferences.set(user: "ada", settings: settings)
            let notification = TestDispatcher.notification(channels: [.inApp, .push])
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone([
                Postponement(notification: notification, kind: .attention, due: due, reason: "idle")
            ])
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            let skipped = try await database.pool.query(
                "SELECT FROM carillon.delivery_attempts WHERE reason = 'no_provider'")
            #expect(skipped.isEmpty)
        }
    }

    @Test("pushes one by one what its type's shorter quiet hours release while the general ones hold summaries")
    func ownHours() async throws {
        let catalog = try CatalogParser.parse([
            ("c.yaml", "types: {news: {severity: info}}\ncaps: {user: {count: 6, per: 24h}}")
        ])
        try await TestDispatcher.with(FakeChannel(), catalog: catalog) { dispatcher, database in
            _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
            // It is 11:06 UTC.
            var settings = UserSettings()
            settings.quietHours = QuietHours(start: 1, end: 0)
            var preference = TypePreference()
            preference.quietHours = .hours(QuietHours(start: 1, end: 660))
            let preferences = dispatcher.database.preferences
            try await preferences.set(user: "ada", settings: settings)
            try await preferences.set(user: "ada", preferences: ["news": preference])
            let notifications = (1...6).map { TestDispatcher.notification(UInt64($0), channels: [.inApp, .push]) }
            _ = try await dispatcher.database.notifications.store(notifications, areRepeats: false)
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone(
                notifications.map { Postponement(notification: $0, kind: .release, due: due, reason: "delay") })
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 6)
            let stream = RedisArgument.text(dispatcher.keys.deliveries(.fcm, .normal))
            #expect(try await dispatcher.redis.send("XLEN", stream).integer() == 6)
            let summaries = try await database.pool.query("SELECT FROM carillon.notifications WHERE type = 'summary'")
            #expect(summaries.isEmpty)
        }
    }

    @Test("the summary after quiet hours has its type's sound, in the language of the device used last")
    func language() async throws {
        let catalog = try CatalogParser.parse([
            (
                "c.yaml",
                """
                types:
                  news: {severity: info}
                  summary:
                    delivery: push
                    sound: chime
                    summary:
                      en: {title: "{{count}} new"}
                      de: {title: "{{count}} neue"}
                """
            )
        ])
        try await TestDispatcher.with(FakeChannel(), catalog: catalog) { dispatcher, database in
            var phone = TestDispatcher.phone()
            phone.locale = "de-AT"
            _ = try await dispatcher.database.devices.register(phone)
            var settings = UserSettings()
            settings.quietHours = QuietHours(start: 1, end: 0)
            let preferences = dispatcher.database.preferences
            try await preferences.set(user: "ada", settings: settings)
            let notifications = (1...6).map { number in
                TestDispatcher.notification(UInt64(number), channels: [.inApp, .push])
            }
            _ = try await dispatcher.database.notifications.store(notifications, areRepeats: false)
            try await Router(dispatcher: dispatcher).route(notifications.map { RoutedNotification($0, .stored) })
            settings.quietHours = nil
            try await preferences.set(user: "ada", settings: settings)
            try await dispatcher.database.followUps.reconsiderReleases(now: TestDispatcher.now, over: .zero)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 6)
            let rows = try await database.pool.query(
                "SELECT title, extras ->> 'sound' FROM carillon.notifications WHERE type = 'summary'")
            #expect(try rows.map { [try $0.text(0), try $0.text(1)] } == [["6 neue", "chime"]])
        }
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
        var type = NotificationType(name: "news")
        type.isEnabled = false
        type.isRequired = true
        try await TestDispatcher.with(types: [type]) { dispatcher, _ in
            let keys = dispatcher.keys
            let notification = TestDispatcher.notification(channels: channels)
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone([
                Postponement(notification: notification, kind: kind, due: due, reason: "delay")
            ])
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            let stored = try await store.load([notification.key])
            #expect(stored.map(\.status) == [status])
            #expect(stored.map(\.statusReason) == ["type_disabled"])
            #expect(try await dispatcher.redis.send("XLEN", .text(keys.deliveries(.email, .normal))).integer() == 0)
        }
    }
}

@Suite("Delayed mail", .timeLimit(.minutes(10)))
struct DelayedMailTests {
    @Test(
        "ends a queued notification whose push was dropped when it does not go out, with an event",
        arguments: [("opted_out", NotificationStatus.suppressed), ("no_provider", .failed)])
    func unsent(reason: String, status: NotificationStatus) async throws {
        try await TestDispatcher.with(eventsLength: 100) { dispatcher, _ in
            let notification = TestDispatcher.notification(channels: [.push, .email])
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, "queued", nil)])
            try await dispatcher.database.preferences.set(
                user: "ada", preferences: ["news": TypePreference(email: reason != "opted_out")])
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone([
                Postponement(notification: notification, kind: .email, due: due, reason: "delay")
            ])
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            let stored = try await store.load([notification.key])
            #expect(stored.map(\.status) == [status])
            #expect(stored.map(\.statusReason) == [reason])
            #expect(try await dispatcher.redis.send("XLEN", .text(dispatcher.keys.events)).integer() == 1)
        }
    }
}

@Suite("Failed mail", .timeLimit(.minutes(10)))
struct FailedMailTests {
    @Test("fails a deferred notification outside the inbox that no device gets at its release")
    func released() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let notification = TestDispatcher.notification(channels: [.push, .email])
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone([
                Postponement(notification: notification, kind: .release, due: due, reason: "delay")
            ])
            var settlement = DeliveryStore.Settlement()
            settlement.failed = [(notification.key, "SMTP_550", false)]
            try await dispatcher.database.deliveries.settle(settlement)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            let stored = try await store.load([notification.key])
            #expect(stored.map { "\($0.status) \($0.statusReason ?? "")" } == ["failed no_device"])
        }
    }

    @Test("fails a deferred notification outside the inbox whose release and mail are due together but cannot go out")
    func together() async throws {
        try await TestDispatcher.with(FakeChannel(provider: .email)) { dispatcher, _ in
            try await dispatcher.database.preferences.set(
                user: "ada", preferences: ["news": TypePreference(email: true)])
            let notification = Self.notification
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone(
                [FollowUp.release, .email].map {
                    Postponement(notification: notification, kind: $0, due: due, reason: "delay")
                })
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 2)
            let record = try #require(try await dispatcher.database.traces.record(notification.id, user: "ada"))
            #expect(record.notification.status == .failed)
            #expect(record.notification.statusReason == "no_device")
            #expect(record.followUps.isEmpty)
        }
    }

    @Test(
        "ends a deferred notification outside the inbox as its mail ended when the gate refuses its release",
        arguments: [(true, "sent email"), (false, "suppressed")])
    func refused(wasMailed: Bool, state: String) async throws {
        try await TestDispatcher.with(eventsLength: 100) { dispatcher, database in
            try await dispatcher.database.preferences.set(
                user: "ada", preferences: ["news": TypePreference(push: false)])
            let notification = Self.notification
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone([
                Postponement(notification: notification, kind: .release, due: due, reason: "delay")
            ])
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: try await dispatcher.database.clock(), user: "ada", notification: notification.id,
                    device: Device.emailAddress, provider: .email, kind: "email", attempt: 1,
                    outcome: wasMailed ? .accepted : .failed)
            ]
            try await dispatcher.database.deliveries.settle(settlement)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            let states = try await database.pool.query(
                "SELECT concat_ws(' ', status, sent_via) FROM carillon.notifications")
            #expect(try states.map { try $0.text(0) } == [state])
            // An accepted mail has had its event.
            let events = try await dispatcher.redis.send("XLEN", .text(dispatcher.keys.events)).integer()
            #expect(events == (wasMailed ? 0 : 1))
        }
    }

    private static let notification = TestDispatcher.notification(channels: [.push, .email])
}

@Suite("Late mail", .timeLimit(.minutes(10)))
struct LateMailTests {
    @Test(
        "is recorded as skipped when the notification in the inbox has expired before it was due, or is not wanted",
        arguments: ["expired", "opted_out", "type_disabled"])
    func refused(reason: String) async throws {
        var type = NotificationType(name: "news")
        type.isEnabled = reason != "type_disabled"
        try await TestDispatcher.with(types: [type]) { dispatcher, _ in
            var notification = TestDispatcher.notification(channels: [.inApp, .email])
            if reason == "expired" { notification.expiresAt = TestDispatcher.now }
            try await dispatcher.database.preferences.set(
                user: "ada", preferences: ["news": TypePreference(email: reason != "opted_out")])
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .sent, "offline", "inbox")])
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone([
                Postponement(notification: notification, kind: .email, due: due, reason: "unread")
            ])
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            let record = try #require(
                try await dispatcher.database.traces.record(notification.id, user: "ada"))
            let attempts = record.attempts.map { "\($0.kind) \($0.outcome) \($0.reason ?? "")" }
            #expect(attempts == ["email skipped \(reason)"])
            #expect(record.notification.status == .sent)
            #expect(record.followUps.isEmpty)
        }
    }

    @Test("of a cancelled notification is no longer in flight once it is refused")
    func cancelled() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let notification = TestDispatcher.notification(channels: [.inApp, .email])
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .sent, "offline", "inbox")])
            try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, email) VALUES ('ada', 'ada@example.com')")
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone([
                Postponement(notification: notification, kind: .email, due: due, reason: "unread")
            ])
            func state() async throws -> [String] {
                try await database.pool.query(
                    "SELECT concat_ws(' ', status, status_reason) FROM carillon.notifications"
                ).map { try $0.text(0) }
            }
            _ = try await dispatcher.database.cancellations.cancel(
                [notification.key], at: TestDispatcher.now)
            #expect(try await state() == ["cancelled in_flight"])
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            #expect(try await state() == ["cancelled"])
        }
    }

    @Test(
        "ends a notification outside the inbox that is no longer kept, before or after retention removes it",
        arguments: [false, true])
    func kept(isRemoved: Bool) async throws {
        try await TestDispatcher.with { dispatcher, database in
            var notification = TestDispatcher.notification(channels: [.email])
            notification.keepUntil = TestDispatcher.now
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .pending, "unread", nil)])
            try await dispatcher.database.preferences.set(
                user: "ada", preferences: ["news": TypePreference(email: true)])
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone([
                Postponement(notification: notification, kind: .email, due: due, reason: "unread")
            ])
            if isRemoved {
                try await database.pool.query("UPDATE carillon.notifications SET deleted_at = keep_until")
            }
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            let stored = try await store.load([notification.key])
            #expect(stored.map { "\($0.status) \($0.statusReason ?? "")" } == ["expired expired"])
        }
    }
}

@Suite("Follow-ups of a type that only the new catalog files have", .timeLimit(.minutes(10)))
struct NewTypeTests {
    /// Runs `body` with a dispatcher whose catalog lacks the type, and a file that has it.
    private static func with(
        _ type: String,
        _ channel: FakeChannel,
        _ body: (Dispatcher, TestDatabase) async throws -> Void
    ) async throws {
        let folder = try TemporaryDirectory()
        let path = folder.file("catalog.yaml")
        try Data("types: {known: {}, news: \(type)}".utf8).write(to: URL(filePath: path))
        let known = [NotificationType(name: "known")]
        try await TestDispatcher.with(channel, types: known, catalogPath: path) { dispatcher, database in
            try await body(dispatcher, database)
        }
    }

    @Test("make the dispatcher read them: required mail goes out to a user who has opted out")
    func mail() async throws {
        try await Self.with("{required: true}", FakeChannel(provider: .email)) { dispatcher, _ in
            var settings = UserSettings()
            settings.email = "ada@example.com"
            settings.isOptedOut = true
            try await dispatcher.database.preferences.set(user: "ada", settings: settings)
            let notification = TestDispatcher.notification(channels: [.inApp, .email])
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            let due = TestDispatcher.now + .seconds(-1)
            try await dispatcher.postpone([
                Postponement(notification: notification, kind: .email, due: due, reason: "unread")
            ])
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            let stream = RedisArgument.text(dispatcher.keys.deliveries(.email, .normal))
            #expect(try await dispatcher.redis.send("XLEN", stream).integer() == 1)
        }
    }

    @Test("make the dispatcher read them: an alert without proof is pushed in quiet hours that its type ignores")
    func unproven() async throws {
        try await Self.with("{severity: alert, quiet_hours: ignore}", FakeChannel()) { dispatcher, _ in
            _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
            var settings = UserSettings()
            settings.quietHours = QuietHours(start: 1, end: 0)
            try await dispatcher.database.preferences.set(user: "ada", settings: settings)
            var notification = TestDispatcher.notification(channels: [.inApp, .push])
            notification.severity = .alert
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            try await Router(dispatcher: dispatcher).fallBack([notification])
            let stream = RedisArgument.text(dispatcher.keys.deliveries(.fcm, .normal))
            #expect(try await dispatcher.redis.send("XLEN", stream).integer() == 1)
        }
    }
}

@Suite("Traces of postponed notifications", .timeLimit(.minutes(10)))
struct PostponedTraceTests {
    @Test("show a cap after the deferral that it followed, and nothing as due once the notification is cancelled")
    func steps() async throws {
        try await TestDatabase.with { test in
            let database = Database(test.pool)
            let notification = TestDispatcher.notification(channels: [.push])
            let id = notification.id
            _ = try await database.notifications.store([notification], areRepeats: false)
            let release = FollowUpStore.Item(user: "ada", notification: id, kind: .release)
            try await database.followUps.postpone(
                [(release, TestDispatcher.now + .seconds(60), Reason.quietHours.rawValue)], now: TestDispatcher.now)
            func trace() async throws -> [NotificationTrace.Step] {
                NotificationTrace(try #require(try await database.traces.record(id, user: "ada"))).steps
            }
            #expect(try await trace().map(\.event) == ["enqueued", "stored", "deferred", "due"])
            try await database.notifications.mark(
                [(notification.key, .expired, "expired", nil)],
                notes: [(notification.key, Reason.cappedByType.rawValue)])
            let late = try await trace()
            #expect(late.map(\.event) == ["enqueued", "stored", "deferred", "held_back", "due"])
            // It expired after it was stored.
            #expect(late[1].detail.isEmpty)
            try await test.pool.query("UPDATE carillon.notifications SET status = 'cancelled'")
            #expect(try await trace().map(\.event) == ["enqueued", "stored", "deferred", "held_back"])
        }
    }

    @Test("keep the newest attempts and count the others, and show until when the user snoozed it")
    func bounds() async throws {
        try await TestDatabase.with { test in
            let database = Database(test.pool)
            let notification = TestDispatcher.notification(channels: [.inApp, .push])
            let id = notification.id
            _ = try await database.notifications.store([notification], areRepeats: false)
            // A push, then the proof of a socket.
            try await test.pool.query(
                """
                UPDATE carillon.notifications SET stored_at = created_at, sent_via = 'fcm', status = 'delivered',
                    delivered_at = created_at + interval '1 hour'
                """)
            try await test.pool.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, provider, kind, attempt, outcome)
                SELECT n.created_at + g * interval '1 second', n.user_id, n.id, 'fcm', 'push', g, 'retry'
                FROM carillon.notifications n, generate_series(1, \(TraceStore.mostAttempts + 3)) g
                """)
            var schedule = Schedule(
                id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0002), fields: [],
                dueAt: TestDispatcher.now + .seconds(7_200), createdAt: TestDispatcher.now)
            schedule.user = "ada"
            schedule.jobID = ScheduleStore.snoozePrefix(of: id) + "1"
            _ = try await database.schedules.add([schedule])
            let record = try #require(try await database.traces.record(id, user: "ada"))
            #expect(record.attempts.map(\.attempt) == Array(4...TraceStore.mostAttempts + 3))
            let steps = NotificationTrace(record).steps.filter { $0.event != "push" }
            #expect(steps.map(\.event) == ["enqueued", "stored", "omitted", "delivered", "due"])
            let details = steps.map { step in step.detail.map { "\($0.name) \($0.value)" } }
            #expect(details.suffix(3) == [["count 3"], [], ["what snooze"]])
            let waiting = try await database.people.waiting(for: "ada")
            #expect(waiting.map(\.kind) == ["snooze"] && waiting.map(\.notification) == [id])
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
