// Carillon · InboxServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import NIOPosix
import Operations
import Support
import Synchronization
import Testing

@testable import Core
@testable import HTTP
@testable import Storage

@Suite("Inbox changes by users", .timeLimit(.minutes(10)))
struct InboxServiceTests {
    /// Runs `body` with the inbox of a user who has a socket, and the frames that the user's node
    /// receives.
    private static func with(
        _ body: (InboxServices, NotificationStore, HeardFrames, Live) async throws -> Void
    ) async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                let keys = Keyspace(prefix: prefix)
                let presence = PresenceRegistry(Live(redis, keys: keys))
                _ = try await Lease(key: keys.nodeLease("n"), value: "gateway", connection: redis).renew()
                let connection = ConnectionPresence(
                    connection: "c", node: "n", dialect: .native, state: .active, since: Tokens.now)
                _ = try await presence.register([("ada", connection)])
                let heard = HeardFrames()
                let subscription = try RedisSubscription(
                    try await TestRedis.configuration(), channels: [keys.nodeChannel("n")],
                    on: MultiThreadedEventLoopGroup.singleton.next(), logger: TestLog.logger
                ) { heard.note($0) }
                try await eventually("the node listens") { heard.isReady }
                let base = try GatewayBase.forTests(database.pool, redis, keys)
                try await body(InboxServices(base), Database(database.pool).notifications, heard, base.live)
                await subscription.close()
            }
        }
    }

    /// Runs `body` with a gateway whose Redis it may stop.
    private static func withOwnRedis(
        _ body: (RedisServer, RedisClient, GatewayBase) async throws -> Void
    ) async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: TestRedis.prefix())
                let base = try GatewayBase.forTests(
                    database.pool, redis, keys, events: EventPublisher.forTests(redis, keys))
                try await body(server, redis, base)
            }
        }
    }

    private static func notifications(_ numbers: Range<Int>) -> [Notification] {
        numbers.map { number in
            let id = NotificationID(high: 1, low: UInt64(number))
            var notification = Notification(id: id, user: "ada", type: "t", createdAt: Tokens.now)
            notification.jobEntry = "jobs/\(number)"
            notification.channels = [.inApp]
            return notification
        }
    }

    @Test("names up to 500 changed notifications in a frame, and only the version for more")
    func all() async throws {
        try await Self.with { inbox, store, heard, _ in
            let service = inbox.service
            let most = InboxService.mostNamed
            for (count, isNamed) in [(3, true), (most, true), (most + 1, false)] {
                let batch = Self.notifications(count * 1_000..<count * 1_000 + count)
                _ = try await store.store(batch, areRepeats: false)
                for (member, change) in [
                    ("all", try await service.markRead(user: "ada", ids: nil)),
                    ("all_read", try await service.delete(user: "ada", id: nil)),
                ] {
                    let frame = try await eventualValue("the change is published") {
                        heard.frames.first { $0.version == change.version }
                    }
                    let body = try JSONParser.parse(frame.body)
                    #expect(change.ids.count == count)
                    if isNamed {
                        #expect(Set(body["ids"]?.strings ?? []) == Set(batch.map(\.id.description)))
                        #expect(body[member] == nil)
                    } else {
                        #expect(body["ids"] == nil)
                        #expect(body[member]?.bool == true)
                        #expect(body["up_to_version"]?.integer == change.version)
                    }
                    #expect(frame.unread == 0)
                }
            }
        }
    }

    @Test("changes a large inbox page by page, and publishes each change once")
    func pages() async throws {
        try await Self.with { inbox, store, heard, _ in
            let count = InboxStore.mostChanged + 1
            _ = try await store.store(Self.notifications(1..<count + 1), areRepeats: false)
            let read = try await inbox.service.markRead(user: "ada", ids: nil)
            #expect(read.ids.count == count && read.unread == 0)
            let gone = try await inbox.service.delete(user: "ada", id: nil)
            #expect(gone.ids.count == count)
            // Each of the two changes raised the version twice.
            let versions = [2, 4].map { Int64(count + $0) }
            #expect([read.version, gone.version] == versions)
            try await eventually("both are published") { heard.frames.count >= 2 }
            #expect(heard.frames.map(\.version) == versions)
            // A socket that has everything before needs no version between the pages.
            #expect(heard.frames.map(\.previous) == versions.map { $0 - 2 })
            // Neither covers a notification that came between two pages.
            let bounds = heard.frames.map { (try? JSONParser.parse($0.body))?["up_to_version"]?.integer }
            #expect(bounds == versions.map { $0 - 1 })
        }
    }

    @Test("lets sockets read the inbox if only the first pages of a change could be stored")
    func failingPage() async throws {
        try await Self.with { inbox, store, heard, live in
            let count = InboxStore.mostChanged + 1
            _ = try await store.store(Self.notifications(1..<count + 1), areRepeats: false)
            let pool = inbox.base.database.pool
            _ = try await pool.query("CREATE SEQUENCE carillon.pages")
            _ = try await pool.query(
                """
                CREATE FUNCTION carillon.fail() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    IF nextval('carillon.pages') > 1 THEN RAISE EXCEPTION 'the second page'; END IF;
                    RETURN NULL;
                END $$
                """)
            _ = try await pool.query(
                """
                CREATE TRIGGER fail BEFORE UPDATE ON carillon.notifications
                FOR EACH STATEMENT EXECUTE FUNCTION carillon.fail()
                """)
            await #expect(throws: PostgresError.self) { try await inbox.service.markRead(user: "ada", ids: nil) }
            try await eventually("it is published") { !heard.frames.isEmpty }
            let frame = try #require(heard.frames.first)
            let version = Int64(count + 1)
            // No socket has this version before it has read the inbox.
            #expect(frame.previous == version && frame.version == version)
            #expect(frame.unread == 1)
        }
    }

    @Test("publishes a change again that Redis did not take")
    func retried() async throws {
        try await Self.with { inbox, store, heard, live in
            _ = try await store.store(Self.notifications(1..<2), areRepeats: false)
            let presence = live.keys.presence("ada")
            try await live.connection.send("RENAME", .text(presence), .text("\(presence)-kept"))
            // No hash, so presence cannot be read.
            try await live.connection.send("SET", .text(presence), "x")
            let change = try await inbox.service.markRead(user: "ada", ids: nil)
            try await live.connection.send("RENAME", .text("\(presence)-kept"), .text(presence))
            #expect(heard.frames.isEmpty)
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await inbox.retries.run() }
                try await eventually("it is published") { heard.frames.map(\.version) == [change.version] }
                group.cancelAll()
            }
        }
    }

    @Test("waits for a Redis that restarts, so the events of a read by REST are not lost")
    func restart() async throws {
        try await Self.withOwnRedis { server, redis, base in
            let (inbox, store) = (InboxServices(base), base.database.notifications)
            _ = try await store.store(Self.notifications(1..<2), areRepeats: false)
            try await server.kill()
            try await eventually("Redis is known to be away") { redis.isAway }
            async let change = inbox.service.markRead(user: "ada", ids: nil)
            try await eventually("PostgreSQL has the change") {
                try await inbox.store.states(["ada"]).first?.unread == 0
            }
            try await server.start()
            let unread = try await change.unread
            #expect(unread == 0)
            let events = try await redis.entries(of: base.live.keys.events).compactMap { $0.texts["event"] }
            #expect(events == ["read"])
        }
    }

    @Test("a read by REST that has waited for a Redis that is away does not wait again at its next step")
    func outage() async throws {
        try await Self.withOwnRedis { server, redis, base in
            let begin = ContinuousClock.now
            let readings = Mutex(0)
            let service = InboxService(base, base.database.inboxes, retries: FrameRetries(base)) {
                // The call begins at the first reading; later ones are past its patience.
                readings.withLock { count in
                    count += 1
                    return count == 1 ? begin : begin + .seconds(5)
                }
            }
            _ = try await base.database.notifications.store(Self.notifications(1..<2), areRepeats: false)
            try await server.kill()
            try await eventually("Redis is known to be away") { redis.isAway }
            let start = ContinuousClock.now
            let change = try await service.markRead(user: "ada", ids: nil)
            #expect(change.unread == 0)
            #expect(ContinuousClock.now - start < fixturePatience)
        }
    }

    @Test("gives up a change that Redis has refused for half a minute, and counts it")
    func lost() async throws {
        try await Self.with { inbox, _, heard, live in
            // No hash, so presence cannot be read.
            try await live.connection.send("SET", .text(live.keys.presence("ada")), "x")
            let registry = PrometheusRegistry()
            let start = ContinuousClock.now
            let clock = Mutex((passed: Duration.zero, readings: 0))
            let retries = FrameRetries(inbox.base, metrics: registry) {
                clock.withLock { clock in
                    clock.readings += 1
                    return start + clock.passed
                }
            }
            func isLost() -> Bool { registry.render().contains("carillon_frames_lost 1\n") }
            retries.add(NodeFrame(kind: .read, user: "ada", version: 1, body: Array("{}".utf8)))
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await retries.run() }
                for seconds in [0, 29] {
                    clock.withLock { $0 = (passed: .seconds(seconds), readings: 0) }
                    // It reads the clock at first and after each try.
                    try await eventually("a try has failed") { clock.withLock { $0.readings } >= 2 }
                    #expect(!isLost())
                }
                clock.withLock { $0.passed = .seconds(30) }
                try await eventually("it is lost") { isLost() }
                group.cancelAll()
            }
            #expect(heard.frames.isEmpty)
        }
    }
}
