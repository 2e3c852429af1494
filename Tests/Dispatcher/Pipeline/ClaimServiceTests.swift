// Carillon · ClaimServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Providers
import Support
import Testing

@testable import Pipeline
@testable import Storage

/// Deliveries that kill every dispatcher that works on them.
@Suite(.timeLimit(.minutes(10)))
struct ClaimServiceTests {
    /// A queued notification whose delivery a dead dispatcher left pending.
    private struct Scene {
        let dispatcher: Dispatcher
        let service: DeliveriesService
        let pool: PostgresPool
        let redis: RedisClient
        let keys: Keyspace
        let notification: Notification

        var stream: String { self.keys.deliveries(.fcm, .normal) }

        /// Waits until the claim service has settled every entry of the stream.
        func takeOver() async throws {
            self.dispatcher.leaseClock.renewed(at: .now)
            let claims = ClaimService(dispatcher: self.dispatcher, deliveries: [self.service])
            let running = Task { try await claims.run() }
            defer { running.cancel() }
            try await eventually("the stream is empty") {
                try await self.redis.send("XLEN", .text(self.stream)).integer() == 0
            }
        }

        func stored() async throws -> Notification? {
            try await self.dispatcher.database.notifications.load([("ada", self.notification.id)]).first
        }

        func texts(_ query: String) async throws -> [String] {
            try await self.pool.query(query).map { try $0.text(0) }
        }
    }

    /// - Parameter text: the entry's text; nil for that of the delivery.
    private static func with(
        deliveries: String,
        text: String? = nil,
        _ body: (Scene) async throws -> Void
    ) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, keys, [NotificationType(name: "news")], FakeChannel.accepting(),
                    eventsLength: 100)
                let phone = try await Database(database.pool).devices.register(TestDispatcher.phone()).device
                var notification = Notification(
                    id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001), user: "ada",
                    type: "news", createdAt: TestDispatcher.now)
                notification.channels = [.inApp, .push]
                notification.jobEntry = "jobs/1-0"
                _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
                try await dispatcher.database.notifications.mark([("ada", notification.id, .pending, "queued", nil)])
                let stream = keys.deliveries(.fcm, .normal)
                let work = DeliveryWork(
                    notification: notification.id, device: phone.id, user: "ada", attempt: 0, isRepeat: false)
                let gone = ConsumerGroup(stream: stream, consumer: "gone", connection: redis)
                try await gone.create()
                let bytes = text.map { Array($0.utf8) } ?? work.bytes
                try await redis.send("XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(bytes))
                let entry = try #require(try await gone.takeWaiting(count: 1).first)
                try await redis.send(
                    "XCLAIM", .text(stream), "dispatchers", "gone", "0", .text(entry.id), "IDLE", "60000",
                    "RETRYCOUNT", .text(deliveries), "JUSTID")
                try await body(
                    Scene(
                        dispatcher: dispatcher,
                        service: DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: []),
                        pool: database.pool, redis: redis, keys: keys, notification: notification))
            }
        }
    }

    @Test(
        "a delivery whose dispatchers died fails with an attempt, an event and a dead letter, and can be replayed",
        arguments: ["5", "6"])
    func poison(deliveries: String) async throws {
        try await Self.with(deliveries: deliveries) { scene in
            try await scene.takeOver()
            #expect(try await scene.stored()?.status == .failed)
            #expect(try await scene.stored()?.statusReason == "dispatchers_died")
            #expect(try await scene.texts("SELECT reason FROM carillon.dead_letters") == [ClaimService.deadlyReason])
            let attempts = "SELECT outcome FROM carillon.delivery_attempts WHERE notification_id IS NOT NULL"
            #expect(try await scene.texts(attempts) == ["failed"])
            // The second dispatcher to set it aside looks nothing up, so it adds no events.
            let events = try await scene.redis.send("XLEN", .text(scene.keys.events)).integer()
            #expect(events == (deliveries == "5" ? 1 : 0))

            _ = try await scene.dispatcher.database.deadLetters.replay(
                DeadLetterStore.Filter(), to: { _ in true }, rate: 1, now: TestDispatcher.now)
            #expect(try await ReplayService(dispatcher: scene.dispatcher).replay() == 1)
            scene.dispatcher.leaseClock.renewed(at: .now)
            let group = scene.dispatcher.group(scene.stream)
            let entries = try await group.takeWaiting(count: 10)
            #expect(entries.count == 1)
            try await scene.service.sendAlone(
                LaneBatch(
                    lane: .normal, group: group, entries: entries,
                    term: try #require(scene.dispatcher.leaseClock.term)))
            #expect(try await scene.stored()?.status == .sent)
            #expect(try await scene.texts("SELECT reason FROM carillon.dead_letters").isEmpty)
        }
    }

    @Test(
        "leaves a delivery of a newer format to newer dispatchers, however often older ones took it over",
        arguments: [("1", 2), ("5", 6)])
    func newerFormat(deliveries: String, afterwards: Int) async throws {
        try await Self.with(deliveries: deliveries, text: "2 whatever comes") { scene in
            scene.dispatcher.leaseClock.renewed(at: .now)
            let claims = ClaimService(dispatcher: scene.dispatcher, deliveries: [scene.service])
            let running = Task { try await claims.run() }
            defer { running.cancel() }
            let group = scene.dispatcher.group(scene.stream)
            try await eventually("it is taken over") {
                try await group.pending(of: scene.dispatcher.name, count: 10).map(\.deliveries) == [afterwards]
            }
            // As if it had been handed out in a reply that got lost.
            let entry = try await group.pending(of: scene.dispatcher.name, count: 1)[0].id
            let age: [RedisArgument] = ["IDLE", "60000", "RETRYCOUNT", "\(afterwards)", "JUSTID"]
            try await scene.redis.send(
                ["XCLAIM", .text(scene.stream), "dispatchers", .text(scene.dispatcher.name), "0", .text(entry)] + age)
            try await eventually("it is looked at again, which does not count") {
                let reply = try await scene.redis.send(
                    "XPENDING", .text(scene.stream), "dispatchers", "IDLE", "60000", "-", "+", "1")
                var idle = try reply.cursor()
                return try idle?.array() == 0
            }
            let pending = try await group.pending(of: scene.dispatcher.name, count: 10)
            #expect(pending.map(\.deliveries) == [afterwards])
            #expect(try await scene.texts("SELECT reason FROM carillon.dead_letters").isEmpty)
            #expect(try await scene.redis.send("XLEN", .text(scene.stream)).integer() == 1)
        }
    }

    @Test("drops a delivery that killed its dispatchers when its user has read the notification")
    func read() async throws {
        try await Self.with(deliveries: "5") { scene in
            try await scene.pool.query("UPDATE carillon.notifications SET read_at = now()")
            try await scene.takeOver()
            #expect(try await scene.stored()?.status == .sent)
            #expect(try await scene.stored()?.statusReason == "read")
            #expect(try await scene.texts("SELECT reason FROM carillon.dead_letters").isEmpty)
        }
    }
}
