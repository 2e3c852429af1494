// Carillon · WebhookServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct WebhookServiceTests {
    /// Returns how many commands of a name a server has had.
    private static func count(of command: String, _ redis: RedisClient) async throws -> Int {
        let text = try await redis.send("INFO", "commandstats").string() ?? ""
        guard let start = text.firstRange(of: "cmdstat_\(command):calls=") else { return 0 }
        return Int(text[start.upperBound...].prefix { $0.isNumber }) ?? 0
    }

    @Test("looks for due webhooks again soon after Redis failed")
    func failure() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestDatabase.with { database in
                let keys = Keyspace()
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys)
                let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
                let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
                // Each look fails, because this is no sorted set.
                try await redis.send("SET", .text(keys.webhooksDue), "x")
                let running = Task { try await service.run() }
                var earlier: [(at: ContinuousClock.Instant, looks: Int)] = []
                // Nine waits of the longest interval would take 45 s.
                try await eventually("it has looked nine times within 30 s") {
                    let now = ContinuousClock.now
                    let looks = try await Self.count(of: "zrange", redis)
                    defer { earlier.append((now, looks)) }
                    return earlier.contains { now - $0.at < .seconds(30) && looks - $0.looks >= 9 }
                }
                running.cancel()
                try await running.value
            }
        }
    }

    @Test("a request that got no turn in our own queue is no failure of its receiver, and is made soon")
    func noTurn() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            var configuration = TransferConfiguration()
            // Every request finds the queue full.
            configuration.maximumInFlight = 0
            configuration.maximumWaiting = 0
            let transfer = try TransferClient(configuration: configuration, logger: TestLog.logger)
            let store = dispatcher.database.webhooks
            let queues = dispatcher.live.webhookQueues
            let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)
            _ = try await store.register(
                Webhook(
                    id: id, org: nil, url: "https://a.example", kinds: nil, secret: "s",
                    createdAt: TestDispatcher.now))
            _ = try await queues.append([(id, [Array("{}".utf8)])], now: TestDispatcher.now)
            let sender = WebhookSender(dispatcher: dispatcher, transfer: transfer)
            await sender.send(id, within: dispatcher.fence(for: WebhookSender.hold))
            let webhook = try #require(try await store.find(id))
            #expect(webhook.status == .active && webhook.failingSince == nil)
            #expect(try await queues.nextDue() == TestDispatcher.now + .seconds(1))
            await transfer.shutdown()
        }
    }

    /// A webhook with an event in its queue, and its receiver.
    private struct Scene {
        let sender: WebhookSender
        let webhook: NotificationID
        let receiver: HTTPStub
        /// When the event was queued.
        let start: Timestamp

        private var dispatcher: Dispatcher { self.sender.dispatcher }

        /// When the webhook is due again.
        var due: Timestamp? { get async throws { try await self.dispatcher.live.webhookQueues.nextDue() } }
        /// The number of events that wait.
        var waiting: Int {
            get async throws {
                try await self.dispatcher.live.webhookQueues.oldest(of: self.webhook, limit: 1_000).count
            }
        }

        /// Queues more events.
        func queue(_ count: Int) async throws {
            let events = Array(repeating: Array("{}".utf8), count: count)
            _ = try await self.dispatcher.live.webhookQueues.append([(self.webhook, events)], now: self.start)
        }

        func send(while mayGoOn: @Sendable () -> Bool = { true }) async {
            await self.sender.send(
                self.webhook, within: self.dispatcher.fence(for: WebhookSender.hold), while: mayGoOn)
        }

        func find() async throws -> Webhook? { try await self.dispatcher.database.webhooks.find(self.webhook) }
    }

    /// Runs `body` with a webhook.
    ///
    /// - Parameters:
    ///   - answer: that of the receiver.
    ///   - passed: the time since the event was queued.
    ///   - instant: the clock of the dispatcher's claims.
    private static func with(
        _ answer: HTTPStub.Answer,
        passed: @escaping @Sendable () -> Duration = { .zero },
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        _ body: (Scene) async throws -> Void
    ) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await HTTPStub.with(answer) { receiver in
                    let keys = Keyspace(prefix: prefix)
                    // Redis's clock, by which events grow old.
                    let start = Timestamp(milliseconds: try await Live(redis, keys: keys).survey.time().milliseconds)
                    let dispatcher = try TestDispatcher.make(
                        database.pool, redis, keys, now: { start + passed() }, instant: instant)
                    var configuration = TransferConfiguration()
                    configuration.allowPlainHTTP = true
                    let transfer = try TransferClient(configuration: configuration, logger: TestLog.logger)
                    let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)
                    _ = try await dispatcher.database.webhooks.register(
                        Webhook(id: id, org: nil, url: receiver.url, kinds: nil, secret: "s", createdAt: start))
                    _ = try await dispatcher.live.webhookQueues.append([(id, [Array("{}".utf8)])], now: start)
                    let sender = WebhookSender(dispatcher: dispatcher, transfer: transfer)
                    try await body(Scene(sender: sender, webhook: id, receiver: receiver, start: start))
                    await transfer.shutdown()
                }
            }
        }
    }

    @Test("a receiver that answers gets all of its events from one claim")
    func backlog() async throws {
        try await Self.with(HTTPStub.Answer(body: "ok")) { scene in
            try await scene.queue(999)
            await scene.send()
            #expect(scene.receiver.requests == 10)
            #expect(try await scene.waiting == 0)
            #expect(try await scene.due == nil)
        }
    }

    @Test("a webhook with more events gives way to those that wait for a turn, and is due at once")
    func givesWay() async throws {
        try await Self.with(HTTPStub.Answer(body: "ok")) { scene in
            try await scene.queue(999)
            await scene.send { false }
            #expect(scene.receiver.requests == 1)
            #expect(try await scene.waiting == 900)
            let due = try await scene.due
            #expect(due == scene.start)
        }
    }

    @Test("a webhook stays claimed between two requests, and gets none near the end of its claim")
    func staysClaimed() async throws {
        let start = ContinuousClock.now
        let passed = Mutex(Duration.zero)
        try await Self.with(HTTPStub.Answer(body: "ok"), instant: { start + passed.withLock { $0 } }) { scene in
            try await scene.queue(999)
            await scene.send {
                // Too little is left of the claim for another request.
                passed.withLock { $0 = WebhookSender.hold - .seconds(10) }
                return true
            }
            #expect(scene.receiver.requests == 1)
            #expect(try await scene.waiting == 900)
            let due = try await scene.due
            #expect(due == scene.start + .seconds(10))
        }
    }

    @Test(
        "a request that outlasts its claim leaves the webhook to the dispatcher that has claimed it since",
        arguments: [200, 410, 503])
    func outlastsClaim(status: Int) async throws {
        let start = ContinuousClock.now
        let receiver = Mutex<HTTPStub?>(nil)
        // The dispatcher stalls during its request.
        let instant: @Sendable () -> ContinuousClock.Instant = {
            let requests = receiver.withLock { $0?.requests ?? 0 }
            return start + (requests > 0 ? Duration.seconds(70) : .zero)
        }
        try await Self.with(HTTPStub.Answer(status: status, body: ""), instant: instant) { scene in
            receiver.withLock { $0 = scene.receiver }
            try await scene.queue(999)
            let claimed = try await scene.sender.dispatcher.live.webhookQueues.claimDue(
                now: scene.start + .seconds(60), hold: WebhookSender.hold, limit: 1)
            #expect(claimed == [scene.webhook])
            await scene.send()
            #expect(scene.receiver.requests == 1)
            let waiting = try await scene.waiting
            #expect(waiting == (status == 200 ? 900 : 1_000))
            let due = try await scene.due
            #expect(due == scene.start + .seconds(120))
            let webhook = try #require(try await scene.find())
            #expect(webhook.status == .active)
        }
    }

    @Test("queues events again if Redis came back without them before the acknowledgement")
    func lostEvents() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let redis = dispatcher.redis
            let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
            let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
            let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)
            let webhook = Webhook(
                id: id, org: nil, url: "https://a.example", kinds: nil, secret: "s",
                createdAt: Timestamp(milliseconds: 0))
            let label = NotificationLabel(id: id, user: "ada", type: "news", category: nil, org: "", job: nil)
            let event = LifecycleEvent(.sent, label, at: TestDispatcher.now)
            await EventLog(keys: dispatcher.keys, length: 100).append([event], on: redis)
            let feed = dispatcher.live.eventFeed
            // The first look makes the group.
            _ = try await feed.read(from: dispatcher.keys.parts, count: 10)
            let batches = try await feed.read(from: dispatcher.keys.parts, count: 10)
            let queue = RedisArgument.text(dispatcher.keys.webhookQueue(id))
            let stream = RedisArgument.text(dispatcher.keys.events)
            let aside = RedisArgument.text("\(dispatcher.keys.events):aside")
            // The acknowledgement fails, because this is no stream.
            try await redis.send("RENAME", stream, aside)
            try await redis.send("SET", stream, "x")
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    try await service.hand(batches, to: [webhook], within: dispatcher.fence(for: .seconds(600)))
                }
                try await eventually("the event is queued") { try await redis.send("XLEN", queue).integer() == 1 }
                try await redis.send("DEL", queue)
                let session = redis.session
                let identifier = try await redis.send("CLIENT", "ID").integer()
                _ = try? await redis.send("CLIENT", "KILL", "ID", .integer(identifier), "SKIPME", "no")
                try await eventually("the connection reopens") { redis.session != session }
                try await redis.send("RENAME", aside, stream)
                try await group.waitForAll()
            }
            let queued = try await redis.send("XLEN", queue).integer()
            #expect(queued == 1)
            let unacknowledged = try await feed.takeOver(from: dispatcher.keys.parts, idle: .zero, count: 10)
            #expect(unacknowledged.isEmpty)
            await transfer.shutdown()
        }
    }

    /// Makes a webhook whose queue is full, and reads an event for it.
    private static func overfill(_ dispatcher: Dispatcher) async throws -> (Webhook, [EventFeed.Batch]) {
        let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)
        let webhook = Webhook(
            id: id, org: nil, url: "https://a.example", kinds: nil, secret: "s",
            createdAt: Timestamp(milliseconds: 0))
        let full = Array(repeating: Array("{}".utf8), count: WebhookQueues.bound)
        _ = try await dispatcher.live.webhookQueues.append([(id, full)], now: TestDispatcher.now)
        let label = NotificationLabel(id: id, user: "ada", type: "news", category: nil, org: "", job: nil)
        let event = LifecycleEvent(.sent, label, at: TestDispatcher.now)
        await EventLog(keys: dispatcher.keys, length: 100).append([event], on: dispatcher.redis)
        let feed = dispatcher.live.eventFeed
        // The first look makes the group.
        _ = try await feed.read(from: dispatcher.keys.parts, count: 10)
        let batches = try await feed.read(from: dispatcher.keys.parts, count: 10)
        #expect(!batches.isEmpty)
        return (webhook, batches)
    }

    @Test("events are queued and acknowledged although PostgreSQL cannot record that others were dropped")
    func unrecordedDrops() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
            let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
            let (webhook, batches) = try await Self.overfill(dispatcher)
            try await database.pool.query("ALTER TABLE carillon.webhooks RENAME TO webhooks_away")
            try await service.hand(batches, to: [webhook], within: dispatcher.fence(for: .seconds(30)))
            let queued = try await dispatcher.live.webhookQueues.oldest(of: webhook.id, limit: WebhookQueues.bound)
            #expect(queued.count == WebhookQueues.bound)
            #expect(queued.last.map { $0.json.count > 2 } == true)
            let unacknowledged = try await dispatcher.live.eventFeed.takeOver(
                from: dispatcher.keys.parts, idle: .zero, count: 10)
            #expect(unacknowledged.isEmpty)
            await transfer.shutdown()
        }
    }

    @Test("the log names a webhook that lost events, at most once a minute")
    func loggedDrops() async throws {
        let passed = Mutex(Duration.zero)
        let lines = LogRecorder(from: .warning) { event in
            let facts = (event.metadata ?? [:]).map { "\($0.key) \($0.value)" }
            return "\(event.message): \(facts.joined(separator: ", "))"
        }
        try await TestDispatcher.with(
            now: { TestDispatcher.now + passed.withLock { $0 } }, logger: lines.logger
        ) { dispatcher, _ in
            let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
            let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
            let (webhook, batches) = try await Self.overfill(dispatcher)
            let text = "webhook queue is full; dropped its oldest events because the receiver is too slow"
            let line = "\(text): webhook \(webhook.id)"
            for (seconds, count) in [(0, 1), (59, 1), (60, 2)] {
                passed.withLock { $0 = .seconds(seconds) }
                try await service.hand(batches, to: [webhook], within: dispatcher.fence(for: .seconds(30)))
                #expect(lines.all == Array(repeating: line, count: count), "after \(seconds) s")
            }
            await transfer.shutdown()
        }
    }

    @Test("events from before the installation grew are queued by the dispatchers of the first part")
    func growth() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let former = Keyspace(prefix: prefix, parts: 4)
                let keys = Keyspace(prefix: prefix, parts: 16, former: [4])
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys)
                let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
                let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
                let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)
                _ = try await dispatcher.database.webhooks.register(
                    Webhook(
                        id: id, org: nil, url: "https://a.example", kinds: nil, secret: "s",
                        createdAt: Timestamp(milliseconds: 0)))
                // The first look makes the groups.
                _ = try await Live(redis, keys: former).eventFeed.read(from: former.parts, count: 10)
                let label = NotificationLabel(id: id, user: "ada", type: "news", category: nil, org: "", job: nil)
                let event = LifecycleEvent(.sent, label, at: TestDispatcher.now)
                await EventLog(keys: former, length: 100).append([event], on: redis)
                let queue = RedisArgument.text(keys.webhookQueue(id))
                // Others have the first part, until they lose their leases.
                dispatcher.share.update((0..<40).map { "dispatcher-\($0)" })
                try #require(!dispatcher.share.owns(keys.parts[0]))
                try await service.refresh(isCheck: true)
                #expect(try await redis.send("XLEN", queue).integer() == 0)
                dispatcher.share.update([])
                try await service.refresh(isCheck: true)
                #expect(try await redis.send("XLEN", queue).integer() == 1)
                await transfer.shutdown()
            }
        }
    }

    @Test("a webhook that was renewed after its last failure is not switched off", arguments: [true, false])
    func renewedMeanwhile(isRenewed: Bool) async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let store = dispatcher.database.webhooks
            let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)
            let webhook = Webhook(
                id: id, org: nil, url: "https://a.example", kinds: nil, secret: "s", createdAt: TestDispatcher.now)
            _ = try await store.register(webhook)
            let failures = try #require(
                try await store.recordFailure(id, reason: "no answer", at: TestDispatcher.now))
            if isRenewed { _ = try await store.register(webhook) }
            let isOff = try await store.switchOff(id, failingSince: failures.since, reason: "failed for days")
            #expect(isOff == !isRenewed)
            let status = try await store.find(id)?.status
            #expect(status == (isRenewed ? Webhook.Status.active : Webhook.Status.off))
        }
    }

    @Test(
        "switches a webhook off after five days and 100 failed requests, not after one of the two",
        arguments: [(1, 6, false), (99, 5, true), (98, 5, false), (99, 4, false)])
    func endurance(failures: Int, days: Int, isOff: Bool) async throws {
        let answer = HTTPStub.Answer(status: 503, body: "")
        try await Self.with(answer, passed: { .seconds(days * 86_400) }) { scene in
            let store = scene.sender.dispatcher.database.webhooks
            for _ in 0..<failures {
                _ = try await store.recordFailure(scene.webhook, reason: "no answer", at: scene.start)
            }
            await scene.send()
            let webhook = try #require(try await scene.find())
            #expect(webhook.status == (isOff ? Webhook.Status.off : Webhook.Status.failing))
            #expect(try await scene.waiting == 0)
        }
    }

    @Test("a receiver's Retry-After is respected, up to an hour", arguments: [(7, 7), (7_200, 3_600)])
    func retryAfter(seconds: Int, wait: Int) async throws {
        let answer = HTTPStub.Answer(status: 503, body: "", headers: [("retry-after", "\(seconds)")])
        try await Self.with(answer) { scene in
            await scene.send()
            let due = try await scene.due
            #expect(due == scene.start + .seconds(wait))
        }
    }

    @Test("a redirect is a failure and is not followed")
    func redirect() async throws {
        let answer = HTTPStub.Answer(status: 302, body: "", headers: [("location", "/elsewhere")])
        try await Self.with(answer) { scene in
            await scene.send()
            let webhook = try #require(try await scene.find())
            #expect(webhook.status == .failing && webhook.statusReason == "answered with status 302")
            #expect(scene.receiver.requests == 1)
            #expect(try await scene.waiting == 1)
        }
    }

    @Test("an event that its receiver has not accepted for a day is dropped")
    func old() async throws {
        let passed = Mutex(Duration.zero)
        try await Self.with(HTTPStub.Answer(status: 503, body: ""), passed: { passed.withLock { $0 } }) { scene in
            for (hours, waiting) in [(0, 1), (23, 1), (25, 0)] {
                passed.withLock { $0 = .seconds(hours * 3_600) }
                await scene.send()
                let left = try await scene.waiting
                #expect(left == waiting, "after \(hours) h")
            }
            #expect(scene.receiver.requests == 3)
        }
    }
}
