// Carillon · StallTests.swift
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

/// Dispatchers that stall after a claim, which another may have taken over.
@Suite(.timeLimit(.minutes(10)))
struct StallTests {
    /// Two dispatchers of one system; the first one's claim has expired when it acts.
    private struct Scene {
        let stalled: Dispatcher
        /// Runs a minute later.
        let rival: Dispatcher
        let pool: PostgresPool
        let redis: RedisClient
        let keys: Keyspace
        /// The warnings of the stalled dispatcher.
        let warnings: LogRecorder

        func append(_ notification: Notification) async throws {
            _ = try await self.rival.database.notifications.store([notification], areRepeats: false)
        }

        /// Returns the number of deliveries in the streams.
        func handedOn() async throws -> Int {
            Int(try await self.redis.send("XLEN", .text(self.keys.deliveries(.fcm, .normal))).integer())
        }

        func events() async throws -> Int {
            Int(try await self.redis.send("XLEN", .text(self.keys.events)).integer())
        }

        func count(_ table: String) async throws -> Int {
            try await self.pool.query("SELECT FROM carillon.\(table)").count
        }
    }

    private static let notification: Notification = {
        var notification = TestDispatcher.notification()
        notification.delivery = .push
        notification.channels = [.inApp, .push]
        notification.jobEntry = "jobs/1-0"
        return notification
    }()

