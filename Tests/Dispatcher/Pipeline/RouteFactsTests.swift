// Carillon · RouteFactsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import NIOPosix
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

/// The facts for decisions about notifications.
@Suite(.timeLimit(.minutes(10)))
struct RouteFactsTests {
    @Test("a user who is online stays so while Redis loads its data, so no push goes out for it")
    func loading() async throws {
        let server = try await RedisServer.startSlowLoader()
        try await TestDatabase.with { database in
            try await TestRedis.with(try server.configuration()) { redis in
                let dispatcher = try TestDispatcher.make(database.pool, redis, Keyspace())
                let since = Timestamp(milliseconds: 5)
                let connection = ConnectionPresence(
                    connection: "c1", node: "n", dialect: .native, state: .active, since: since)
                _ = try await dispatcher.presence.register([("ada", connection)])
                try await redis.send("SET", .text(dispatcher.keys.nodeLease("n")), "gateway")
                var isLoading = false
                // A busy machine may ask only after it has loaded them.
                for _ in 1...10 where !isLoading {
                    try await server.fillAndKill()
                    async let restarted: Void = server.start()
                    try await eventually("it loads, or has loaded") {
                        do {
                            try await redis.send("GET", "key-1")
                            return true
                        } catch {
                            isLoading = "\(error)".contains("LOADING")
                            return isLoading
                        }
                    }
                    let presence = try await RouteFacts.presence(of: ["ada"], dispatcher)
                    #expect(presence == ["ada": .online([connection])])
                    try await restarted
                }
                #expect(isLoading)
            }
        }
    }

    @Test("presence has each of its users, who may occur twice")
    func distinct() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let connection = ConnectionPresence(
                connection: "c1", node: "n", dialect: .native, state: .active, since: Timestamp(milliseconds: 5))
            _ = try await dispatcher.presence.register([("ada", connection)])
            try await dispatcher.redis.send("SET", .text(dispatcher.keys.nodeLease("n")), "gateway")
            let presence = try await RouteFacts.presence(of: ["bob", "ada", "bob", "ada"], dispatcher)
            #expect(presence == ["ada": .online([connection]), "bob": .offline])
        }
    }
}

@Suite("Caps of routed notifications", .timeLimit(.minutes(10)))
struct RoutedCapTests {
    @Test("do not count notifications of an offline user without a device")
    func unreachable() async throws {
        var type = NotificationType(name: "news")
        type.cap = FrequencyCap(count: 1, window: .seconds(3_600))
        try await TestDispatcher.with(FakeChannel(), types: [type]) { dispatcher, _ in
            func caps(_ numbers: ClosedRange<UInt64>) async throws -> [CapScope?] {
                let items = numbers.map { number in
                    let notification = TestDispatcher.notification(number, channels: [.inApp, .push])
                    return RoutedNotification(notification, .stored)
                }
                let facts = try await RouteFacts(items, catalog: dispatcher.catalog, dispatcher: dispatcher)
                return items.indices.map { facts.facts(at: $0, now: TestDispatcher.now).cap }
            }
            #expect(try await caps(1...2) == [nil, nil])
            _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
            #expect(try await caps(3...4) == [nil, .type])
        }
    }
}

