// Carillon · AbsentMasterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

/// A dispatcher whose cluster lacks a master.
///
/// One after the other, as each starts several servers.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct AbsentMasterTests {
    /// A dispatcher on a cluster that is about to lose a master without a successor.
    private struct Scene {
        let cluster: TestCluster
        let absent: Int
        let redis: RedisClient
        let database: TestDatabase
        let keys: Keyspace
        let dispatcher: Dispatcher

        /// A part of the master that is lost.
        var lost: Keyspace { get throws { try self.part { $0 == self.absent } } }
        /// A part of another master.
        var kept: Keyspace { get throws { try self.part { $0 != self.absent } } }

        private func part(_ isWanted: (Int) -> Bool) throws -> Keyspace {
            let part = self.keys.parts.first { isWanted(self.cluster.number(ofKey: $0.runNote)) }
            return try #require(part)
        }

        func user(in part: Keyspace) throws -> String {
            try #require((0..<1_000).map { "user-\($0)" }.first { self.keys.part(of: $0).index == part.index })
        }

        func loseMaster() async throws { try await self.cluster.lose(self.absent) }

        /// Starts the lost master again, without its data.
        func findMaster() async throws { try await self.cluster.servers[self.absent].start() }

        /// Returns the titles of a part's jobs, in order.
        func titles(in part: Keyspace) async throws -> [String] {
            try await self.redis.entries(of: part.jobs(.normal)).compactMap { $0.texts["title"] }
        }

        func deliveries(in part: Keyspace) async throws -> Int64 {
            try await self.redis.send("XLEN", .text(part.deliveries(.fcm, .normal))).integer()
        }

        /// Returns how often the master of a part has run a command.
        func count(of command: String, in part: Keyspace) async throws -> Int {
            let server = self.cluster.servers[self.cluster.number(ofKey: part.runNote)]
            let text = try await TestRedis.withPatience(server.url) { redis in
                try await redis.send("INFO", "commandstats").string() ?? ""
            }
            let start = "cmdstat_\(command):calls="
            let line = text.split(whereSeparator: \.isNewline).first { $0.hasPrefix(start) }
            return Int(line?.dropFirst(start.count).prefix { $0.isNumber } ?? "") ?? 0
        }

        /// Stores a user's phone, a notification without an owner, and one that waits for its push.
        func store(for user: String, _ number: UInt64) async throws {
            let database = self.dispatcher.database
            _ = try await database.devices.register(TestDispatcher.phone(number, of: user, token: "phone-\(number)"))
            let kinds: [Channels] = [[.inApp], [.inApp, .push]]
            for (kind, channels) in kinds.enumerated() {
                let place = 2 * number + UInt64(kind)
                var notification = TestDispatcher.notification(place, of: user, channels: channels)
                notification.jobEntry = "jobs/\(place)-0"
                _ = try await database.notifications.store([notification], areRepeats: false)
                guard channels.contains(.push) else { continue }
                try await database.notifications.mark([(notification.key, .pending, "queued", nil)])
            }
        }

        /// Returns the users of notifications without an owner.
        func unowned() async throws -> [String] {
            let database = self.dispatcher.database
            let slice = try await database.sweep.slice(before: database.clock(), size: 10)
            return try await database.sweep.unowned(in: slice, limit: 10).map(\.notification.user)
        }
    }

    private static func with(
        types: [NotificationType] = [NotificationType(name: "news")],
        logger: Logger = TestLog.logger,
        _ body: (Scene) async throws -> Void
    ) async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await TestRedis.with(try cluster.configuration()) { redis in
            try await TestDatabase.with { database in
                let keys = Keyspace(parts: 16)
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, keys, [FakeChannel()], types: types, logger: logger)
                // The turn of the sweep stays.
                let absent = (cluster.number(ofKey: keys.sweepTurn) + 1) % 3
                try await body(
                    Scene(
                        cluster: cluster, absent: absent, redis: redis, database: database, keys: keys,
                        dispatcher: dispatcher))
            }
        }
    }

    @Test("reads all parts while the master that lists the other dispatchers is away for longer than a lease")
    func register() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await TestRedis.with(try cluster.configuration()) { redis in
            try await TestDatabase.with { database in
                // The dispatcher can renew its own lease.
                let found = (0..<100).map { Keyspace(prefix: "test-\($0):", parts: 16) }.first { keys in
                    cluster.number(ofKey: keys.dispatchers) != cluster.number(ofKey: keys.dispatcherLease("test"))
                }
                let keys = try #require(found)
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, lease: .seconds(3))
                for name in (0..<7).map({ "other-\($0)" }) {
                    let register = Lease.Register(key: keys.dispatchers, name: name) { TestDispatcher.now }
                    let lease = Lease(
                        key: keys.dispatcherLease(name), value: "dispatcher", register: register,
                        lifetime: dispatcher.clock.lease, connection: redis)
                    _ = try await lease.renew()
                }
                let service = LeaseService(dispatcher: dispatcher)
                try await service.acquire()
                #expect(dispatcher.share.parts.count < 16)
                try await cluster.lose(cluster.number(ofKey: keys.dispatchers))
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask { try? await service.run() }
                    try await eventually("it reads all parts") { dispatcher.share.parts.count == 16 }
                    group.cancelAll()
                }
            }
        }
    }

    @Test("entries of a dispatcher that died are taken over while a master is away, soon and without a word")
    func takeover() async throws {
        let lines = LogRecorder(from: .warning) { "\($0.message)" }
        try await Self.with(logger: lines.logger) { scene in
            let kept = try scene.kept
            let stream = kept.jobs(.normal)
            func name(_ start: String, isLost: Bool) throws -> String {
                let found = (0..<1_000).map { "\(start)-\($0)" }.first { name in
                    (scene.cluster.number(ofKey: scene.keys.dispatcherLease(name)) == scene.absent) == isLost
                }
                return try #require(found)
            }
            // The first by name may hold its lease, which is on the lost master.
            let (silent, dead) = (try name("a", isLost: true), try name("b", isLost: false))
            for consumer in [silent, dead] {
                try await scene.redis.send(
                    "XADD", .text(stream), "*", "user", .text(try scene.user(in: kept)), "type", "news",
                    "title", .text(consumer))
                let group = ConsumerGroup(stream: stream, consumer: consumer, connection: scene.redis)
                let entry = try #require(try await group.readWaiting(count: 1).first)
                // As if it had been read a minute ago.
                try await scene.redis.send(
                    "XCLAIM", .text(stream), "dispatchers", .text(consumer), "0", .text(entry.id), "IDLE", "60000",
                    "JUSTID")
            }
            try await scene.loseMaster()
            scene.dispatcher.leaseClock.hold()
            let claims = ClaimService(dispatcher: scene.dispatcher, deliveries: [])
            try await eventually("a look takes less time than one call to the absent master, and logs nothing") {
                let (start, count) = (ContinuousClock.now, lines.all.count)
                await claims.claimJobs()
                return ContinuousClock.now - start < .seconds(4) && lines.all.count == count
            }
            #expect(try await scene.titles(in: kept) == [silent])
        }
    }

    @Test("an account keeps its rate while the master that counts it is away")
    func rate() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await TestRedis.with(try cluster.configuration()) { redis in
            let live = Live(redis, keys: Keyspace(parts: 16))
            let limiter = AccountRateLimiter(.fcm, buckets: live.buckets)
            try await cluster.lose(cluster.number(ofKey: live.keys.bucket("send", "fcm:one")))
            let wait = await limiter.take("one", perSecond: 10, lane: .normal)
            #expect(wait.map { $0 > .zero } == true)
        }
    }

    @Test("overflows of the other masters are read while one is away")
    func overflows() async throws {
        try await Self.with { scene in
            let fields = [("title", Array("moved".utf8))]
            for part in try [scene.lost, scene.kept] {
                try await scene.dispatcher.live.with(part).overflows.append([(org: "acme", fields: fields)])
            }
            try await scene.loseMaster()
            let reader = OverflowReader(
                dispatcher: scene.dispatcher, lanes: nil, queue: LaneQueue<LaneBatch>(capacity: 8))
            scene.dispatcher.leaseClock.hold()
            try await eventually("the job of the other master is read") { await reader.roundOfAll().count == 1 }
            let policy = OverflowPolicy(backlog: 10)
            try await OverflowGuard(dispatcher: scene.dispatcher, policy: policy).refresh()
        }
    }

    @Test("deliveries, retries, frames and moved jobs for the other masters are written once while one is away")
    func copies() async throws {
        let lines = LogRecorder(from: .warning) { "\($0.message) \($0.metadata?["step"] ?? "")" }
        try await Self.with(logger: lines.logger) { scene in
            let (dispatcher, parts) = try (scene.dispatcher, [scene.lost, scene.kept])
            let users = try parts.map { try scene.user(in: $0) }
            let connection = ConnectionPresence(
                connection: "c1", node: "n", dialect: .native, state: .active, since: TestDispatcher.now)
            var deliveries = RoutePlan(for: dispatcher)
            var frames = RoutePlan(for: dispatcher)
            var waiting: [DeliveryHandover.Waiting] = []
            for (user, keys) in zip(users, parts) {
                let notification = TestDispatcher.notification(of: user)
                let device = TestDispatcher.phone().id
                deliveries.deliver(notification, to: device, via: .fcm, isRepeat: false)
                frames.publish(NodeFrame(kind: .event, user: user, body: []), to: .online([connection]))
                let work = DeliveryWork(
                    notification: notification.id, device: device, user: user, attempt: 0, isRepeat: false)
                let outcome = DeliveryOutcome(
                    entry: StreamEntry(id: "1-0", fields: [(DeliveryWork.field, work.bytes[...])]),
                    group: dispatcher.group(keys.deliveries(.fcm, .normal), in: keys), lane: .normal,
                    term: LeaseClock.Term(), work: work, facts: nil, app: nil, sentAt: TestDispatcher.now,
                    result: .heldBack(until: TestDispatcher.now, reason: "rate", scope: BreakerScope("default")),
                    duration: .zero)
                waiting.append(
                    DeliveryHandover.Waiting(outcome: outcome, work: work.afterTry, due: TestDispatcher.now))
            }
            // Each user's name is also an organisation's.
            let lane = dispatcher.group(scene.keys.jobs(.normal))
            let excess = users.map { org in
                OverflowGuard.Excess(org: org, entry: StreamEntry(id: "1-0", fields: [("org", Array(org.utf8)[...])]))
            }
            // Log in first: a new session would schedule the retries a second time.
            for part in parts { try await scene.redis.send("EXISTS", .text(part.runNote)) }
            try await scene.loseMaster()
            dispatcher.leaseClock.hold()
            try await withThrowingTaskGroup(of: Void.self) { group in
                for plan in [deliveries, frames] {
                    group.addTask { try? await Router(dispatcher: dispatcher).carryOut(plan) }
                }
                group.addTask { [waiting] in
                    try? await DeliveryHandover(dispatcher: dispatcher, provider: .fcm).scheduleAndAcknowledge(
                        waiting.map(\.outcome), waiting: waiting, reporting: [])
                }
                group.addTask {
                    let policy = OverflowPolicy(backlog: 0)
                    try? await OverflowGuard(dispatcher: dispatcher, policy: policy).move(excess, of: lane)
                }
                let steps = ["append deliveries", "publish frames", "settle deliveries", "move jobs to the overflow"]
                for step in steps {
                    try await eventually("the first try has failed") { lines.all.contains { $0.hasSuffix(step) } }
                }
                // Only the first failure is logged; the second try follows within two seconds.
                let failed = ContinuousClock.now
                try await eventually("the second try has begun") { ContinuousClock.now - failed > .seconds(2) }
                group.cancelAll()
            }
            #expect(try await scene.deliveries(in: parts[1]) == 1)
            #expect(try await scene.count(of: "zadd", in: parts[1]) == 1)
            #expect(try await scene.count(of: "spublish", in: parts[1]) == 1)
            let moved = scene.keys.overflowPart(of: users[1]).overflow(users[1])
            #expect(try await scene.redis.send("XLEN", .text(moved)).integer() <= 1)
        }
    }

    @Test("follow-ups, digests and scheduled jobs of the other masters are handled while one is away")
    func dueWork() async throws {
        var news = NotificationType(name: "news")
        news.cap = FrequencyCap(count: 10, window: .seconds(3_600))
        news.digest = DigestRule(window: .seconds(60))
        try await Self.with(types: [news]) { scene in
            let (dispatcher, kept) = try (scene.dispatcher, scene.kept)
            let (database, now) = (dispatcher.database, TestDispatcher.now)
            let users = [try scene.user(in: scene.lost), try scene.user(in: kept)]
            func postpone(_ number: UInt64) async throws {
                for (place, user) in users.enumerated() {
                    let notification = TestDispatcher.notification(
                        2 * number + UInt64(place), of: user, channels: [.inApp, .push])
                    _ = try await database.notifications.store([notification], areRepeats: false)
                    try await dispatcher.postpone([
                        Postponement(notification: notification, kind: .release, due: now, reason: "delay")
                    ])
                }
            }
            func owners(_ table: String) async throws -> [String] {
                try await scene.database.pool.query("SELECT DISTINCT user_id FROM carillon.\(table)").map {
                    try $0.text(0)
                }
            }
            for (place, user) in users.enumerated() {
                let number = UInt64(place)
                _ = try await database.devices.register(
                    TestDispatcher.phone(number, of: user, token: "phone-\(place)"))
                let items = (UInt64(100)...101).map {
                    var notification = TestDispatcher.notification(2 * $0 + number, of: user)
                    notification.jobID = "job-\(2 * $0 + number)"
                    return DigestStore.Item(
                        notification: notification, key: "thread", rule: DigestRule(window: .seconds(60)))
                }
                _ = try await database.digests.gather(items, now: now + .seconds(-60))
                let fields = [("user", user), ("type", "news"), ("title", "Later")].map {
                    (name: $0.0, value: Array($0.1.utf8))
                }
                var schedule = Schedule(
                    id: TestDispatcher.notification(number).id, fields: fields, dueAt: now, createdAt: now)
                schedule.user = user
                _ = try await database.schedules.add([schedule])
            }
            try await postpone(1)
            try await scene.loseMaster()

            let followUps = FollowUpService(dispatcher: dispatcher)
            #expect(try await followUps.follow() == 2)
            #expect(try await scene.deliveries(in: kept) == 1)
            try await postpone(2)
            #expect(try await followUps.follow() == 2)
            #expect(try await scene.deliveries(in: kept) == 2)
            #expect(try await DigestService(dispatcher: dispatcher).flush() == 2)
            #expect(try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) == 2)
            let attempts = try await scene.database.pool.query("SELECT attempts::int4 FROM carillon.schedules")
            #expect(try attempts.map { try $0.int4(0) } == [0], "it would fire alone")
            // The rest is due again.
            for table in ["follow_ups", "digests", "schedules"] { #expect(try await owners(table) == [users[0]]) }

            let name = CancellationStore.Name(org: "", id: "job-200")
            try await database.cancellations.record(name, at: now)
            try await scene.findMaster()
            try await eventually("the digest is flushed when the master is back") {
                try await scene.database.pool.query("UPDATE carillon.digests SET due_at = $1", .timestamp(now))
                _ = try? await DigestService(dispatcher: dispatcher).flush()
                return try await owners("digests").isEmpty
            }
            #expect(try await database.cancellations.tally(name).counts == [.cancelled: 1])
        }
    }

    @Test("missing proofs of the other masters are noticed while one is away")
    func proofs() async throws {
        try await Self.with { scene in
            let (lost, kept) = try (scene.lost, scene.kept)
            var batch = RedisBatch()
            for user in [try scene.user(in: lost), try scene.user(in: kept)] {
                let awaited = AwaitedProof(
                    id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001), user: user,
                    lane: .normal)
                scene.dispatcher.live.proofDeadlines.add([(awaited, deadline: TestDispatcher.now)], in: &batch)
            }
            try await scene.redis.run(batch)
            try await scene.loseMaster()
            let shard = try #require(kept.index)
            try await eventually("the deadline of the other master is handled") {
                try? await ProofService(dispatcher: scene.dispatcher).poll()
                let set = RedisArgument.text(scene.keys.proofDeadlines(shard: shard))
                return try await scene.redis.send("ZCARD", set).integer() == 0
            }
        }
    }

    @Test("due retries of the other masters move soon while one is away")
    func retries() async throws {
        try await Self.with { scene in
            let kept = try scene.kept
            let work = DeliveryWork(
                notification: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001),
                device: DeviceID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0003),
                user: try scene.user(in: kept), attempt: 1, isRepeat: true)
            var batch = RedisBatch()
            scene.dispatcher.live.retries.add(
                work, due: TestDispatcher.now, provider: .fcm, lane: .normal, in: &batch)
            try await scene.redis.run(batch)
            try await scene.loseMaster()
            let service = DeliveriesService(dispatcher: scene.dispatcher, provider: .fcm, calls: 8, readers: [])
            let mover = RetryService(dispatcher: scene.dispatcher, deliveries: [service])
            try await eventually("a look takes less time than one call to the absent master") {
                let start = ContinuousClock.now
                try? await mover.poll()
                return ContinuousClock.now - start < .seconds(4)
            }
            #expect(try await scene.deliveries(in: kept) == 1)
        }
    }

    @Test("webhooks get the events of the other masters at once while one is away")
    func webhooks() async throws {
        try await Self.with { scene in
            let dispatcher = scene.dispatcher
            let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
            let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
            let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)
            _ = try await dispatcher.database.webhooks.register(
                Webhook(
                    id: id, org: nil, url: "https://a.example", kinds: nil, secret: "s",
                    createdAt: Timestamp(milliseconds: 0)))
            let label = NotificationLabel(
                id: id, user: try scene.user(in: scene.kept), type: "news", category: nil, org: "", job: nil)
            let event = LifecycleEvent(.sent, label, at: TestDispatcher.now)
            let log = EventLog(keys: scene.keys, length: 1_000)
            // The first look makes the groups.
            _ = try await dispatcher.live.eventFeed.read(from: scene.keys.parts, count: 10)
            try await scene.loseMaster()
            try await eventually("events of the other master are handed on while the list is new") {
                await log.append([event], on: scene.redis)
                try await service.refresh(isCheck: false)
                return (try? await service.distribute(scene.keys.parts)) ?? 0 > 0
            }
            let queued = try await dispatcher.live.webhookQueues.oldest(of: id, limit: 1)
            #expect(queued.count == 1)
            await transfer.shutdown()
        }
    }

    @Test("rows of an outbox for the other masters move once, in order, while one is away, and the rest waits")
    func outbox() async throws {
        try await Self.with { scene in
            let (lost, kept) = try (scene.lost, scene.kept)
            let pool = scene.database.pool
            func enqueue(_ titles: ClosedRange<Int>, for part: Keyspace) async throws {
                try await pool.query(
                    """
                    SELECT carillon.enqueue(jsonb_build_object('user', $1::text, 'type', 'news', 'title', n::text))
                    FROM generate_series($2::int8, $3::int8) n
                    """,
                    .text(try scene.user(in: part)), .int8(Int64(titles.lowerBound)), .int8(Int64(titles.upperBound)))
            }
            func waiting() async throws -> Int64 {
                try await pool.query("SELECT count(*) FROM carillon.outbox").first?.int8(0) ?? 0
            }
            // More than one read takes, before those that can move.
            try await enqueue(1...300, for: lost)
            try await enqueue(1...300, for: kept)
            try await scene.loseMaster()
            let relay = OutboxRelay(
                dispatcher: scene.dispatcher, name: "own", configuration: scene.database.configuration())
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try? await relay.run() }
                try await eventually("the rows of the other master have moved") { try await waiting() == 300 }
                try await enqueue(301...302, for: kept)
                try await eventually("later ones move, too") { try await waiting() == 300 }
                #expect(try await scene.titles(in: kept) == (1...302).map { "\($0)" })
                try await scene.findMaster()
                try await eventually("the rest moves when the master is back") { try await waiting() == 0 }
                group.cancelAll()
            }
            #expect(Set(try await scene.titles(in: lost)) == Set((1...300).map { "\($0)" }))
            #expect(try await scene.titles(in: kept).count == 302)
        }
    }

    @Test("a dead letter for another master is replayed once while one is away")
    func replay() async throws {
        try await Self.with { scene in
            let (lost, kept) = try (scene.lost, scene.kept)
            for part in [lost, kept] {
                let fields = [("user", try scene.user(in: part)), ("type", "news"), ("title", "hello")]
                try await scene.dispatcher.database.deadLetters.add([
                    DeadLetter(
                        stream: part.jobs(.normal), entry: "1-0", reason: "tried", at: TestDispatcher.now,
                        fields: fields.map { ($0.0, Array($0.1.utf8)[...]) })
                ])
            }
            try await scene.loseMaster()
            let replays = ReplayService(dispatcher: scene.dispatcher)
            for _ in 1...2 {
                // As if the hold of the round before were over.
                try await scene.database.pool.query("UPDATE carillon.dead_letters SET replay_at = '2020-01-01'")
                await #expect(throws: RedisError.self) { _ = try await replays.replay() }
            }
            let left = try await scene.database.pool.query("SELECT stream FROM carillon.dead_letters")
            let streams = try left.map { try $0.text(0) }
            #expect(streams == [lost.jobs(.normal)])
            let titles = try await scene.titles(in: kept)
            #expect(titles == ["hello"])
        }
    }

    @Test("the sweep mends the parts of the other masters while one is away, and its parts when it is back")
    func sweep() async throws {
        try await Self.with { scene in
            let (lost, kept) = try (scene.lost, scene.kept)
            let lostUser = try scene.user(in: lost)
            try await scene.store(for: lostUser, 1)
            try await scene.store(for: try scene.user(in: kept), 2)
            try await scene.database.pool.query(
                "UPDATE carillon.notifications SET stored_at = now() - interval '10 minutes'")
            try await scene.database.pool.query("UPDATE carillon.sweep SET swept_until = now() - interval '1 hour'")
            try await scene.loseMaster()
            let sweeper = SweepService(dispatcher: scene.dispatcher)
            try await sweeper.sweep()
            #expect(try await scene.deliveries(in: kept) == 1)
            #expect(try await scene.unowned() == [lostUser])
            try await scene.findMaster()
            try await eventually("a sweep mends the part of the master that is back") {
                // A server that is not ready yet ends the sweep.
                _ = try? await scene.redis.send("DEL", .text(scene.keys.sweepTurn))
                try? await sweeper.sweep()
                guard try await scene.unowned().isEmpty else { return false }
                return (try? await scene.deliveries(in: lost)) ?? 0 > 0
            }
        }
    }
}