    private static func with(_ body: (Scene) async throws -> Void) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let start = ContinuousClock.now
                let looks = Mutex(0)
                let warnings = LogRecorder(from: .warning) { "\($0.message)" }
                var news = NotificationType(name: "news")
                news.digest = DigestRule(window: .seconds(60))
                let stalled = try TestDispatcher.make(
                    database.pool, redis, keys, [FakeChannel()], types: [news],
                    instant: {
                        looks.withLock { $0 += 1 }
                        return start + .seconds(120 * looks.withLock { $0 })
                    },
                    eventsLength: 100, logger: warnings.logger)
                let rival = try TestDispatcher.make(
                    database.pool, redis, keys, [FakeChannel()], types: [news],
                    now: { TestDispatcher.now + .seconds(61) }, eventsLength: 100)
                _ = try await Database(database.pool).devices.register(TestDispatcher.phone())
                try await body(
                    Scene(
                        stalled: stalled, rival: rival, pool: database.pool, redis: redis, keys: keys,
                        warnings: warnings))
            }
        }
    }

    @Test("leaves a missing proof to the dispatcher that claimed it meanwhile")
    func proof() async throws {
        try await Self.with { scene in
            try await scene.append(Self.notification)
            let set = Live(scene.redis, keys: scene.keys).proofDeadlines
            let awaited = AwaitedProof(id: Self.notification.id, user: "ada", lane: .normal)
            var batch = RedisBatch()
            set.add([(awaited, deadline: TestDispatcher.now)], in: &batch)
            try await scene.redis.run(batch)
            let shard = scene.keys.proofShard(user: "ada")

            #expect(try await ProofService(dispatcher: scene.stalled).fallBack(shard) == 1)
            #expect(try await scene.handedOn() == 0)
            #expect(try await scene.count("delivery_attempts WHERE notification_id IS NOT NULL") == 0)
            #expect(try await ProofService(dispatcher: scene.rival).fallBack(shard) == 1)
            #expect(try await scene.handedOn() == 1)
        }
    }

    @Test("leaves a follow-up to the dispatcher that claimed it meanwhile")
    func followUp() async throws {
        try await Self.with { scene in
            var deferred = Self.notification
            deferred.status = .deferred
            deferred.statusReason = "quiet_hours"
            try await scene.append(deferred)
            let item = FollowUpStore.Item(user: "ada", notification: deferred.id, kind: .release)
            try await scene.rival.database.followUps.postpone(
                [(item: item, due: TestDispatcher.now, reason: "quiet_hours")], now: TestDispatcher.now)

            #expect(try await FollowUpService(dispatcher: scene.stalled).follow() == 1)
            #expect(scene.warnings.all == ["lost the claim on follow-ups; they are due again"])
            #expect(try await scene.handedOn() == 0)
            #expect(try await scene.count("follow_ups") == 1)
            #expect(try await FollowUpService(dispatcher: scene.rival).follow() == 1)
            #expect(try await scene.handedOn() == 1)
            #expect(try await scene.count("follow_ups") == 0)
        }
    }

    @Test("leaves a schedule to the dispatcher that claimed it meanwhile")
    func schedule() async throws {
        try await Self.with { scene in
            let fields = [("user", "ada"), ("type", "news"), ("title", "Later")].map {
                (name: $0.0, value: Array($0.1.utf8))
            }
            _ = try await scene.rival.database.schedules.add([
                Schedule(
                    id: Self.notification.id, fields: fields, dueAt: TestDispatcher.now,
                    createdAt: TestDispatcher.now)
            ])

            #expect(try await ScheduleFiring(dispatcher: scene.stalled).fireDue(.normal) == 1)
            #expect(try await scene.count("notifications") == 0)
            #expect(try await scene.count("schedules") == 1)
            #expect(try await ScheduleFiring(dispatcher: scene.rival).fireDue(.normal) == 1)
            #expect(try await scene.count("notifications") == 1)
            #expect(try await scene.count("schedules") == 0)
        }
    }

    @Test("leaves a digest to the dispatcher that claimed or flushed it meanwhile")
    func digest() async throws {
        try await Self.with { (scene: Scene) async throws -> Void in
            let rule = DigestRule(window: .seconds(60))
            let items = (1...2).map { number in
                DigestStore.Item(
                    notification: TestDispatcher.notification(UInt64(number)),
                    key: "thread", rule: rule)
            }
            #expect(
                try await scene.rival.database.digests.gather(items, now: TestDispatcher.now + .seconds(-60))
                    == [.held, .held])

            #expect(try await DigestService(dispatcher: scene.stalled).flush() == 1)
            #expect(scene.warnings.all == ["lost the claim on digests; those that are left are due again"])
            #expect(try await scene.count("notifications") == 0)
            #expect(try await scene.count("digests") == 1)
            #expect(try await scene.events() == 0)
            #expect(try await DigestService(dispatcher: scene.rival).flush() == 1)
            #expect(try await scene.count("notifications") == 1)
            #expect(try await scene.count("digests") == 0)
            #expect(try await scene.events() >= 2)
        }
    }

    @Test("a job that is cancelled after a dispatcher with its digest stalled is not in the summary")
    func cancelledDigest() async throws {
        try await Self.with { (scene: Scene) async throws -> Void in
            let items = (1...3).map { number in
                var notification = TestDispatcher.notification(UInt64(number))
                notification.jobID = "job-\(number)"
                return DigestStore.Item(
                    notification: notification, key: "thread", rule: DigestRule(window: .seconds(60)))
            }
            _ = try await scene.rival.database.digests.gather(items, now: TestDispatcher.now + .seconds(-60))
            #expect(try await DigestService(dispatcher: scene.stalled).flush() == 1)
            let cancellations = scene.rival.database.cancellations
            let names = (1...2).map { CancellationStore.Name(org: "", id: "job-\($0)") }
            try await cancellations.record(names[0], at: TestDispatcher.now)
            #expect(try await cancellations.tally(names[0]).open == [.deferred: 1])

            #expect(try await DigestService(dispatcher: scene.rival).flush() == 1)
            #expect(try await cancellations.tally(names[0]).counts == [.cancelled: 1])
            #expect(try await cancellations.tally(names[1]).counts == [.sent: 1])
            let counts = try await scene.pool.query("SELECT data ->> 'count' FROM carillon.notifications")
            #expect(try counts.texts() == ["2"])
            let events = try await scene.redis.entries(of: scene.keys.events).compactMap { $0.texts["event"] }
            #expect(events.count { $0 == "cancelled" } == 1 && events.count { $0 == "summarised" } == 2)
        }
    }

    @Test("leaves a replay to the dispatcher that claimed it meanwhile")
    func replay() async throws {
        try await Self.with { scene in
            let stream = scene.keys.jobs(.normal)
            try await scene.rival.database.deadLetters.add([
                DeadLetter(
                    stream: stream, entry: "1-0", reason: "type: is not in the catalog", at: TestDispatcher.now,
                    fields: [("user", Array("ada".utf8)[...])])
            ])
            try await scene.pool.query("UPDATE carillon.dead_letters SET replay_at = '2020-01-01'")

            #expect(try await ReplayService(dispatcher: scene.stalled).replay().count == 1)
            #expect(try await scene.redis.send("XLEN", .text(stream)).integer() == 0)
            #expect(try await scene.count("dead_letters") == 1)
            #expect(try await ReplayService(dispatcher: scene.rival).replay().count == 1)
            #expect(try await scene.redis.send("XLEN", .text(stream)).integer() == 1)
            #expect(try await scene.count("dead_letters") == 0)
        }
    }
}
