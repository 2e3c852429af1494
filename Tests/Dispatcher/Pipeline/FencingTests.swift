// Carillon · FencingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Providers
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

/// Entries of a dispatcher that others may have taken over.
@Suite(.timeLimit(.minutes(10)))
struct FencingTests {
    private static func notification(_ number: UInt64) -> NotificationID { TestDispatcher.notification(number).id }

    /// Appends jobs to a stream, takes them, and stores them.
    private static func store(
        _ jobs: [[(String, String)]],
        of stream: String,
        _ dispatcher: Dispatcher
    ) async throws -> StoredBatch {
        for fields in jobs { try await Self.append(fields, to: stream, dispatcher.redis) }
        let group = dispatcher.group(stream)
        try await group.create()
        let entries = try await group.readWaiting(count: 10)
        dispatcher.inFlight.take(entries.map(\.id), of: stream)
        let batch = LaneBatch(
            lane: .normal, group: group, entries: entries, term: try #require(dispatcher.leaseClock.term))
        return try await JobIntake(dispatcher: dispatcher).store(batch)
    }

    private static func append(_ fields: [(String, String)], to stream: String, _ redis: RedisClient) async throws {
        var command: [RedisArgument] = ["XADD", .text(stream), "*"]
        for (name, value) in fields { command += [.text(name), .text(value)] }
        try await redis.send(command)
    }

    /// Returns the repeat flags of a stream's deliveries.
    private static func flags(_ stream: String, _ redis: RedisClient) async throws -> [Bool] {
        let group = ConsumerGroup(stream: stream, consumer: "reader", connection: redis)
        try await group.create()
        return try await group.readWaiting(count: 100).map { entry in
            try DeliveryWork(entry[DeliveryWork.field] ?? []).isRepeat
        }
    }

    @Test("an expired lease ends its term")
    func terms() throws {
        let clock = LeaseClock()
        #expect(clock.term == nil)
        clock.renewed(at: .now, withoutGap: false)
        let first = try #require(clock.term)
        // The first renewal follows no gap.
        #expect(first == LeaseClock.Term())
        clock.renewed(at: .now - .seconds(20))
        #expect(!clock.holds(first), "the lease may have expired")
        clock.renewed(at: .now)
        #expect(clock.holds(first), "the lease had not expired")
        clock.renewed(at: .now, withoutGap: false)
        #expect(!clock.holds(first))
        let second = try #require(clock.term)
        #expect(clock.holds(second))
    }

    @Test("a dispatcher does not start while Redis has more parts than PostgreSQL records")
    func unknownParts() async throws {
        try await TestDispatcher.with(isLeased: false) { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            try await redis.send("SET", .text(keys.partCount), "64")
            let service = LeaseService(dispatcher: dispatcher)
            let error = await #expect(throws: RedisError.self) { try await service.acquire() }
            #expect(error?.code == .configuration)
            #expect(error?.message?.contains("run dispatcher parts grow 64") == true)
            #expect(try await redis.send("GET", .text(keys.partCount)).string() == "64")
            #expect(dispatcher.leaseClock.term == nil)
            try await redis.send("SET", .text(keys.partCount), "1")
            try await service.acquire()
            #expect(dispatcher.leaseClock.term != nil)
            await service.release()
        }
    }

    @Test("releases only a lease that it holds")
    func release() async throws {
        try await TestDispatcher.with(isLeased: false) { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let service = LeaseService(dispatcher: dispatcher)
            let key = keys.dispatcherLease(dispatcher.name)
            try await redis.send("SET", .text(key), "before")
            await service.release()
            #expect(try await redis.send("GET", .text(key)).string() == "before")
            try await service.acquire()
            await service.release()
            #expect(try await redis.send("GET", .text(key)).string() == nil)
        }
    }

    @Test("after an expiry, sends only entries that are still its own and unsent")
    func sender() async throws {
        let sent = Mutex<[NotificationID]>([])
        try await TestDispatcher.with(
            FakeChannel.accepting { message in sent.withLock { $0.append(message.notification.id) } }
        ) { dispatcher, database in
            let redis = dispatcher.redis
            try await TestDispatcher.storePushes(3, in: database.pool)
            let stream = dispatcher.keys.deliveries(.fcm, .normal)
            let device = TestDispatcher.phone().id
            for number in UInt64(1)...3 {
                let work = DeliveryWork(
                    notification: Self.notification(number), device: device, user: "ada", attempt: 0, isRepeat: false)
                let text = String(decoding: work.bytes, as: UTF8.self)
                try await Self.append([(DeliveryWork.field, text)], to: stream, redis)
            }
            let group = dispatcher.group(stream)
            try await group.create()
            let entries = try await group.readWaiting(count: 10)
            dispatcher.inFlight.take(entries.map(\.id), of: stream)
            let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
            let outcomes = Mutex<[String: DeliveryOutcome.Result]>([:])
            let settle: @Sendable (DeliveryOutcome) async -> Void = { outcome in
                outcomes.withLock { $0[outcome.entry.id] = outcome.result }
            }
            let batch = LaneBatch(
                lane: .normal, group: group, entries: entries, term: try #require(dispatcher.leaseClock.term))
            let prepared = try await sender.prepare(batch)
            #expect(prepared.ended.isEmpty)

            // It is suspended; another takes over the first entry, and sends the second before
            // losing it again.
            let rival = ConsumerGroup(stream: stream, consumer: "rival", connection: redis)
            #expect(try await rival.claim(entries[0].id, from: dispatcher.name, idle: .zero) != nil)
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: try await dispatcher.database.clock(), user: "ada",
                    notification: Self.notification(2), device: device, provider: .fcm, kind: "push", attempt: 1,
                    outcome: .accepted)
            ]
            try await dispatcher.database.deliveries.settle(settlement)
            dispatcher.leaseClock.hold(withoutGap: false)

            await withDiscardingTaskGroup { sends in
                await sender.send(prepared, permits: LanePermits(8), group: &sends, settle: settle)
            }
            #expect(sent.withLock { $0 } == [Self.notification(3)])
            #expect(Set(outcomes.withLock { $0.keys }) == Set(entries[1...].map(\.id)))
            #expect(!dispatcher.inFlight.contains(entries[0].id, of: stream))
            #expect(try await rival.pending(of: "rival", count: 10).map(\.id) == [entries[0].id])
        }
    }