/// A dispatcher's lease while its Redis is away.
@Suite(.timeLimit(.minutes(10)))
struct LeaseRenewalTests {
    /// Returns true if a lease of this lifetime outlasts a failed renewal, otherwise nil.
    private static func renewal(
        lifetime: Duration, _ server: RedisServer, _ redis: RedisClient, _ database: TestDatabase
    ) async throws -> Bool? {
        // Each renewal reads the clock once, for the register.
        let readings = Mutex(0)
        let dispatcher = try TestDispatcher.make(
            database.pool, redis, Keyspace(),
            now: {
                readings.withLock { $0 += 1 }
                return TestDispatcher.now
            },
            lease: lifetime)
        let service = LeaseService(dispatcher: dispatcher)
        try await service.acquire()
        let start = ContinuousClock.now
        guard let term = dispatcher.leaseClock.term else { return nil }
        let earlier = readings.withLock { $0 }
        return try await withThrowingTaskGroup(of: Void.self) { group -> Bool? in
            defer { group.cancelAll() }
            group.addTask { try? await service.run() }
            try await server.stall()
            try await eventually("a renewal has failed and is repeated") {
                readings.withLock { $0 } >= earlier + 2
            }
            let isHeld = dispatcher.leaseClock.holds(term)
            server.resume()
            try await eventually("the first renewal no longer counts") {
                ContinuousClock.now - start > lifetime - .milliseconds(500)
            }
            return isHeld && dispatcher.leaseClock.holds(term) ? true : nil
        }
    }

    @Test("a renewal without an answer is repeated while the lease still holds")
    func renewal() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestDatabase.with { database in
                _ = try await valueInTime("a renewal fails and the next succeeds before the lease expires") { limit in
                    try await Self.renewal(lifetime: limit * 2, server, redis, database)
                }
            }
        }
    }
}