@Suite("Mail of routed notifications", .timeLimit(.minutes(10)))
struct RoutedMailTests {
    @Test("goes out once to a user who is online, although no socket proves receipt")
    func once() async throws {
        try await TestDispatcher.with(FakeChannel(provider: .email)) { dispatcher, database in
            let connection = ConnectionPresence(
                connection: "c1", node: "n", dialect: .signalr, state: .active, since: TestDispatcher.now)
            _ = try await dispatcher.presence.register([("ada", connection)])
            try await dispatcher.redis.send("SET", .text(dispatcher.keys.nodeLease("n")), "gateway")
            let notification = TestDispatcher.notification(channels: [.inApp, .email])
            let store = dispatcher.database.notifications
            _ = try await store.store([notification], areRepeats: false)
            try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, email) VALUES ('ada', 'ada@example.com')")
            try await Router(dispatcher: dispatcher).route([RoutedNotification(notification, .stored)])
            try await database.pool.query(
                "UPDATE carillon.notifications SET stored_at = now() - interval '10 minutes'")
            try await database.pool.query("UPDATE carillon.sweep SET swept_until = now() - interval '1 hour'")
            try await SweepService(dispatcher: dispatcher).sweep()
            let stream = RedisArgument.text(dispatcher.keys.deliveries(.email, .normal))
            #expect(try await dispatcher.redis.send("XLEN", stream).integer() == 1)
            let rows = try await database.pool.query(
                "SELECT concat_ws(' ', status, status_reason, sent_via) FROM carillon.notifications")
            #expect(try rows.map { try $0.text(0) } == ["sent unproven socket"])
        }
    }
}

@Suite("Frames of routed notifications", .timeLimit(.minutes(10)))
struct RoutedFrameTests {
    /// Stores two notifications of a user who has a socket.
    private static func prepare(_ dispatcher: Dispatcher) async throws -> [Notification] {
        let connection = ConnectionPresence(
            connection: "c1", node: "n", dialect: .native, state: .active, since: TestDispatcher.now)
        _ = try await dispatcher.presence.register([("ada", connection)])
        try await dispatcher.redis.send("SET", .text(dispatcher.keys.nodeLease("n")), "gateway")
        let notifications = (1...2).map { number in
            var notification = TestDispatcher.notification(UInt64(number), channels: [.inApp, .push])
            notification.jobEntry = "jobs/\(number)-0"
            return notification
        }
        _ = try await dispatcher.database.notifications.store(notifications, areRepeats: false)
        return notifications
    }

    @Test("give sockets the full time for their proof, however late they go out")
    func late() async throws {
        let seconds = Mutex<Int64>(0)
        // Each look at the clock comes two seconds after the one before.
        try await TestDispatcher.with(
            FakeChannel(),
            now: {
                seconds.withLock { $0 += 2 }
                return TestDispatcher.now + .seconds(seconds.withLock { $0 })
            }
        ) { dispatcher, _ in
            let keys = dispatcher.keys
            let notifications = try await Self.prepare(dispatcher)
            try await Router(dispatcher: dispatcher).route([RoutedNotification(notifications[0], .stored)])
            // The last look comes once Redis has taken the frames.
            let deadline = TestDispatcher.now + .seconds(seconds.withLock { $0 } + 5)
            let set = RedisArgument.text(keys.proofDeadlines(shard: keys.proofShard(user: "ada")))
            let members = try await dispatcher.redis.send("ZRANGE", set, "0", "-1", "WITHSCORES").strings()
            #expect(members.count == 2)
            #expect(members.last == "\(deadline.milliseconds)")
        }
    }

