// Carillon · ReleaseSummaryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Providers
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

@Suite("Summaries after quiet hours", .timeLimit(.minutes(10)))
struct ReleaseSummaryTests {
    /// Notifications of the inbox, numbered from 1, each changed by `change`.
    private static func notifications(
        _ count: UInt64,
        _ change: (UInt64, inout Notification) -> Void = { _, _ in }
    ) -> [Notification] {
        (1...count).map { number in
            var notification = TestDispatcher.notification(number, channels: [.inApp, .push])
            change(number, &notification)
            return notification
        }
    }

    /// Stores notifications of a user with a phone, whose releases are due.
    private static func postpone(_ notifications: [Notification], by dispatcher: Dispatcher) async throws {
        _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
        _ = try await dispatcher.database.notifications.store(notifications, areRepeats: false)
        let due = TestDispatcher.now + .seconds(-1)
        try await dispatcher.postpone(
            notifications.map { Postponement(notification: $0, kind: .release, due: due, reason: "delay") })
    }

    /// Sends the pushes in the stream, and returns why the gate refused some of them.
    private static func send(by dispatcher: Dispatcher) async throws -> [GateRefusal] {
        let stream = dispatcher.keys.deliveries(.fcm, .normal)
        let entries = try await dispatcher.redis.entries(of: stream)
        let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
        let outcomes = try await sender.sendAlone(
            LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: entries))
        let settler = DeliverySettler(
            dispatcher: dispatcher, provider: .fcm, metrics: PipelineMetrics.Deliveries(.fcm))
        try await settler.settle(outcomes)
        return outcomes.compactMap { if case .refused(let refusal) = $0.result { refusal } else { nil } }
    }

    /// Each notification's title, status and reason, by title.
    private static func states(_ database: TestDatabase) async throws -> [String] {
        try await database.pool.query(
            """
            SELECT concat_ws(' ', title, status, status_reason) FROM carillon.notifications
            WHERE title <> '' ORDER BY title
            """
        ).map { try $0.text(0) }
    }

    @Test("do not count a notification of a cancelled job, which is not pushed and uses up no cap")
    func cancelled() async throws {
        let catalog = try CatalogParser.parse([
            ("c.yaml", "types: {news: {severity: info}}\ncaps: {user: {count: 6, per: 24h}}")
        ])
        let titles = Mutex<[String]>([])
        let channel = FakeChannel.accepting { message in titles.withLock { $0.append(message.notification.title) } }
        try await TestDispatcher.with(channel, catalog: catalog) { dispatcher, database in
            let notifications = Self.notifications(7) { number, notification in
                guard number == 1 else { return }
                notification.jobID = "gone"
                notification.title = "cancelled"
            }
            try await Self.postpone(notifications, by: dispatcher)
            let cancellations = dispatcher.database.cancellations
            // The withdrawal has not come to this user yet.
            try await cancellations.record(CancellationStore.Name(org: "", id: "gone"), at: TestDispatcher.now)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 7)
            #expect(try await Self.send(by: dispatcher) == [.cancelled])
            #expect(titles.withLock { $0 } == ["6 notifications"])
            let withdrawn = try await cancellations.cancel([notifications[0].key], at: TestDispatcher.now)
            #expect(withdrawn.map(\.id) == [notifications[0].id])
        }
    }

    /// Expects that a dispatcher has left the releases of notifications to another.
    private static func expectLeft(_ count: Int, by dispatcher: Dispatcher, _ database: TestDatabase) async throws {
        let statuses = try await database.pool.query("SELECT status FROM carillon.notifications")
        #expect(try statuses.map { try $0.text(0) } == Array(repeating: "deferred", count: count))
        #expect(try await database.pool.query("SELECT FROM carillon.follow_ups").count == count)
        let stream = RedisArgument.text(dispatcher.keys.deliveries(.fcm, .normal))
        #expect(try await dispatcher.redis.send("XLEN", stream).integer() == 0)
    }

    @Test("are not stored once another dispatcher has claimed the notifications")
    func claimedMeanwhile() async throws {
        let warnings = LogRecorder(from: .warning) { "\($0.message)" }
        try await TestDispatcher.with(FakeChannel(), logger: warnings.logger) { dispatcher, database in
            try await Self.postpone(Self.notifications(6), by: dispatcher)
            let following = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT FROM carillon.inboxes FOR UPDATE")
                let following = Task { try await FollowUpService(dispatcher: dispatcher).follow() }
                try await eventually("the summary waits for the inbox") {
                    let waiting = try await transaction.query(
                        "SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))")
                    return !waiting.isEmpty
                }
                // The other dispatcher's claim ends later.
                try await transaction.query("UPDATE carillon.follow_ups SET due_at = due_at + interval '30 seconds'")
                return following
            }
            #expect(try await following.value == 6)
            try await Self.expectLeft(6, by: dispatcher, database)
            #expect(warnings.all == ["lost the claim on follow-ups; they are due again"])
        }
    }

    @Test("are not stored, and nothing is pushed alone, if the claim ends while preferences are looked up")
    func lateLookup() async throws {
        let start = ContinuousClock.now
        let looks = Mutex(0)
        // The claim takes the first look at the clock, the check before the lookup the second.
        let instant: @Sendable () -> ContinuousClock.Instant = {
            looks.withLock { count in
                count += 1
                return start + (count > 2 ? Duration.seconds(60) : .zero)
            }
        }
        try await TestDispatcher.with(FakeChannel(), instant: instant) { dispatcher, database in
            // One outside the inbox goes alone.
            try await Self.postpone(Self.notifications(7) { if $0 == 7 { $1.channels = [.push] } }, by: dispatcher)
            looks.withLock { $0 = 0 }
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 7)
            try await Self.expectLeft(7, by: dispatcher, database)
            #expect(looks.withLock { $0 } == 3)
        }
    }

    @Test(
        "expire with the last notification that they stand for, or after their type's time to live",
        arguments: [(true, 6), (false, 24)])
    func expiry(doAllExpire: Bool, hours: Int) async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, database in
            let notifications = Self.notifications(6) { number, notification in
                guard doAllExpire || number > 1 else { return }
                notification.expiresAt = TestDispatcher.now + .seconds(3_600 * Int64(number))
            }
            try await Self.postpone(notifications, by: dispatcher)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 6)
            let ends = try await database.pool.query(
                "SELECT expires_at FROM carillon.notifications WHERE type = 'summary'")
            #expect(try ends.map { try $0.timestamp(0) } == [TestDispatcher.now + .seconds(3_600 * Int64(hours))])
        }
    }

    @Test(
        "are not pushed once the user has read or opened everything in the inbox",
        arguments: [(5, false), (6, true)])
    func read(count: Int, isRefused: Bool) async throws {
        let calls = Mutex(0)
        let channel = FakeChannel.accepting { _ in calls.withLock { $0 += 1 } }
        try await TestDispatcher.with(channel) { dispatcher, database in
            let notifications = Self.notifications(6)
            try await Self.postpone(notifications, by: dispatcher)
            #expect(try await FollowUpService(dispatcher: dispatcher).follow() == 6)
            // One is opened, the others are read.
            let inboxes = dispatcher.database.inboxes
            let seen = notifications.prefix(count).map(\.id)
            _ = try await inboxes.markOpened(user: "ada", id: seen[0], at: TestDispatcher.now)
            _ = try await inboxes.markRead(user: "ada", ids: Array(seen.dropFirst()), at: TestDispatcher.now)
            #expect(try await Self.send(by: dispatcher) == (isRefused ? [.read] : []))
            #expect(calls.withLock { $0 } == (isRefused ? 0 : 1))
            let state = isRefused ? "suppressed read" : "sent"
            #expect(try await Self.states(database) == ["6 notifications \(state)"])
        }
    }
}
