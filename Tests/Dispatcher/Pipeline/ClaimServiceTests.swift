// Carillon · ClaimServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Providers
import Support
import Synchronization
import Testing

@testable import Pipeline
@testable import Storage

/// Deliveries that dead dispatchers left.
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

        var stream: String { self.stream(of: "ada", .normal) }

        func stream(of user: String, _ lane: Lane) -> String { self.keys.part(of: user).deliveries(.fcm, lane) }

        /// Stores a notification of a user, whose delivery a dead dispatcher left pending.
        func leave(_ number: UInt64, of user: String, _ lane: Lane = .normal) async throws {
            let work = try await ClaimServiceTests.store(number, of: user, self.dispatcher.database).work
            try await ClaimServiceTests.leave(work.bytes, in: self.stream(of: user, lane), deliveries: "1", self.redis)
        }

        /// Waits until the claim service has settled every entry of a stream; nil for that of Ada.
        func takeOver(_ stream: String? = nil) async throws {
            self.dispatcher.leaseClock.hold()
            let claims = ClaimService(dispatcher: self.dispatcher, deliveries: [self.service])
            let running = Task { try await claims.run() }
            defer { running.cancel() }
            try await eventually("the stream is empty") {
                try await self.redis.send("XLEN", .text(stream ?? self.stream)).integer() == 0
            }
        }

        func stored() async throws -> Notification? {
            try await self.dispatcher.database.notifications.load([self.notification.key]).first
        }

        func texts(_ query: String) async throws -> [String] {
            try await self.pool.query(query).map { try $0.text(0) }
        }
    }

    /// - Parameters:
    ///   - text: the entry's text; nil for that of the delivery.
    ///   - server: the Redis; nil for the shared one.
    private static func with(
        deliveries: String,
        text: String? = nil,
        parts: Int = 1,
        channel: FakeChannel = .accepting(),
        server: RedisServer? = nil,
        _ body: (Scene) async throws -> Void
    ) async throws {
        let own = try server.map { try TestRedis.patientConfiguration(url: $0.url, clientName: "test") }
        try await TestRedis.with({ if let own { $0 = own } }) { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix, parts: parts)
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, [channel], eventsLength: 100)
                let (notification, work) = try await Self.store(1, of: "ada", dispatcher.database)
                let scene = Scene(
                    dispatcher: dispatcher,
                    service: DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: []),
                    pool: database.pool, redis: redis, keys: keys, notification: notification)
                let bytes = text.map { Array($0.utf8) } ?? work.bytes
                try await Self.leave(bytes, in: scene.stream, deliveries: deliveries, redis)
                try await body(scene)
            }
        }
    }

    /// Stores a user's phone and queued notification.
    private static func store(
        _ number: UInt64,
        of user: String,
        _ database: Database
    ) async throws -> (notification: Notification, work: DeliveryWork) {
        let phone = try await database.devices.register(
            TestDispatcher.phone(number, of: user, token: "phone-\(number)")
        ).device
        var notification = TestDispatcher.notification(number, of: user, channels: [.inApp, .push])
        notification.jobEntry = "jobs/\(number)-0"
        _ = try await database.notifications.store([notification], areRepeats: false)
        try await database.notifications.mark([(notification.key, .pending, "queued", nil)])
        let work = DeliveryWork(
            notification: notification.id, device: phone.id, user: user, attempt: 0, isRepeat: false)
        return (notification, work)
    }

    /// Appends a delivery that a dead dispatcher was handed this often.
    private static func leave(
        _ bytes: [UInt8],
        in stream: String,
        deliveries: String,
        _ redis: RedisClient
    ) async throws {
        try await Self.leave([(DeliveryWork.field, bytes)], in: stream, deliveries: deliveries, redis)
    }

    private static func leave(
        _ fields: [(name: String, value: [UInt8])],
        in stream: String,
        deliveries: String,
        _ redis: RedisClient
    ) async throws {
        let gone = ConsumerGroup(stream: stream, consumer: "gone", connection: redis)
        try await gone.create()
        var batch = RedisBatch()
        batch.append(entry: fields, to: stream)
        try await redis.run(batch)
        let entry = try #require(try await gone.readWaiting(count: 1).first)
        try await redis.send(
            "XCLAIM", .text(stream), "dispatchers", "gone", "0", .text(entry.id), "IDLE", "60000",
            "RETRYCOUNT", .text(deliveries), "JUSTID")
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

            try await scene.pool.query("UPDATE carillon.dead_letters SET replay_at = '2020-01-01'")
            #expect(try await ReplayService(dispatcher: scene.dispatcher).replay().count == 1)
            let group = scene.dispatcher.group(scene.stream)
            let entries = try await group.readWaiting(count: 10)
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
            scene.dispatcher.leaseClock.hold()
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

    @Test("sets aside an oversized entry with its size, without its fields")
    func oversized() async throws {
        try await Self.with(deliveries: "1") { scene in
            let stream = scene.keys.part(of: "ada").jobs(.normal)
            try await Self.leave(Array(repeating: 0x78, count: 5_000_000), in: stream, deliveries: "1", scene.redis)
            try await scene.takeOver(stream)
            let fields = try await scene.texts("SELECT fields::text FROM carillon.dead_letters")
            #expect(fields.count == 1)
            #expect(fields.first?.contains("\(DeadLetter.cutField)") == true)
            #expect(fields.first?.contains("an entry of 5000") == true)
            #expect(fields.first?.contains("xxx") == false)
        }
    }

    @Test("sets aside an entry of half a million fields with its size, and keeps the connection")
    func countless() async throws {
        try await Self.with(deliveries: "1") { scene in
            let stream = scene.keys.part(of: "ada").jobs(.normal)
            let session = scene.redis.session
            let field = (name: "a", value: Array("1".utf8))
            try await Self.leave(
                Array(repeating: field, count: 500_001), in: stream, deliveries: "1", scene.redis)
            try await scene.takeOver(stream)
            let fields = try await scene.texts("SELECT fields::text FROM carillon.dead_letters")
            #expect(fields == [#"[["carillon:cut", "an entry of 1000002 bytes in 500001 fields"]]"#])
            #expect(scene.redis.session == session)
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

    @Test("takes over the critical deliveries of all parts before the bulk ones of any")
    func lanes() async throws {
        let users = Mutex<[String]>([])
        let channel = FakeChannel { _, device in
            users.withLock { $0.append(device.user) }
            return .answered(.accepted(id: "1"))
        }
        try await Self.with(deliveries: "1", parts: 4, channel: channel) { scene in
            let names = (0..<1_000).map { "user-\($0)" }
            let first = try #require(names.first { scene.keys.part(of: $0).index == 0 })
            let last = try #require(names.first { scene.keys.part(of: $0).index == 3 })
            try await scene.leave(2, of: first, .bulk)
            try await scene.leave(3, of: last, .critical)
            try await scene.takeOver(scene.stream(of: first, .bulk))
            #expect(users.withLock { $0 } == [last, "ada", first])
        }
    }

    @Test("looks at no further stream once it is cancelled while Redis does not answer")
    func cancelled() async throws {
        let server = try await RedisServer.start()
        var configuration = try server.configuration()
        configuration.commandTimeout = .milliseconds(100)
        let lines = LogRecorder(from: .warning) { "\($0.message)" }
        try await TestRedis.with(configuration) { redis in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(parts: 64), logger: lines.logger)
                try await server.stall()
                let claims = ClaimService(dispatcher: dispatcher, deliveries: [])
                let running = Task { try await claims.run() }
                try await eventually("a look has failed") { !lines.all.isEmpty }
                let count = lines.all.count
                running.cancel()
                try await running.value
                // The stream of the moment, and one that was begun before the cancellation.
                #expect(lines.all.count <= count + 2)
                server.resume()
            }
        }
    }

    @Test("looks for its entries in a part that it gave up for as long as no look succeeds")
    func unclear() async throws {
        let passed = Mutex(Duration.zero)
        let warnings = LogRecorder(from: .warning) { "\($0.message)" }
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(prefix: prefix, parts: 16),
                    instant: { .now + passed.withLock { $0 } }, lease: .seconds(3), logger: warnings.logger)
                let others = (0..<8).map { "other-\($0)" }
                dispatcher.share.update([])
                dispatcher.share.update(others)
                let part = try #require(dispatcher.share.knownParts.first { !dispatcher.share.owns($0) })
                func isKnown() -> Bool {
                    passed.withLock { $0 += .seconds(301) }
                    dispatcher.share.update(others)
                    return dispatcher.share.knownParts.contains { $0.index == part.index }
                }
                let streams = Lane.allCases.map { RedisArgument.text(part.jobs($0)) }
                for stream in streams { try await redis.send("SET", stream, "no stream") }
                let claims = ClaimService(dispatcher: dispatcher, deliveries: [])
                let running = Task { try await claims.run() }
                defer { running.cancel() }
                try await eventually("a look has failed") { !warnings.all.isEmpty }
                #expect(isKnown())
                try await redis.send(["DEL"] + streams)
                try await eventually("a look succeeds") { !isKnown() }
            }
        }
    }

    @Test("a delivery that another dispatcher took over meanwhile is left to it, however long its call takes")
    func takenMeanwhile() async throws {
        let calls = Mutex(0)
        let gate = Gate()
        let channel = FakeChannel.accepting { _ in
            calls.withLock { $0 += 1 }
            await gate.wait()
        }
        try await Self.with(deliveries: "1", channel: channel) { scene in
            // One more than are called at once.
            for number in 2...17 { try await scene.leave(UInt64(number), of: "user-\(number)") }
            scene.dispatcher.leaseClock.hold()
            let claims = ClaimService(dispatcher: scene.dispatcher, deliveries: [scene.service])
            let running = Task { try await claims.run() }
            defer { running.cancel() }
            try await eventually("16 calls are in flight") { calls.withLock { $0 } == 16 }
            let group = scene.dispatcher.group(scene.stream)
            let left = try await group.pending(of: "gone", count: 10).map(\.id)
            try #require(left.count == 1)
            try await scene.redis.send("SET", .text(scene.keys.dispatcherLease("other")), "dispatcher")
            try await scene.redis.send(
                "XCLAIM", .text(scene.stream), "dispatchers", "other", "0", .text(left[0]), "IDLE", "60000", "JUSTID")
            await gate.open()
            try await eventually("nothing is left of the dead dispatcher") {
                try await !group.consumers().map(\.name).contains("gone")
            }
            #expect(calls.withLock { $0 } == 16)
            let kept = try await group.pending(of: "other", count: 10).map(\.id)
            #expect(kept == left)
        }
    }

    @Test("a dispatcher that is stopped during a takeover does not count as one that died", arguments: [1, 3])
    func stopped(deliveries: Int) async throws {
        try await Self.with(deliveries: "\(deliveries)") { scene in
            // The takeover retries until it is cancelled.
            try await scene.pool.query("ALTER TABLE carillon.delivery_attempts RENAME TO away")
            scene.dispatcher.leaseClock.hold()
            let claims = ClaimService(dispatcher: scene.dispatcher, deliveries: [scene.service])
            let running = Task { try await claims.run() }
            let group = scene.dispatcher.group(scene.stream)
            func counts() async throws -> [Int] {
                try await group.pending(of: scene.dispatcher.name, count: 10).map(\.deliveries)
            }
            try await eventually("it is taken over") { try await counts() == [deliveries + 1] }
            running.cancel()
            try await running.value
            #expect(try await counts() == [deliveries])
        }
    }

    @Test("an error during a takeover cancels no call to the provider")
    func callsInFlight() async throws {
        let calls = Mutex(0)
        let cancelled = Mutex(0)
        let (first, others) = (Gate(), Gate())
        let channel = FakeChannel.accepting { _ in
            let number = calls.withLock { count in
                count += 1
                return count
            }
            await (number == 1 ? first : others).wait()
            if Task.isCancelled { cancelled.withLock { $0 += 1 } }
        }
        // On a server of its own, the claim is the only call that fails without a group.
        let server = try await RedisServer.start()
        try await Self.with(deliveries: "1", channel: channel, server: server) { scene in
            // One more than are called at once.
            for number in 2...17 { try await scene.leave(UInt64(number), of: "user-\(number)") }
            func errors() async throws -> Substring? {
                let text = try await scene.redis.send("INFO", "errorstats").string() ?? ""
                return text.split(whereSeparator: \.isNewline).first { $0.hasPrefix("errorstat_NOGROUP") }
            }
            scene.dispatcher.leaseClock.hold()
            let claims = ClaimService(dispatcher: scene.dispatcher, deliveries: [scene.service])
            let running = Task { try await claims.run() }
            defer { running.cancel() }
            try await eventually("16 calls are in flight") { calls.withLock { $0 } == 16 }
            // The last delivery cannot be claimed.
            try await scene.redis.send("XGROUP", "DESTROY", .text(scene.stream), "dispatchers")
            let before = try await errors()
            await first.open()
            try await eventually("the claim has failed") { try await errors() != before }
            await others.open()
            try await eventually("the calls are settled") {
                try await scene.redis.send("XLEN", .text(scene.stream)).integer() == 1
            }
            #expect(calls.withLock { $0 } == 16)
            #expect(cancelled.withLock { $0 } == 0)
        }
    }
}
