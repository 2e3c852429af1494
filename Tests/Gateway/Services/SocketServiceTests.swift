// Carillon · SocketServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Operations
import Protocols
import Support
import Testing

@testable import Core
@testable import HTTP
@testable import Sockets
@testable import Storage

@Suite("Services of sockets", .timeLimit(.minutes(10)))
struct SocketServiceTests {
    /// The stores of a gateway, with a prefix of its own in Redis.
    private static func base(_ pool: PostgresPool, _ redis: RedisClient) throws -> GatewayBase {
        try GatewayBase.forTests(pool, redis, Keyspace(prefix: TestRedis.prefix()))
    }

    private static func service(_ base: GatewayBase) throws -> SocketService {
        let credentials = CredentialResolver(
            verifier: try Tokens.verifier(),
            tickets: SocketTickets(base.live, revocations: nil, now: { Tokens.now }),
            cookie: nil
        )
        return SocketService(
            base, node: "n", credentials: credentials, inbox: InboxServices(base),
            users: base.database.users(limits: DeviceLimits()), messageRate: nil, openingRate: nil)
    }

    /// Stores a notification for a user's inbox, and returns a proof of it.
    private static func store(for user: String, _ base: GatewayBase) async throws -> ReceiptProof {
        let id = NotificationID(high: 1, low: 1)
        var notification = Notification(id: id, user: user, type: "t", createdAt: Tokens.now)
        notification.jobEntry = "jobs/1"
        notification.channels = [.inApp]
        _ = try await base.database.notifications.store([notification], areRepeats: false)
        return ReceiptProof(user: user, id: id, awaitingLane: .normal, at: Tokens.now)
    }

    /// Stores notifications with these numbers as ids for ada.
    private static func store(_ numbers: ClosedRange<UInt64>, _ base: GatewayBase) async throws {
        let notifications = numbers.map { number in
            let id = NotificationID(high: 1, low: number)
            var notification = Notification(id: id, user: "ada", type: "t", createdAt: Tokens.now)
            notification.jobEntry = "jobs/\(number)"
            notification.channels = [.inApp]
            return notification
        }
        _ = try await base.database.notifications.store(notifications, areRepeats: false)
    }

    @Test("records proofs without Redis, and counts their events as lost")
    func lostEvents() async throws {
        try await TestDatabase.with { database in
            let redis = try await TestRedis.connect()
            await redis.close()
            let keys = Keyspace(prefix: TestRedis.prefix())
            let lines = LogRecorder { "\($0.message) \($0.metadata?["count"]?.description ?? "")" }
            let base = try GatewayBase.forTests(
                database.pool, redis, keys, events: EventPublisher.forTests(redis, keys, logger: lines.logger))
            let service = try Self.service(base)
            let proof = try await Self.store(for: "ada", base)
            let recorded = try await service.confirm([proof])
            #expect(recorded.proofs == [proof] && recorded.events.count == 1)
            let key = NotificationKey(user: "ada", id: proof.id)
            #expect(try await base.database.notifications.load([key]).map(\.status) == [.delivered])
            #expect(lines.all.isEmpty)
            await service.settle(recorded)
            #expect(lines.all == ["lost events for upstream apps; check Redis 1"])
            // A proof of what is delivered has no event.
            #expect(try await service.confirm([proof]) == RecordedProofs([proof], events: []))
        }
    }