    @Test(
        "after an expiry, leaves jobs that others took over, and routes the rest as repeats")
    func router() async throws {
        try await TestDispatcher.with(FakeChannel.accepting()) { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
            let stream = keys.jobs(.normal)
            for title in ["mine", "theirs"] {
                try await Self.append(
                    [("user", "ada"), ("type", "news"), ("title", title), ("delivery", "push")], to: stream, redis)
            }
            let group = dispatcher.group(stream)
            try await group.create()
            let entries = try await group.readWaiting(count: 10)
            dispatcher.inFlight.take(entries.map(\.id), of: stream)
            let batch = LaneBatch(
                lane: .normal, group: group, entries: entries, term: try #require(dispatcher.leaseClock.term))
            let stored = try await JobIntake(dispatcher: dispatcher).store(batch)
            #expect(stored.toRoute.count == 2)

            let rival = ConsumerGroup(stream: stream, consumer: "rival", connection: redis)
            #expect(try await rival.claim(entries[1].id, from: dispatcher.name, idle: .zero) != nil)
            dispatcher.leaseClock.hold(withoutGap: false)
            try await Router(dispatcher: dispatcher).routeAndAcknowledge(stored)

            #expect(try await group.pending(of: dispatcher.name, count: 10).isEmpty)
            #expect(try await rival.pending(of: "rival", count: 10).map(\.id) == [entries[1].id])
            #expect(dispatcher.inFlight.count(of: stream) == 0)
            #expect(try await Self.flags(keys.deliveries(.fcm, .normal), redis) == [true, true])
        }
    }

    @Test("after an expiry, reports no end of a notification that another dispatcher has delivered")
    func delivered() async throws {
        let time = Mutex(TestDispatcher.now)
        try await TestDispatcher.with(now: { time.withLock { $0 } }, eventsLength: 100) { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let end = TestDispatcher.now + .seconds(60)
            let jobs = ["mine", "theirs"].map { title in
                [("user", "ada"), ("type", "news"), ("title", title), ("expires_at", end.rfc3339)]
            }
            let stored = try await Self.store(jobs, of: keys.jobs(.normal), dispatcher)
            try #require(stored.toRoute.count == 2)
            let (mine, theirs) = (stored.toRoute[0].notification.id, stored.toRoute[1].notification.id)

            let rival = ConsumerGroup(stream: keys.jobs(.normal), consumer: "rival", connection: redis)
            let claimed = try await rival.claim(stored.toAcknowledge[1], from: dispatcher.name, idle: .zero)
            #expect(claimed != nil)
            _ = try await dispatcher.database.notifications.markDelivered(
                [(NotificationKey(user: "ada", id: theirs), TestDispatcher.now)], via: "socket")
            dispatcher.leaseClock.hold(withoutGap: false)
            time.withLock { $0 = end + .seconds(60) }
            try await Router(dispatcher: dispatcher).routeAndAcknowledge(stored)

            let events = try await redis.entries(of: keys.events).map(\.texts)
            #expect(events.map { $0["event"] } == ["expired"])
            #expect(events.map { $0["notification"] } == [mine.description])
        }
    }

    @Test("after its fence, reports no end of a notification that was routed meanwhile", arguments: [true, false])
    func routedMeanwhile(isOpen: Bool) async throws {
        try await TestDispatcher.with(eventsLength: 100) { dispatcher, _ in
            var notification = TestDispatcher.notification()
            notification.delivery = .push
            notification.channels = [.push]
            notification.jobEntry = "jobs/1-0"
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            try await store.mark([(notification.key, .sent, nil, "push")])
            // Without a device, it would fail.
            let fence = isOpen ? dispatcher.fence() : dispatcher.fence(for: .zero)
            try await Router(dispatcher: dispatcher).route([RoutedNotification(notification, .stored)], within: fence)
            let events = try await dispatcher.redis.entries(of: dispatcher.keys.events).compactMap { $0.texts["event"] }
            #expect(events == (isOpen ? ["failed"] : []))
        }
    }

    @Test("after its fence, reports nothing about a user who was erased meanwhile")
    func erasedMeanwhile() async throws {
        try await TestDispatcher.with(eventsLength: 100) { dispatcher, _ in
            var notification = TestDispatcher.notification()
            notification.delivery = .push
            notification.channels = [.push]
            notification.jobEntry = "jobs/1-0"
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            _ = try await dispatcher.database.users.erase(user: "ada")
            // Without a device, it would fail.
            try await Router(dispatcher: dispatcher).route(
                [RoutedNotification(notification, .stored)], within: dispatcher.fence(for: .zero))
            let events = try await dispatcher.redis.entries(of: dispatcher.keys.events)
            #expect(events.isEmpty)
        }
    }

    @Test("after an expiry, leaves the dead letters of jobs that others took over", arguments: [false, true])
    func letters(areMoved: Bool) async throws {
        try await TestDispatcher.with { dispatcher, database in
            let keys = dispatcher.keys
            let stream = areMoved ? keys.overflow("acme") : keys.jobs(.normal)
            let jobs = (1...2).map { number in
                var fields = [("user", "ada"), ("type", "unknown"), ("title", "hello")]
                if areMoved { fields.append((JobOrigin.movedField, "\(keys.jobs(.normal))/\(number)-0")) }
                return fields
            }
            let stored = try await Self.store(jobs, of: stream, dispatcher)
            try #require(stored.dead.count == 2)

            let rival = ConsumerGroup(stream: stream, consumer: "rival", connection: dispatcher.redis)
            let claimed = try await rival.claim(stored.toAcknowledge[0], from: dispatcher.name, idle: .zero)
            #expect(claimed != nil)
            dispatcher.leaseClock.hold(withoutGap: false)
            try await Router(dispatcher: dispatcher).routeAndAcknowledge(stored)

            let letters = try await database.pool.query("SELECT entry FROM carillon.dead_letters")
            let entries = try letters.map { try $0.text(0) }
            #expect(entries == [areMoved ? "2-0" : stored.toAcknowledge[1]])
        }
    }

    @Test("leaves the events of entries that others took over")
    func events() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let group = ConsumerGroup(stream: keys.jobs(.normal), consumer: "test", connection: redis)
            var batch = StoredBatch(
                group: group, catalog: try Catalog([NotificationType(name: "news")]), fence: Fence(LeaseClock.Term()))
            batch.toAcknowledge = ["1-0", "2-0"]
            for entry in batch.toAcknowledge {
                let frame = NodeFrame(kind: .event, user: "ada", body: [])
                batch.events.append(.init(entry: entry, jobEntry: entry, org: "", job: nil, frames: [frame]))
            }
            let kept = batch.keeping(["2-0"])
            #expect(kept.toAcknowledge == ["2-0"])
            #expect(kept.events.map(\.entry) == ["2-0"])
        }
    }

    @Test("the fence of stored jobs closes by the dispatcher's clock")
    func clock() async throws {
        let instant = Mutex(ContinuousClock.now)
        try await TestDispatcher.with(instant: { instant.withLock { $0 } }) { dispatcher, _ in
            let batch = LaneBatch(lane: .normal, group: dispatcher.group(dispatcher.keys.jobs(.normal)), entries: [])
            let stored = try await JobIntake(dispatcher: dispatcher).store(batch)
            #expect(stored.fence.isOpen)
            instant.withLock { $0 += .seconds(101) }
            #expect(!stored.fence.isOpen)
        }
    }

    @Test("deliveries that are appended after the fence are repeats", arguments: [true, false])
    func fence(isOpen: Bool) async throws {
        try await TestDispatcher.with(FakeChannel.accepting()) { dispatcher, _ in
            _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
            var notification = TestDispatcher.notification(channels: [.push])
            notification.delivery = .push
            notification.jobEntry = "jobs/1-0"
            _ = try await dispatcher.database.notifications.store([notification], areRepeats: false)
            let open = RoutedNotification(notification, .stored, unread: 1)
            let fence = isOpen ? dispatcher.fence() : dispatcher.fence(for: .zero)
            try await Router(dispatcher: dispatcher).route([open], within: fence)
            #expect(try await Self.flags(dispatcher.keys.deliveries(.fcm, .normal), dispatcher.redis) == [!isOpen])
        }
    }

    @Test("reads no stream without a lease")
    func reader() async throws {
        let name = "reader-\(RandomName.make())"
        // A read waits for a third of the lease.
        try await TestDispatcher.with(lease: .seconds(3)) { dispatcher, _ in
            let redis = dispatcher.redis
            let connection = try await TestRedis.connect(clientName: name)
            let clock = dispatcher.leaseClock
            let later: Duration = .seconds(3_600)
            clock.renewed(at: .now + later)
            let stream = dispatcher.keys.jobs(.normal)
            let group = dispatcher.group(stream)
            try await group.create()
            let queue = LaneQueue<LaneBatch>(capacity: 8)
            let reader = LaneReader(
                lane: .normal, group: group, connection: connection, count: 10, dispatcher: dispatcher)
            let running = Task { try await reader.run(into: queue) }
            /// The reader's connection, as Redis lists it.
            func client() async throws -> String {
                let clients = try await redis.send("CLIENT", "LIST").string() ?? ""
                return String(clients.split(separator: "\n").first { $0.contains(" name=\(name) ") } ?? "")
            }
            try await eventually("it waits for entries") { try await client().contains(" flags=b ") }
            clock.renewed(at: .now - later)
            try await eventually("it reads no more") {
                let listed = try await client()
                return listed.contains(" flags=N ") && !listed.contains(" idle=0 ")
            }
            let rival = ConsumerGroup(stream: stream, consumer: "rival", connection: redis)
            for number in 0..<20 {
                try await Self.append([("title", "\(number)")], to: stream, redis)
                #expect(try await rival.readWaiting(count: 10).count == 1)
            }
            #expect(try await client().contains(" flags=N "))
            clock.renewed(at: .now + later, withoutGap: false)
            try await Self.append([("title", "read")], to: stream, redis)
            let batch = try #require(await queue.receive())
            #expect(batch.entries.count == 1)
            #expect(clock.holds(batch.term))
            running.cancel()
            _ = try? await running.value
            await connection.close()
        }
    }

    @Test("reads no overflow without a lease")
    func overflow() async throws {
        try await TestDispatcher.with(isLeased: false) { dispatcher, _ in
            let streams = dispatcher.live.overflows
            try await streams.append([(org: "acme", fields: [("title", Array("moved".utf8))])])
            let queue = LaneQueue<LaneBatch>(capacity: 8)
            let reader = OverflowReader(dispatcher: dispatcher, lanes: nil, queue: queue)
            #expect(await reader.roundOfAll().count == 0)
            dispatcher.leaseClock.renewed(at: .now - .seconds(20))
            #expect(await reader.roundOfAll().count == 0)
            dispatcher.leaseClock.hold(withoutGap: false)
            #expect(await reader.roundOfAll().count == 1)
            let batch = try #require(await queue.receive())
            #expect(batch.entries.count == 1)
            #expect(dispatcher.leaseClock.holds(batch.term))
        }
    }

    /// Starts a broadcast to Ada's phone, which has no page yet.
    private static func startBroadcast(_ dispatcher: Dispatcher) async throws {
        _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
        let fields = [("all", "true"), ("type", "news"), ("title", "hello"), ("delivery", "push")]
        let broadcast = Broadcast(
            id: Self.notification(1), org: "", jobID: nil, entry: "jobs/1-0", stream: "jobs",
            fields: fields.map { (name: $0.0, value: Array($0.1.utf8)[...]) }, topic: nil, lane: .normal,
            createdAt: TestDispatcher.now)
        let store = dispatcher.database.broadcasts
        #expect(try await store.add([broadcast]) == [.stored])
        try await store.counted(
            try #require(try await store.claim(.counting, by: "test")), size: 1, isConfirmed: true)
    }

    @Test("routes a broadcast's page at once whose commit was not answered")
    func unansweredPage() async throws {
        try await TestDispatcher.with(FakeChannel.accepting()) { dispatcher, database in
            try await Self.startBroadcast(dispatcher)
            let store = dispatcher.database.broadcasts
            var found: Broadcast.Chain?
            while found == nil, let next = try await store.claimChain(by: "other") {
                let users = try await store.users(next, limit: 1)
                if users == ["ada"] { found = next }
            }
            let chain = try #require(found)
            // Each try of the dispatcher fails until the page is there.
            try await database.pool.withScriptConnection { connection in
                try connection.execute(
                    """
                    UPDATE carillon.broadcast_chains SET claimed_by = NULL, claimed_until = NULL;
                    CREATE SEQUENCE carillon.tries;
                    CREATE FUNCTION carillon.fail() RETURNS trigger LANGUAGE plpgsql AS $$
                    BEGIN
                        IF current_setting('application_name') = 'test'
                            AND NOT EXISTS (SELECT FROM carillon.broadcast_pages)
                        THEN
                            PERFORM nextval('carillon.tries');
                            RAISE 'no answer' USING ERRCODE = '57P01';
                        END IF;
                        RETURN NEW;
                    END $$;
                    CREATE TRIGGER fail BEFORE INSERT ON carillon.broadcast_pages
                    FOR EACH ROW EXECUTE FUNCTION carillon.fail();
                    """
                )
            }
            async let expansion: Void = BroadcastExpansion(dispatcher: dispatcher, highWaterMark: 1_000).work()
            try await eventually("a try has failed") {
                try await database.pool.query("SELECT FROM carillon.tries WHERE is_called").count == 1
            }
            var notification = Notification(
                id: NotificationID(origin: chain.broadcast.origin.digest, user: "ada"), user: "ada", type: "news",
                createdAt: TestDispatcher.now)
            notification.channels = .push
            notification.jobEntry = chain.broadcast.entry
            notification.jobID = chain.broadcast.job
            // As the dispatcher itself would have stored it.
            let other = try PostgresPool(database.configuration(applicationName: "other"), logger: TestLog.logger)
            defer { other.close() }
            _ = try await Database(other).notifications.storeBroadcastPage(
                [notification],
                page: BroadcastStore.statements(
                    Broadcast.Page(until: "ada", selected: 1, stored: 1, counted: [:], isLast: true), of: chain),
                recount: BroadcastStore.recount(chain, [notification]))
            try await expansion
            let flags = try await Self.flags(dispatcher.keys.deliveries(.fcm, .normal), dispatcher.redis)
            #expect(flags == [true])
        }
    }

    @Test("deliveries of a broadcast's page that was stored too long ago are repeats", arguments: [true, false])
    func page(isTimely: Bool) async throws {
        // Each look at the clock is minutes after the one before, or at the same instant.
        let instants = Mutex(ContinuousClock.now)
        try await TestDispatcher.with(
            FakeChannel.accepting(),
            instant: {
                instants.withLock { instant in
                    if !isTimely { instant += .seconds(120) }
                    return instant
                }
            }
        ) { dispatcher, _ in
            try await Self.startBroadcast(dispatcher)
            try await BroadcastExpansion(dispatcher: dispatcher, highWaterMark: 1_000).work()
            #expect(try await Self.flags(dispatcher.keys.deliveries(.fcm, .normal), dispatcher.redis) == [!isTimely])
        }
    }

    @Test("queues no events for webhooks after its fence")
    func webhookQueues() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let keys = dispatcher.keys
            let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
            let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
            let webhook = Webhook(
                id: Self.notification(1), org: nil, url: "https://a.example", kinds: nil, secret: "s",
                createdAt: Timestamp(milliseconds: 0))
            let label = NotificationLabel(
                id: Self.notification(1), user: "ada", type: "news", category: nil, org: "", job: nil)
            let event = LifecycleEvent(.sent, label, at: TestDispatcher.now)
            await EventLog(keys: keys, length: 100).append([event], on: dispatcher.redis)
            let feed = dispatcher.live.eventFeed
            // The first look makes the group.
            _ = try await feed.read(from: keys.parts, count: 10)
            let batches = try await feed.read(from: keys.parts, count: 10)
            for isOpen in [false, true] {
                let fence = dispatcher.fence(for: isOpen ? .seconds(30) : .zero)
                try await service.hand(batches, to: [webhook], within: fence)
                let queued = try await dispatcher.live.webhookQueues.oldest(of: webhook.id, limit: 10)
                #expect(queued.count == (isOpen ? 1 : 0))
            }
            await transfer.shutdown()
        }
    }

    @Test("queues no events for webhooks by a list from before a stall")
    func outdatedWebhooks() async throws {
        let instant = Mutex(ContinuousClock.now)
        try await TestDispatcher.with(instant: { instant.withLock { $0 } }) { dispatcher, _ in
            let keys = dispatcher.keys
            let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
            let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
            let ids = [Self.notification(1), Self.notification(2)]
            /// Registers one of the two.
            func register(_ id: NotificationID) async throws {
                _ = try await dispatcher.database.webhooks.register(
                    Webhook(
                        id: id, org: nil, url: "https://\(id).example", kinds: nil, secret: "s",
                        createdAt: Timestamp(milliseconds: 0)))
            }
            /// Queues events, and expects a number of them in each queue.
            func distribute(_ expected: Int) async throws {
                let count = try await service.distribute(keys.parts)
                #expect(count == expected)
                for id in ids {
                    let queued = try await dispatcher.live.webhookQueues.oldest(of: id, limit: 10)
                    #expect(queued.count == expected)
                }
            }
            try await register(ids[0])
            try await service.refresh(isCheck: false)
            // The first look makes the group.
            try await distribute(0)

            try await register(ids[1])
            let label = NotificationLabel(id: ids[0], user: "ada", type: "news", category: nil, org: "", job: nil)
            let event = LifecycleEvent(.sent, label, at: TestDispatcher.now)
            await EventLog(keys: keys, length: 100).append([event], on: dispatcher.redis)
            instant.withLock { $0 += .seconds(60) }
            try await distribute(0)
            try await service.refresh(isCheck: false)
            try await distribute(1)
            await transfer.shutdown()
        }
    }

    @Test("skips events without webhooks, but not after a stall", arguments: [true, false])
    func skip(isTimely: Bool) async throws {
        // Each look at the clock is minutes after the one before, or at the same instant.
        let instants = Mutex(ContinuousClock.now)
        try await TestDispatcher.with(
            instant: {
                instants.withLock { instant in
                    if !isTimely { instant += .seconds(120) }
                    return instant
                }
            }
        ) { dispatcher, _ in
            let keys = dispatcher.keys
            let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
            let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
            let feed = dispatcher.live.eventFeed
            // The first look makes the group.
            _ = try await feed.read(from: keys.parts, count: 10)
            let label = NotificationLabel(
                id: Self.notification(1), user: "ada", type: "news", category: nil, org: "", job: nil)
            let event = LifecycleEvent(.sent, label, at: TestDispatcher.now)
            await EventLog(keys: keys, length: 100).append([event], on: dispatcher.redis)
            try await service.refresh(isCheck: true)
            let unread = try await feed.read(from: keys.parts, count: 10)
            #expect(unread.isEmpty == isTimely)
            await transfer.shutdown()
        }
    }

    @Test("sends no webhook request after its fence")
    func webhook() async throws {
        try await TestDispatcher.with(isLeased: false) { dispatcher, _ in
            try await HTTPStub.with(.init(body: "")) { stub in
                var configuration = TransferConfiguration()
                configuration.allowPlainHTTP = true
                let transfer = try TransferClient(configuration: configuration, logger: TestLog.logger)
                let queues = dispatcher.live.webhookQueues
                let id = Self.notification(1)
                _ = try await dispatcher.database.webhooks.register(
                    Webhook(id: id, org: nil, url: stub.url, kinds: nil, secret: "s", createdAt: TestDispatcher.now)
                )
                _ = try await queues.append([(id, [Array("{}".utf8)])], now: TestDispatcher.now)
                let sender = WebhookSender(dispatcher: dispatcher, transfer: transfer)
                // The claim would end before the receiver's timeout.
                await sender.send(id, within: dispatcher.fence(for: .seconds(10)))
                #expect(stub.requests == 0)
                #expect(try await queues.oldest(of: id, limit: 10).count == 1)
                await sender.send(id, within: dispatcher.fence(for: WebhookSender.hold))
                #expect(stub.requests == 1)
                #expect(try await queues.oldest(of: id, limit: 10).isEmpty)
                await transfer.shutdown()
            }
        }
    }
}
