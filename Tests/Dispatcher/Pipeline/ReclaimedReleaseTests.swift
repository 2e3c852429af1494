// Carillon · ReclaimedReleaseTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Pipeline
@testable import Storage

@Suite("Releases of a dispatcher that died", .timeLimit(.minutes(10)))
struct ReclaimedReleaseTests {
    /// Postpones the releases of notifications until a moment that has passed.
    private static func postpone(_ notifications: some Sequence<Notification>, by dispatcher: Dispatcher) async throws {
        let due = TestDispatcher.now + .seconds(-1)
        try await dispatcher.postpone(
            notifications.map { Postponement(notification: $0, kind: .release, due: due, reason: "delay") })
    }

    /// Stores notifications of a user with a phone, whose releases are due.
    private static func release(_ count: Int, by dispatcher: Dispatcher) async throws -> [Notification] {
        _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
        let notifications = (1...count).map { TestDispatcher.notification(UInt64($0), channels: [.inApp, .push]) }
        _ = try await dispatcher.database.notifications.store(notifications, areRepeats: false)
        try await Self.postpone(notifications, by: dispatcher)
        return notifications
    }

    /// Marks notifications as queued, as a dispatcher does before it enqueues their pushes.
    private static func markQueued(
        _ notifications: some Sequence<Notification>,
        by dispatcher: Dispatcher
    ) async throws {
        try await dispatcher.database.notifications.mark(
            notifications.map { ($0.key, .pending, "queued", nil) }, areReleases: true)
    }

    private static func deliveries(_ dispatcher: Dispatcher) async throws -> [StreamEntry] {
        try await dispatcher.redis.entries(of: dispatcher.keys.deliveries(.fcm, .normal))
    }

