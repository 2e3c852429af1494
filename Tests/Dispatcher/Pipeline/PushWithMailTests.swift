// Carillon · PushWithMailTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Pipeline
@testable import Storage

/// Notifications outside the inbox that have both a push and mail.
@Suite("Pushes with mail outside the inbox", .timeLimit(.minutes(10)))
struct PushWithMailTests {
    /// A dispatcher and Ada, who has a phone and an address; her cap is one push a day.
    private struct Scene {
        let dispatcher: Dispatcher
        let pool: PostgresPool
        let phone: Device

        private var stream: RedisArgument { .text(self.dispatcher.keys.deliveries(.fcm, .normal)) }

        func setQuiet(_ isQuiet: Bool) async throws {
            var settings = UserSettings()
            settings.email = "ada@example.com"
            // Quiet all day except for a minute.
            if isQuiet { settings.quietHours = QuietHours(start: 1, end: 0) }
            try await self.dispatcher.database.preferences.set(user: "ada", settings: settings)
        }

        /// Stores a notification, and routes it unless it waits for the end of quiet hours.
        func store(_ number: UInt64, isDeferred: Bool = false) async throws -> Notification {
            let notification = TestDispatcher.notification(number, channels: [.push, .email])
            _ = try await self.dispatcher.database.notifications.store([notification], areRepeats: false)
            if !isDeferred {
                try await Router(dispatcher: self.dispatcher).route([RoutedNotification(notification, .stored)])
            }
            return notification
        }

        /// Returns the notifications in the stream of pushes.
        func pushed() async throws -> [NotificationID] {
            try await self.dispatcher.redis.entries(of: self.dispatcher.keys.deliveries(.fcm, .normal))
                .map { try DeliveryWork($0[DeliveryWork.field] ?? []).notification }
        }

        /// Returns each notification's status, reason, provider and why it was held back.
        func states() async throws -> [String] {
            try await self.pool.query(
                """
                SELECT concat_ws(' ', status, status_reason, sent_via, decision) FROM carillon.notifications ORDER BY id
                """
            ).map { try $0.text(0) }
        }

        /// Removes the pushes from Redis, as if it had lost its last writes.
        func losePushes() async throws {
            try await self.dispatcher.redis.send("DEL", self.stream)
        }

        /// Sweeps as if the last sweep had seen another Redis process.
        func repair() async throws {
            let now = try await self.dispatcher.database.clock()
            let beat = (now + .seconds(-3_600)).milliseconds
            let keys = self.dispatcher.keys
            try await self.dispatcher.redis.send("SET", .text(keys.runNote), .text("another \(beat)"))
            try await self.dispatcher.redis.send("DEL", .text(keys.sweepTurn))
            try await SweepService(dispatcher: self.dispatcher).sweep()
        }

        /// Takes the jobs of notifications again, as after a lost acknowledgement.
        func repeatJobs(_ notifications: [Notification]) async throws {
            var batch = StoredBatch(
                group: self.dispatcher.group(self.dispatcher.keys.jobs(.normal)), catalog: self.dispatcher.catalog,
                fence: self.dispatcher.fence())
            batch.toRedo = notifications.compactMap {
                RoutedNotification($0, .arrived).toRedo(
                    after: .known(version: 0, unread: 0, status: .pending, isOwned: true))
            }
            #expect(batch.toRedo.count == notifications.count)
            try await Router(dispatcher: self.dispatcher).routeAndAcknowledge(batch)
        }