    @Test("ends the wait for recorded proofs and writes their events")
    func proofs() async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                let keys = Keyspace(prefix: prefix)
                let base = try GatewayBase.forTests(
                    database.pool, redis, keys, events: EventPublisher.forTests(redis, keys))
                let service = try Self.service(base)
                let proof = try await Self.store(for: "ada", base)
                let waiting = AwaitedProof(id: proof.id, user: "ada", lane: .normal)
                var batch = RedisBatch()
                base.live.proofDeadlines.add([(waiting, deadline: Tokens.now)], in: &batch)
                try await redis.run(batch)
                await service.settle(try await service.confirm([proof]))
                #expect(try await base.live.proofDeadlines.remove([waiting]) == 0)
                let events = try await redis.entries(of: keys.events).compactMap { $0.texts["event"] }
                #expect(events == ["delivered"])
            }
        }
    }

    @Test("reads and proofs do not wait for a master of a cluster that is away")
    func absentMaster() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let keys = Keyspace(parts: 16)
        let found = (0..<200).map { "user-\($0)" }.first { user in
            cluster.number(ofKey: keys.part(of: user).jobs(.normal)) == 0
        }
        let away = try #require(found)
        var configuration = try cluster.configuration()
        configuration.commandTimeout = .seconds(60)
        let patience = configuration.commandTimeout
        try await TestRedis.with(configuration) { redis in
            try await TestDatabase.with { database in
                let lines = LogRecorder { "\($0.message)" }
                let base = try GatewayBase.forTests(
                    database.pool, redis, keys, events: EventPublisher.forTests(redis, keys), logger: lines.logger)
                let service = try Self.service(base)
                let proof = try await Self.store(for: away, base)
                var batch = RedisBatch()
                batch.append("EXISTS", .text(keys.part(of: away).jobs(.normal)))
                let probe = batch
                try await redis.run(probe)
                try await cluster.lose(0)
                try await eventually("the master is known to be away") {
                    do throws(RedisError) {
                        _ = try await redis.send(probe, timeout: .seconds(1), isPatient: false)
                        return false
                    } catch {
                        return error.message?.hasSuffix("is away") == true
                    }
                }
                let start = ContinuousClock.now
                await service.settle(try await service.confirm([proof]))
                #expect(try await service.markRead(MarkReadRequest(user: away, ids: nil)) == 0)
                #expect(lines.all == ["cannot publish inbox change; retrying"])
                await #expect(throws: RedisError.self) {
                    try await base.live.buckets.takeAvailable(1, kind: .retractions, user: away, perSecond: 1, burst: 1)
                }
                // Each call that waits takes longer.
                #expect(ContinuousClock.now - start < patience)
            }
        }
    }

    @Test("reads do not wait for a Redis that is away")
    func absentRedis() async throws {
        let address = try RedisAddress(url: "redis://127.0.0.1:\(try FreePort.next())/0")
        var configuration = RedisConfiguration(address: address, clientName: "test")
        configuration.commandTimeout = .seconds(60)
        let patience = configuration.commandTimeout
        try await TestRedis.with(configuration) { redis in
            try await eventually("Redis is known to be away") { redis.isAway }
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: TestRedis.prefix())
                let lines = LogRecorder { "\($0.message)" }
                let events = EventPublisher.forTests(redis, keys, logger: lines.logger)
                let base = try GatewayBase.forTests(
                    database.pool, redis, keys, events: events, logger: lines.logger)
                let service = try Self.service(base)
                _ = try await Self.store(for: "ada", base)
                let start = ContinuousClock.now
                let unread = try await service.markRead(MarkReadRequest(user: "ada", ids: nil))
                #expect(unread == 0)
                #expect(
                    lines.all == [
                        "cannot publish inbox change; retrying", "lost events for upstream apps; check Redis",
                    ])
                #expect(ContinuousClock.now - start < patience)
            }
        }
    }

    @Test("a SignalR client that returns after more than 100 reads learns that all are read")
    func returning() async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                let base = try GatewayBase.forTests(database.pool, redis, Keyspace(prefix: prefix))
                let service = try Self.service(base)
                try await Self.store(1...101, base)
                try await service.store([
                    SocketBookmark(user: "ada", connection: "a", client: "web", version: 101, lastHeard: Tokens.now)
                ])
                _ = try await InboxStore(base.database).markRead(user: "ada", ids: nil, at: Tokens.now)
                let opening = SocketOpening(user: "ada", connection: "b", dialect: .signalr, since: nil, client: "web")
                let snapshot = try #require(try await service.open([opening]).first ?? nil)
                #expect(snapshot.isReturn && snapshot.items.isEmpty)
                let texts = SignalRDialect.sync(snapshot).map { String(decoding: $0.bytes, as: UTF8.self) }
                #expect(texts.count == 2)
                #expect(texts.first?.contains(#""target":"AllNotificationsRead","arguments":[102]"#) == true)
            }
        }
    }

    @Test("a SignalR client that drops before it proves its return gets nothing again that it had before")
    func returnsAgain() async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                let base = try GatewayBase.forTests(database.pool, redis, Keyspace(prefix: prefix))
                let service = try Self.service(base)
                try await Self.store(1...60, base)
                try await service.store([
                    SocketBookmark(user: "ada", connection: "a", client: "web", version: 60, lastHeard: Tokens.now)
                ])
                // More changes than a return replays, but few new unread notifications.
                try await Self.store(61...165, base)
                let read = (UInt64(61)...155).map { NotificationID(high: 1, low: $0) }
                _ = try await InboxStore(base.database).markRead(user: "ada", ids: read, at: Tokens.now)
                let missed = (UInt64(156)...165).map { NotificationID(high: 1, low: $0) }
                for connection in ["b", "c"] {
                    let opening = SocketOpening(
                        user: "ada", connection: connection, dialect: .signalr, since: nil, client: "web")
                    let snapshot = try #require(try await service.open([opening]).first ?? nil)
                    #expect(snapshot.isReturn && snapshot.isReset)
                    #expect(Set(snapshot.items.map(\.id)) == Set(missed))
                    try await service.store([
                        SocketBookmark(
                            user: "ada", connection: connection, client: "web", version: snapshot.seenBefore,
                            lastHeard: Tokens.now)
                    ])
                }
            }
        }
    }

    @Test("answers each socket of a user from what it missed")
    func severalSockets() async throws {
        try await TestDatabase.with { database in
            let redis = try await TestRedis.connect()
            let base = try Self.base(database.pool, redis)
            let service = try Self.service(base)
            for (place, user) in ["ada", "eve"].enumerated() {
                for number in UInt64(1)...3 {
                    let id = NotificationID(high: 1, low: UInt64(place) * 10 + number)
                    var notification = Notification(id: id, user: user, type: "t", createdAt: Tokens.now)
                    notification.jobEntry = "jobs/\(place)\(number)"
                    notification.channels = [.inApp]
                    _ = try await base.database.notifications.store([notification], areRepeats: false)
                }
            }
            let cases: [(String, Dialect, Int64, [Int64])] = [
                ("ada", .native, 1, [2, 3]), ("eve", .native, 1, [2, 3]), ("ada", .signalr, 1, [2, 3]),
                ("ada", .native, 2, [3]), ("ada", .native, 1, [2, 3]),
            ]
            let snapshots = try await service.changes(
                cases.map { CatchUpRequest(user: $0.0, dialect: $0.1, since: $0.2) })
            let versions = snapshots.map { $0?.items.map(\.version) ?? [] }
            #expect(versions == cases.map { $0.3 })
            #expect(snapshots[0]?.items.map(\.json) == snapshots[4]?.items.map(\.json))
            #expect(snapshots[0]?.items.map(\.json) != snapshots[2]?.items.map(\.json))
            await redis.close()
        }
    }

    @Test("resets a socket whose missed changes cannot be read in time")
    func slowChanges() async throws {
        try await TestDatabase.with { database in
            let redis = try await TestRedis.connect()
            let base = try Self.base(database.pool, redis)
            _ = try await Self.store(for: "ada", base)
            _ = try await InboxStore(base.database).markRead(user: "ada", ids: nil, at: Tokens.now)
            try await Self.valueInTime("the socket is reset", database, redis) { service -> Void? in
                let snapshots = try await database.pool.transaction { transaction in
                    try await transaction.query("LOCK TABLE carillon.notifications IN ACCESS EXCLUSIVE MODE")
                    return try await service.changes([CatchUpRequest(user: "ada", dialect: .native, since: 1)])
                }
                return snapshots.map { $0?.isReset } == [true] && snapshots.map { $0?.version } == [2] ? () : nil
            }
            await redis.close()
        }
    }

    @Test("resets only the socket whose inbox cannot be read in time")
    func slowInbox() async throws {
        try await TestDatabase.with { database in
            let redis = try await TestRedis.connect()
            let base = try Self.base(database.pool, redis)
            let users = ["ada", "eve"]
            for (place, user) in users.enumerated() {
                let id = NotificationID(high: 1, low: UInt64(place))
                var notification = Notification(id: id, user: user, type: "t", createdAt: Tokens.now)
                notification.jobEntry = "jobs/\(place)"
                notification.channels = [.inApp]
                _ = try await base.database.notifications.store([notification], areRepeats: false)
                _ = try await InboxStore(base.database).markRead(user: user, ids: nil, at: Tokens.now)
            }
            _ = try await database.pool.query("ALTER TABLE carillon.notifications RENAME TO stored_notifications")
            _ = try await database.pool.query(
                """
                CREATE VIEW carillon.notifications AS
                SELECT * FROM carillon.stored_notifications
                WHERE CASE WHEN user_id = 'eve' THEN pg_sleep(600) IS NOT NULL ELSE true END
                """)
            try await Self.valueInTime("only eve's socket is reset", database, redis) { service -> Void? in
                let snapshots = try await service.changes(
                    users.map { CatchUpRequest(user: $0, dialect: .native, since: 1) })
                guard snapshots.map({ $0?.isReset }) == [false, true] else { return nil }
                #expect(snapshots.map { $0?.items.count } == [1, 0])
                return ()
            }
            await redis.close()
        }
    }

    @Test("sends only the counts of inboxes whose unread notifications cannot be read in time")
    func slowUnread() async throws {
        try await Self.withSlowUnread(of: ["ada", "ben"]) { service, requests -> Void? in
            let snapshots = try await service.changes(requests)
            guard snapshots.map({ $0?.items.count }) == [0, 0, 1, 1] else { return nil }
            #expect(snapshots.map { $0?.unread } == [1, 1, 1, 1] && snapshots.map { $0?.version } == [1, 1, 1, 1])
            #expect(snapshots.map { $0?.hasMore } == [true, true, false, false])
            return ()
        }
    }

    @Test("a PostgreSQL that is slow for all users empties no inbox that was not read alone")
    func slowForAll() async throws {
        try await Self.withSlowUnread(of: ["ada", "ben", "cyd", "eve"]) { service, requests -> Void? in
            let error = await #expect(throws: PostgresError.self) { try await service.changes(requests) }
            return error?.sqlState == "57014" ? () : nil
        }
    }

    /// Runs `body` with a service that gives PostgreSQL 2, 4, … 128 s, until it returns a value.
    ///
    /// A busy machine may need longer for what is to be read in time.
    ///
    /// - Parameter what: the value in words, for the error.
    private static func valueInTime(
        _ what: String,
        _ database: TestDatabase,
        _ redis: RedisClient,
        _ body: (SocketService) async throws -> Void?
    ) async throws {
        _ = try await Support.valueInTime(what) { limit -> Void? in
            var configuration = database.configuration()
            configuration.timeout = limit
            let pool = try PostgresPool(configuration, logger: TestLog.logger)
            defer { pool.close() }
            do {
                return try await body(try Self.service(try Self.base(pool, redis)))
            } catch is PostgresError {
                return nil
            }
        }
    }

    /// Runs a test with a service and the requests of ada, ben, cyd and eve, who start over.
    ///
    /// - Parameters:
    ///   - users: those of the four whose notifications cannot be read in time.
    ///   - body: returns nil if PostgreSQL was too slow for the others, too.
    private static func withSlowUnread(
        of users: [String],
        _ body: (SocketService, [CatchUpRequest]) async throws -> Void?
    ) async throws {
        try await TestDatabase.with { database in
            let redis = try await TestRedis.connect()
            let base = try Self.base(database.pool, redis)
            let everyone = ["ada", "ben", "cyd", "eve"]
            for (place, user) in everyone.enumerated() {
                let id = NotificationID(high: 1, low: UInt64(place))
                var notification = Notification(id: id, user: user, type: "t", createdAt: Tokens.now)
                notification.jobEntry = "jobs/\(place)"
                notification.channels = [.inApp]
                _ = try await base.database.notifications.store([notification], areRepeats: false)
            }
            let slow = users.map { "'\($0)'" }.joined(separator: ", ")
            _ = try await database.pool.query("ALTER TABLE carillon.notifications RENAME TO stored_notifications")
            _ = try await database.pool.query(
                """
                CREATE VIEW carillon.notifications AS
                SELECT * FROM carillon.stored_notifications
                WHERE CASE WHEN user_id IN (\(slow)) THEN pg_sleep(600) IS NOT NULL ELSE true END
                """)
            // An unknown version, so all clients start over.
            let requests = everyone.map { CatchUpRequest(user: $0, dialect: .native, since: 99) }
            try await Self.valueInTime("PostgreSQL is slow for these users alone", database, redis) { service in
                try await body(service, requests)
            }
            await redis.close()
        }
    }

    @Test("an outage of Redis is logged once, not for each call that loses events")
    func lostOften() async throws {
        let redis = try await TestRedis.connect()
        await redis.close()
        let keys = Keyspace(prefix: TestRedis.prefix())
        let lines = LogRecorder { "\($0.message) \($0.metadata?["count"]?.description ?? "")" }
        let publisher = EventPublisher.forTests(redis, keys, logger: lines.logger)
        let label = NotificationLabel(
            id: NotificationID(high: 1, low: 1), user: "ada", type: "t", category: nil, org: "", job: nil)
        let event = LifecycleEvent(.read, label, at: Tokens.now)
        for _ in 0..<2 { await publisher.publish(Array(repeating: event, count: 600)) }
        #expect(lines.all == ["lost events for upstream apps; check Redis 600"])
    }

    @Test("awaits proofs of failed notifications that are still tried, and of others that sockets may still prove")
    func awaitedProofs() async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                let base = try GatewayBase.forTests(database.pool, redis, Keyspace(prefix: prefix))
                let service = try Self.service(base)
                let store = base.database.notifications
                let (old, soon) = (Tokens.now - .seconds(3 * 86_400), Tokens.now + .seconds(60))
                typealias Case = (NotificationStatus, String, Dialect, created: Timestamp, expires: Timestamp?, Bool)
                let cases: [Case] = [
                    (.failed, "UNREGISTERED", .native, Tokens.now, soon, true),
                    (.failed, "UNREGISTERED", .native, old, soon, true),
                    (.failed, "UNREGISTERED", .native, old, Tokens.now, false),
                    (.failed, "UNREGISTERED", .signalr, Tokens.now, soon, true),
                    (.sent, "no_device", .native, Tokens.now, nil, false),
                    (.sent, "unproven", .signalr, Tokens.now, nil, true),
                    (.sent, "capped_by_user", .native, Tokens.now, nil, true),
                    (.sent, "capped_by_user", .signalr, Tokens.now, nil, true),
                ]
                for (number, (status, reason, dialect, createdAt, expiresAt, isAwaited)) in cases.enumerated() {
                    let (user, id) = ("user-\(number)", NotificationID(high: 1, low: UInt64(number)))
                    var notification = Notification(id: id, user: user, type: "t", createdAt: createdAt)
                    notification.expiresAt = expiresAt
                    notification.jobEntry = "jobs/\(number)"
                    notification.channels = [.inApp, .push]
                    _ = try await store.store([notification], areRepeats: false)
                    let isHeldBack = reason == "capped_by_user"
                    try await store.mark(
                        [(notification.key, status, reason, nil)],
                        notes: isHeldBack ? [(notification.key, reason)] : [])
                    let changes = try await service.changes([CatchUpRequest(user: user, dialect: dialect, since: 0)])
                    #expect(changes.map { $0?.items.map(\.awaitsProof) } == [[isAwaited]])
                    let opening = SocketOpening(user: user, connection: "c", dialect: dialect, since: nil)
                    let start = try await service.open([opening])
                    // A SignalR client that starts gets only pending and unproven ones.
                    let isFirst = isAwaited && (dialect != .signalr || reason == "unproven")
                    #expect(start.map { $0?.items.map(\.awaitsProof) } == [[isFirst]], "\(dialect) \(reason)")
                }
            }
        }
    }
}