    @Test("give sockets the full time although Redis has run a try that failed here")
    func failedTry() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let passed = Mutex<Duration>(.zero)
                let failed = LogRecorder(from: .warning) { $0.metadata?["step"]?.description ?? "" }
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, keys, [FakeChannel()],
                    now: { TestDispatcher.now + passed.withLock { $0 } }, logger: failed.logger)
                let notification = try await Self.prepare(dispatcher)[0]
                // Redis refuses the first tries.
                let set = RedisArgument.text(keys.proofDeadlines(shard: keys.proofShard(user: "ada")))
                try await redis.send("SET", set, "no set")
                async let routed: Void = Router(dispatcher: dispatcher).route([
                    RoutedNotification(notification, .stored)
                ])
                try await eventually("a try fails") { failed.all.contains("publish frames") }
                passed.withLock { $0 = .milliseconds(5_500) }
                // Redis has run the first one late: its deadline is over, and later tries keep it.
                let member = AwaitedProof(id: notification.id, user: "ada", lane: notification.lane)
                let deadline = TestDispatcher.now + .seconds(5)
                let late = RedisArgument.text(prefix + "late")
                try await redis.send("ZADD", late, .integer(deadline.milliseconds), .bytes(member.bytes))
                try await redis.send("RENAME", late, set)
                try await routed
                let members = try await redis.send("ZRANGE", set, "0", "-1", "WITHSCORES").strings()
                #expect(members.count == 2)
                #expect(members.last == "\((deadline + .milliseconds(5_500)).milliseconds)")
            }
        }
    }

    @Test("of a repeated job go out again, unless the notification was read since")
    func repeated() async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, _ in
            let keys = dispatcher.keys
            let notifications = try await Self.prepare(dispatcher)
            _ = try await dispatcher.database.inboxes.markRead(
                user: "ada", ids: [notifications[0].id], at: TestDispatcher.now)
            let heard = HeardFrames()
            let subscription = try RedisSubscription(
                try await TestRedis.configuration(), channels: [keys.nodeChannel("n")],
                on: MultiThreadedEventLoopGroup.singleton.next(), logger: TestLog.logger
            ) { heard.note($0) }
            try await eventually("the node listens") { heard.isReady }
            var batch = StoredBatch(
                group: dispatcher.group(keys.jobs(.normal)), catalog: dispatcher.catalog, fence: dispatcher.fence())
            batch.toRedo = notifications.enumerated().compactMap { number, notification in
                // Reading the first one has raised its version.
                RoutedNotification(notification, .arrived).toRedo(
                    after: .known(version: number == 0 ? 3 : 2, unread: 1, status: .pending, isOwned: true))
            }
            #expect(batch.toRedo.count == 2)
            try await Router(dispatcher: dispatcher).routeAndAcknowledge(batch)
            try await eventually("a frame is there") { !heard.frames.isEmpty }
            #expect(heard.frames.map(\.id) == [notifications[1].id])
            await subscription.close()
        }
    }

    @Test("of replaced notifications have the version of each transaction that replaced some")
    func replaced() async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, _ in
            let keys = dispatcher.keys
            _ = try await Self.prepare(dispatcher)
            var replaced: [NotificationStore.Replacement] = []
            for number in UInt64(3)...6 {
                var notification = TestDispatcher.notification(number, channels: [.inApp])
                notification.jobEntry = "jobs/\(number)-0"
                notification.collapseKey = number % 2 == 0 ? "even" : "odd"
                let batch = try await dispatcher.database.notifications.store([notification], areRepeats: false)
                replaced += batch.replacements
            }
            #expect(replaced.map(\.version) == [6, 8])
            let heard = HeardFrames()
            let subscription = try RedisSubscription(
                try await TestRedis.configuration(), channels: [keys.nodeChannel("n")],
                on: MultiThreadedEventLoopGroup.singleton.next(), logger: TestLog.logger
            ) { heard.note($0) }
            try await eventually("the node listens") { heard.isReady }
            try await Router(dispatcher: dispatcher).publish(replaced)
            try await eventually("the last frame is there") { heard.frames.last?.version == 8 }
            #expect(heard.frames.map(\.version) == [6, 8])
            await subscription.close()
        }
    }

    @Test("of a notification that is found without an owner do not go out if it was read or deleted")
    func seen() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let connection = ConnectionPresence(
                connection: "c1", node: "n", dialect: .native, state: .active, since: TestDispatcher.now)
            let notification = TestDispatcher.notification()
            var (read, deleted) = (notification, notification)
            read.readAt = TestDispatcher.now
            deleted.deletedAt = TestDispatcher.now
            var plan = RoutePlan(for: dispatcher)
            for (notification, count) in [(read, 0), (deleted, 0), (notification, 1)] {
                plan.publish(
                    notification, unread: 0, code: nil, isSilent: false, now: TestDispatcher.now,
                    to: .online([connection]))
                #expect(plan.messages.frameCount == count)
            }
        }
    }
}