    @Test(
        "push nothing once the release has settled the notification, but the devices that lack a push get it",
        arguments: [
            ("sent", "capped_by_type", 0), ("failed", "capped_by_user", 0), ("failed", "no_device", 0),
            ("suppressed", "opted_out", 0), ("pending", "no_device", 0),
            ("sent", "", 1), ("failed", "SMTP_550", 1), ("pending", "queued", 1),
        ])
    func settled(status: String, reason: String, pushes: Int) async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, database in
            _ = try await Self.release(1, by: dispatcher)
            try await database.pool.query(
                "UPDATE carillon.notifications SET status = '\(status)', status_reason = nullif('\(reason)', '')")
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            #expect(try await Self.deliveries(dispatcher).count == pushes)
            let left = try await database.pool.query("SELECT FROM carillon.follow_ups")
            #expect(left.isEmpty)
        }
    }

    @Test(
        "end with their mail once no device is left, also when Redis has lost the push, unless a push was accepted",
        arguments: [true, false], [true, false])
    func withoutDevice(wasMailed: Bool, isLost: Bool) async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, database in
            let store = dispatcher.database.notifications
            let notification = TestDispatcher.notification(channels: [.push, .email])
            _ = try await store.store([notification], areRepeats: false)
            try await Self.postpone([notification], by: dispatcher)
            var mail = DeliveryStore.Settlement()
            mail.attempts = [
                DeliveryStore.Attempt(
                    at: try await dispatcher.database.clock(), user: "ada", notification: notification.id,
                    device: Device.emailAddress, provider: .email, kind: "email", attempt: 1,
                    outcome: wasMailed ? .accepted : .failed)
            ]
            try await dispatcher.database.deliveries.settle(mail)
            try await Self.markQueued([notification], by: dispatcher)
            if isLost {
                try await Router(dispatcher: dispatcher).pushAgain(try await store.load([notification.key]))
            } else {
                #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            }
            func state() async throws -> [String] {
                try await database.pool.query(
                    "SELECT concat_ws(' ', status, status_reason, sent_via) FROM carillon.notifications"
                ).map { try $0.text(0) }
            }
            #expect(try await state() == [wasMailed ? "sent no_device email" : "failed no_device"])
            var push = DeliveryStore.Settlement()
            push.accepted = [(notification.key, "fcm", TestDispatcher.phone().id)]
            try await dispatcher.database.deliveries.settle(push)
            #expect(try await state() == [wasMailed ? "sent no_device email" : "sent fcm"])
        }
    }

    @Test("are pushed alone and once although most have been sent")
    func pushedBefore() async throws {
        try await TestDispatcher.with(FakeChannel.accepting()) { dispatcher, database in
            let notifications = try await Self.release(6, by: dispatcher)
            let now = try await dispatcher.database.clock()
            var settlement = DeliveryStore.Settlement()
            for notification in notifications[..<5] {
                let phone = TestDispatcher.phone().id
                settlement.attempts.append(
                    DeliveryStore.Attempt(
                        at: now, user: "ada", notification: notification.id, device: phone, provider: .fcm,
                        kind: "push", attempt: 1, outcome: .accepted))
                settlement.accepted.append((notification.key, "fcm", phone))
            }
            try await dispatcher.database.deliveries.settle(settlement)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 6)
            let group = dispatcher.group(dispatcher.keys.deliveries(.fcm, .normal))
            let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
            let outcomes = try await sender.sendAlone(
                LaneBatch(lane: .normal, group: group, entries: try await Self.deliveries(dispatcher)))
            let sent = outcomes.filter { if case .answered = $0.result { true } else { false } }
            #expect(sent.map(\.work?.notification) == [notifications[5].id])
            let summaries = try await database.pool.query("SELECT FROM carillon.notifications WHERE type = 'summary'")
            #expect(summaries.isEmpty)
        }
    }

    @Test(
        "push only what has become due since, if a summary stands for the others",
        arguments: [false, true])
    func summarised(isOldestRead: Bool) async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, database in
            let notifications = try await Self.release(6, by: dispatcher)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 6)
            if isOldestRead {
                try await database.pool.query(
                    "UPDATE carillon.notifications SET read_at = now() WHERE id = $1", .id(notifications[0].id))
            }
            // The dispatcher died before it removed the follow-ups.
            let seventh = TestDispatcher.notification(7, channels: [.inApp, .push])
            _ = try await dispatcher.database.notifications.store([seventh], areRepeats: false)
            try await Self.postpone(notifications + [seventh], by: dispatcher)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 7)
            let pushed = try await Self.deliveries(dispatcher).map {
                try DeliveryWork($0[DeliveryWork.field] ?? []).notification
            }
            #expect(pushed.count == 2 && pushed.last == seventh.id)
        }
    }

    @Test("leave a stored summary to the sweeper, and a cap that they have used up does not stop it")
    func capped() async throws {
        let catalog = try CatalogParser.parse([
            ("c.yaml", "types: {news: {severity: info}}\ncaps: {user: {count: 6, per: 24h}}")
        ])
        try await TestDispatcher.with(FakeChannel(), catalog: catalog) { dispatcher, database in
            _ = try await Self.release(6, by: dispatcher)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 6)
            // The dispatcher died before the summary was in its stream.
            try await dispatcher.redis.send("DEL", .text(dispatcher.keys.deliveries(.fcm, .normal)))
            try await database.pool.query(
                """
                UPDATE carillon.notifications SET status_reason = NULL, stored_at = now() - interval '10 minutes'
                WHERE type = 'summary'
                """)
            try await database.pool.query("UPDATE carillon.sweep SET swept_until = now() - interval '1 hour'")
            try await SweepService(dispatcher: dispatcher).sweep()
            #expect(try await Self.deliveries(dispatcher).count == 1)
        }
    }

    @Test(
        "are enqueued again after the user has read the notification or it has expired, so that the sender ends it",
        arguments: ["read_at", "expires_at"])
    func ended(column: String) async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, database in
            let notification = try await Self.release(1, by: dispatcher)[0]
            // It died before the push was in its stream.
            try await Self.markQueued([notification], by: dispatcher)
            let past = PostgresValue.timestamptz(TestDispatcher.now.microseconds)
            try await database.pool.query("UPDATE carillon.notifications SET \(column) = $1", past)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            #expect(try await Self.deliveries(dispatcher).count == 1)
            let status = try await database.pool.query("SELECT status FROM carillon.notifications")
            #expect(try status.map { try $0.text(0) } == ["pending"])
        }
    }

    @Test(
        "end after the user has read the notification or it has expired, if no provider serves the user's devices",
        arguments: [("read_at", "sent no_device"), ("expires_at", "expired expired")])
    func unserved(column: String, state: String) async throws {
        try await TestDispatcher.with { dispatcher, database in
            let notification = try await Self.release(1, by: dispatcher)[0]
            try await Self.markQueued([notification], by: dispatcher)
            let past = PostgresValue.timestamptz(TestDispatcher.now.microseconds)
            try await database.pool.query("UPDATE carillon.notifications SET \(column) = $1", past)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 1)
            let states = try await database.pool.query(
                "SELECT concat_ws(' ', status, status_reason) FROM carillon.notifications")
            #expect(try states.map { try $0.text(0) } == [state])
        }
    }

    @Test("are enqueued again one by one, and do not count in the summary of other releases")
    func alone() async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, database in
            let notifications = try await Self.release(9, by: dispatcher)
            // It had released three, whose pushes may be in their stream.
            try await Self.markQueued(notifications[..<3], by: dispatcher)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 9)
            #expect(try await Self.deliveries(dispatcher).count == 4)
            let titles = try await database.pool.query(
                "SELECT title FROM carillon.notifications WHERE type = 'summary'")
            #expect(try titles.map { try $0.text(0) } == ["6 notifications"])
        }
    }
}