        /// Settles a delivery: to the phone, or by mail.
        func settle(
            _ notification: Notification,
            to device: DeviceID,
            _ outcome: DeliveryStore.Outcome,
            _ reason: String? = nil
        ) async throws {
            let isMail = device == Device.emailAddress
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: try await self.dispatcher.database.clock(), user: "ada", notification: notification.id,
                    device: device, provider: isMail ? .email : .fcm, kind: isMail ? "email" : "push", attempt: 1,
                    outcome: outcome, reason: reason)
            ]
            if outcome == .accepted {
                settlement.accepted = [(notification.key, isMail ? "email" : "fcm", device)]
            } else {
                settlement.failed = [(notification.key, reason ?? "", isPush: !isMail)]
            }
            if isMail { settlement.finishedFollowUps = [(notification.key, .email, outcome == .accepted)] }
            try await self.dispatcher.database.deliveries.settle(settlement)
        }
    }

    private static func with(_ body: (Scene) async throws -> Void) async throws {
        let catalog = try CatalogParser.parse([
            (
                "c.yaml",
                """
                types: {news: {severity: info, delivery: push, quiet_hours: in_app_only}}
                caps: {user: {count: 1, per: 24h}}
                """
            )
        ])
        try await TestDispatcher.with(
            FakeChannel(), FakeChannel(provider: .email), catalog: catalog
        ) { dispatcher, database in
            let phone = try await dispatcher.database.devices.register(TestDispatcher.phone()).device
            let scene = Scene(dispatcher: dispatcher, pool: database.pool, phone: phone)
            try await scene.setQuiet(false)
            try await body(scene)
        }
    }

    @Test(
        "a push that a cap or quiet hours held back does not go out after a repair, or with a repeated job",
        arguments: [false, true], [false, true])
    func heldBack(isQuiet: Bool, isRepeatedJob: Bool) async throws {
        try await Self.with { scene in
            let first = try await scene.store(1)
            if isQuiet { try await scene.setQuiet(true) }
            let second = try await scene.store(2)
            if isQuiet { try await scene.setQuiet(false) }
            let reason = isQuiet ? "quiet_hours" : "capped_by_user"
            #expect(try await scene.states() == ["pending queued", "pending queued \(reason)"])
            #expect(try await scene.pushed() == [first.id])

            try await scene.losePushes()
            if isRepeatedJob {
                try await scene.repeatJobs([first, second])
            } else {
                try await scene.repair()
            }
            #expect(try await scene.pushed() == [first.id])
            #expect(try await scene.states() == ["pending queued", "pending queued \(reason)"])
        }
    }

    @Test("a lost push goes out again although the mail was faster, unless it was held back or has ended")
    func mailFirst() async throws {
        try await Self.with { scene in
            // Only the first one is within the cap.
            let notifications = [try await scene.store(1), try await scene.store(2)]
            for notification in notifications {
                try await scene.settle(notification, to: Device.emailAddress, .accepted)
            }
            #expect(try await scene.states() == ["sent email", "sent email capped_by_user"])

            try await scene.losePushes()
            try await scene.repair()
            #expect(try await scene.pushed() == [notifications[0].id])

            try await scene.settle(notifications[0], to: scene.phone.id, .failed, "UNREGISTERED")
            try await scene.losePushes()
            try await scene.repair()
            #expect(try await scene.pushed().isEmpty)
        }
    }

    @Test(
        "a notification whose mail failed waits for its queued push, also after Redis has lost that",
        arguments: [(DeliveryStore.Outcome.accepted, "sent fcm"), (.failed, "failed UNREGISTERED")])
    func failedMail(outcome: DeliveryStore.Outcome, state: String) async throws {
        try await Self.with { scene in
            let notifications = [try await scene.store(1), try await scene.store(2)]
            for notification in notifications {
                try await scene.settle(notification, to: Device.emailAddress, .failed, "SMTP_550")
            }
            // The second one was over the cap, so it had only its mail.
            #expect(try await scene.states() == ["pending queued", "failed SMTP_550 capped_by_user"])

            try await scene.losePushes()
            try await scene.repair()
            #expect(try await scene.pushed() == [notifications[0].id])
            try await scene.settle(
                notifications[0], to: scene.phone.id, outcome, outcome == .failed ? "UNREGISTERED" : nil)
            #expect(try await scene.states() == [state, "failed SMTP_550 capped_by_user"])
        }
    }

    @Test("a notification that was left to its delayed mail ends with it, and no repair pushes it")
    func delayedMail() async throws {
        try await Self.with { scene in
            let notification = try await scene.store(1, isDeferred: true)
            try await scene.pool.query("UPDATE carillon.notifications SET stored_at = now() - interval '1 hour'")
            try await scene.pool.query("UPDATE carillon.devices SET pushed_since = now() - interval '1 day'")
            func postpone(_ kind: FollowUp, _ seconds: Int64) async throws {
                try await scene.dispatcher.postpone([
                    Postponement(
                        notification: notification, kind: kind, due: TestDispatcher.now + .seconds(seconds),
                        reason: "delay")
                ])
            }
            try await postpone(.email, 3_600)
            try await postpone(.release, -1)
            let preferences = scene.dispatcher.database.preferences
            try await preferences.set(user: "ada", preferences: ["news": TypePreference(push: false, email: true)])
            #expect(try await FollowUpService(dispatcher: scene.dispatcher).follow() == 1)
            #expect(try await scene.states() == ["pending opted_out"])

            try await preferences.set(user: "ada", preferences: ["news": TypePreference(push: true, email: true)])
            try await postpone(.email, -1)
            #expect(try await FollowUpService(dispatcher: scene.dispatcher).follow() == 1)
            let mail = RedisArgument.text(scene.dispatcher.keys.deliveries(.email, .normal))
            #expect(try await scene.dispatcher.redis.send("XLEN", mail).integer() == 1)
            try await scene.repair()
            #expect(try await scene.pushed().isEmpty)
            try await scene.settle(notification, to: Device.emailAddress, .failed, "SMTP_550")
            #expect(try await scene.states() == ["failed SMTP_550"])
        }
    }
}
