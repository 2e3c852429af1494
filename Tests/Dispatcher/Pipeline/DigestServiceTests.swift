// Carillon · DigestServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import FoundationEssentials
import Operations
import ServiceLifecycle
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

@Suite("Flushing digests", .timeLimit(.minutes(10)))
struct DigestServiceTests {
    private final class Progress: Sendable {
        let isStarted = Atomic(false)
    }

    /// Flushes once a shutdown has begun.
    private struct LateFlush: Service {
        let digests: DigestService
        let progress: Progress

        func run() async throws {
            self.progress.isStarted.store(true, ordering: .sequentiallyConsistent)
            try await gracefulShutdown()
            _ = try await self.digests.flush()
        }
    }

    @Test("a flush during a shutdown still reports what became of its items")
    func shutdown() async throws {
        try await TestDispatcher.with(eventsLength: 100) { dispatcher, _ in
            let items = (1...2).map { number in
                DigestStore.Item(
                    notification: TestDispatcher.notification(UInt64(number)),
                    key: "thread", rule: DigestRule(window: .seconds(60)))
            }
            let moment = TestDispatcher.now + .seconds(-100)
            #expect(try await dispatcher.database.digests.gather(items, now: moment) == [.held, .held])
            let progress = Progress()
            let late = LateFlush(digests: DigestService(dispatcher: dispatcher), progress: progress)
            let group = ServiceGroup(
                configuration: ServiceGroupConfiguration(services: [.init(service: late)], logger: TestLog.logger))
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                tasks.addTask { try await group.run() }
                try await eventually("it runs") { progress.isStarted.load(ordering: .sequentiallyConsistent) }
                await group.triggerGracefulShutdown()
                try await tasks.waitForAll()
            }
            let events = try await dispatcher.redis.entries(of: dispatcher.keys.events).compactMap { $0.texts["event"] }
            #expect(events.count { $0 == "summarised" } == 2)
        }
    }

    @Test("the event of an item has the category of its job, not of its type")
    func category() async throws {
        var type = NotificationType(name: "news")
        type.category = "general"
        try await TestDispatcher.with(types: [type], eventsLength: 100) { dispatcher, _ in
            let items = ["billing", "travel"].enumerated().map { number, category in
                var notification = TestDispatcher.notification(UInt64(number))
                notification.category = category
                return DigestStore.Item(
                    notification: notification, key: "thread", rule: DigestRule(window: .seconds(60)))
            }
            _ = try await dispatcher.database.digests.gather(items, now: TestDispatcher.now + .seconds(-100))
            #expect(try await DigestService(dispatcher: dispatcher).flush() == 1)
            let events = try await dispatcher.redis.entries(of: dispatcher.keys.events).map(\.texts)
            let ends = events.filter { $0["event"] == "summarised" }
            #expect(Set(ends.compactMap { $0["category"] }) == ["billing", "travel"])
        }
    }

    @Test("items are suppressed with their summary, by its reason, also a lone one", arguments: [1, 2])
    func suppressed(count: Int) async throws {
        var type = NotificationType(name: "news")
        type.isEnabled = false
        try await TestDispatcher.with(types: [type], eventsLength: 100) { dispatcher, _ in
            let items = (1...count).map { number in
                var notification = TestDispatcher.notification(UInt64(number))
                notification.jobID = "job-\(number)"
                return DigestStore.Item(
                    notification: notification, key: "thread", rule: DigestRule(window: .seconds(60)))
            }
            let outcomes = try await dispatcher.database.digests.gather(
                items, now: TestDispatcher.now + .seconds(-100))
            #expect(outcomes == [DigestStore.Outcome](repeating: .held, count: count))
            #expect(try await DigestService(dispatcher: dispatcher).flush() == 1)
            let events = try await dispatcher.redis.entries(of: dispatcher.keys.events).map(\.texts)
            for item in items.map(\.notification) {
                let own = events.filter { $0["notification"] == item.id.description }
                #expect(own.map { $0["event"] } == ["suppressed"])
                #expect(own.map { $0["reason"] } == ["type_disabled"])
                let name = CancellationStore.Name(org: item.org, id: item.jobID ?? "")
                #expect(try await dispatcher.database.cancellations.tally(name).counts == [.suppressed: 1])
                let record = try #require(try await dispatcher.database.traces.record(item.id, user: "ada"))
                #expect(record.notification.status == .suppressed)
                #expect(record.notification.statusReason == "type_disabled")
                #expect(record.sentVia == nil)
            }
        }
    }

    @Test("a summary whose dispatcher died before it routed it is routed as stored, although it would be dropped now")
    func takenOver() async throws {
        var type = NotificationType(name: "news")
        type.quietHours = .drop
        try await TestDispatcher.with(FakeChannel(), types: [type]) { dispatcher, database in
            _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
            let items = (1...2).map { number in
                DigestStore.Item(
                    notification: TestDispatcher.notification(UInt64(number)),
                    key: "thread", rule: DigestRule(window: .seconds(60)))
            }
            let digests = dispatcher.database.digests
            _ = try await digests.gather(items, now: TestDispatcher.now + .seconds(-100))
            let until = TestDispatcher.now + .seconds(30)
            let due = try #require(try await digests.claim(now: TestDispatcher.now, until: until, limit: 10).first)
            var summary = Notification(id: due.summary, user: "ada", type: "news", createdAt: TestDispatcher.now)
            summary.channels = [.inApp, .push]
            let stored = try await dispatcher.database.notifications.storeDigests(
                [summary], windows: [due.id], claimedUntil: until)
            #expect(stored != nil)
            var settings = UserSettings()
            settings.quietHours = QuietHours(start: 1, end: 0)
            try await dispatcher.database.preferences.set(user: "ada", settings: settings)
            try await database.pool.query(
                "UPDATE carillon.digests SET due_at = $1", .timestamptz(TestDispatcher.now.microseconds))
            #expect(try await DigestService(dispatcher: dispatcher).flush() == 1)
            let states = try await database.pool.query(
                "SELECT concat_ws(' ', status, status_reason, sent_via) FROM carillon.notifications")
            #expect(try states.map { try $0.text(0) } == ["sent quiet_hours inbox"])
        }
    }

    @Test("the ends of windows are final before they are removed, also without items")
    func finalEnds() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let items = ["ada", "bob"].enumerated().map { number, user in
                var notification = TestDispatcher.notification(UInt64(number), of: user)
                if user == "bob" { notification.expiresAt = TestDispatcher.now + .seconds(-50) }
                return DigestStore.Item(
                    notification: notification, key: "thread", rule: DigestRule(window: .seconds(60)))
            }
            let moment = TestDispatcher.now + .seconds(-100)
            #expect(try await dispatcher.database.digests.gather(items, now: moment) == [.held, .held])
            try await database.pool.withScriptConnection { connection in
                try connection.execute(
                    """
                    CREATE FUNCTION carillon.keep() RETURNS trigger LANGUAGE plpgsql AS $$
                    BEGIN
                        IF OLD.state = 'stored' THEN RETURN OLD; END IF;
                        RETURN NULL;
                    END $$;
                    CREATE TRIGGER keep BEFORE DELETE ON carillon.digests
                    FOR EACH ROW EXECUTE FUNCTION carillon.keep();
                    """
                )
            }
            #expect(try await DigestService(dispatcher: dispatcher).flush() == 2)
            let left = try await database.pool.query("SELECT FROM carillon.digests")
            #expect(left.isEmpty)
        }
    }

    @Test("a summary of a type that only the new catalog files have makes the dispatcher read them")
    func newType() async throws {
        let folder = try TemporaryDirectory()
        let path = folder.file("catalog.yaml")
        let text = #"{title: "{{count}} replies"}"#
        try Data("types: {known: {}, news: {digest: {window: 1m}, summary: {en: \(text)}}}".utf8)
            .write(to: URL(filePath: path))
        let known = [NotificationType(name: "known")]
        try await TestDispatcher.with(types: known, catalogPath: path) { dispatcher, database in
            let items = (1...2).map { number in
                DigestStore.Item(
                    notification: TestDispatcher.notification(UInt64(number)),
                    key: "thread", rule: DigestRule(window: .seconds(60)))
            }
            _ = try await dispatcher.database.digests.gather(items, now: TestDispatcher.now + .seconds(-100))
            #expect(try await DigestService(dispatcher: dispatcher).flush() == 1)
            let titles = try await database.pool.query("SELECT title FROM carillon.notifications")
            #expect(try titles.map { try $0.text(0) } == ["2 replies"])
        }
    }

    @Test(
        "a summary has the lane of its most urgent item, but not of single ones",
        arguments: [
            ([.bulk], 0, .bulk), ([.bulk, .bulk], 0, .bulk), ([.bulk, .normal], 0, .normal),
            ([.bulk, .critical], 0, .critical), ([.critical, .bulk], 0, .critical), ([.critical, .bulk], 1, .bulk),
            ([.bulk, .critical, .bulk, .bulk], 2, .bulk),
        ] as [([Lane], Int, Lane)])
    func lane(lanes: [Lane], singles: Int, expected: Lane) async throws {
        try await TestDispatcher.with { dispatcher, database in
            var rule = DigestRule(window: .seconds(60))
            rule.singles = singles
            let items = lanes.enumerated().map { number, lane in
                var notification = TestDispatcher.notification(UInt64(number))
                notification.lane = lane
                return DigestStore.Item(notification: notification, key: "thread", rule: rule)
            }
            let outcomes = try await dispatcher.database.digests.gather(
                items, now: TestDispatcher.now + .seconds(-100))
            let kinds: [DigestStore.Outcome] = lanes.indices.map { $0 < singles ? .single : .held }
            #expect(outcomes == kinds)
            #expect(try await DigestService(dispatcher: dispatcher).flush() == 1)
            let rows = try await database.pool.query("SELECT lane FROM carillon.notifications")
            #expect(try rows.map { try $0.text(0) } == [expected.rawValue])
        }
    }

    @Test(
        "windows that outlast the time limit together are flushed one by one; one that does so alone holds up none",
        arguments: [["ada", "bob"], ["bob", "ada"]])
    func oneByOne(users: [String]) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let types = [NotificationType(name: "news")]
                let digests = Database(database.pool).digests
                for (number, user) in users.enumerated() {
                    let item = DigestStore.Item(
                        notification: TestDispatcher.notification(UInt64(number), of: user),
                        key: "thread", rule: DigestRule(window: .seconds(60)))
                    let moment = TestDispatcher.now + .seconds(Int64(number) - 100)
                    #expect(try await digests.gather([item], now: moment) == [.held])
                }
                func sent() async throws -> [String] {
                    let rows = try await database.pool.query("SELECT user_id FROM carillon.notifications ORDER BY 1")
                    return try rows.map { try $0.text(0) }
                }
                var configuration = database.configuration()
                configuration.timeout = .milliseconds(500)
                let pool = try PostgresPool(configuration, logger: TestLog.logger)
                defer { pool.close() }
                let clock = Mutex(TestDispatcher.now)
                let hasty = try TestDispatcher.make(
                    pool, redis, keys, types: types, now: { clock.withLock { $0 } })
                hasty.leaseClock.hold()
                try await database.pool.transaction { transaction in
                    // As if Bob's window took very long.
                    try await transaction.query("SELECT FROM carillon.digest_items WHERE user_id = 'bob' FOR UPDATE")
                    let service = DigestService(dispatcher: hasty, claimLimit: configuration.timeout)
                    let run = Task { try await service.run() }
                    defer { run.cancel() }
                    try await eventually("Ada's is sent") {
                        // On a busy machine, hers may outlast the limit too; then it is due later.
                        let due = try await database.pool.query(
                            "SELECT due_at FROM carillon.digests WHERE user_id = 'ada'")
                        if let moment = try due.first?.timestamp(0) {
                            clock.withLock { $0 = max($0, moment) }
                        }
                        // No `DueService` runs here.
                        hasty.alarms.digests.schedule(at: clock.withLock { $0 })
                        return try await sent() == ["ada"]
                    }
                    run.cancel()
                    _ = await run.result
                }
                // Once the time is over for which his window is put off.
                let end = clock.withLock { $0 } + .seconds(600)
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, types: types, now: { end })
                dispatcher.leaseClock.hold()
                _ = try await DigestService(dispatcher: dispatcher).flush()
                #expect(try await sent() == ["ada", "bob"])
            }
        }
    }

    @Test("a claim of several windows gives up its locks long before the database's time limit")
    func shortClaim() async throws {
        try await TestDispatcher.with { dispatcher, database in
            for (number, user) in ["ada", "bob"].enumerated() {
                let item = DigestStore.Item(
                    notification: TestDispatcher.notification(UInt64(number), of: user),
                    key: "thread", rule: DigestRule(window: .seconds(60)))
                let moment = TestDispatcher.now + .seconds(Int64(number) - 100)
                #expect(try await dispatcher.database.digests.gather([item], now: moment) == [.held])
            }
            try await database.pool.transaction { transaction in
                // As if Bob's window took very long. With the database's time limit, so many claims
                // would take longer than this test waits.
                try await transaction.query("SELECT FROM carillon.digest_items WHERE user_id = 'bob' FOR UPDATE")
                let service = DigestService(dispatcher: dispatcher, claimLimit: .milliseconds(200))
                let run = Task { try await service.run() }
                defer { run.cancel() }
                try await eventually("Ada's is sent") {
                    // No `DueService` runs here.
                    dispatcher.alarms.digests.schedule(at: dispatcher.now())
                    return try await database.pool.query(
                        "SELECT FROM carillon.notifications WHERE user_id = 'ada'"
                    ).count == 1
                }
                run.cancel()
                _ = await run.result
            }
        }
    }

    @Test("a window is not put off if PostgreSQL does not answer in time")
    func unanswered() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let item = DigestStore.Item(
                notification: TestDispatcher.notification(), key: "thread", rule: DigestRule(window: .seconds(60)))
            let moment = TestDispatcher.now + .seconds(-100)
            #expect(try await dispatcher.database.digests.gather([item], now: moment) == [.held])
            // After closing the window, no statement of the transaction has a limit on the server.
            try await database.pool.withScriptConnection { connection in
                try connection.execute(
                    """
                    CREATE FUNCTION carillon.unlimit() RETURNS trigger LANGUAGE plpgsql AS $$
                    BEGIN
                        PERFORM set_config('statement_timeout', '0', true);
                        RETURN NULL;
                    END $$;
                    CREATE TRIGGER unlimit AFTER UPDATE ON carillon.digests
                    FOR EACH STATEMENT EXECUTE FUNCTION carillon.unlimit();
                    """
                )
            }
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            try await database.pool.transaction { transaction in
                // As if reading the window took very long.
                try await transaction.query("SELECT FROM carillon.digest_items FOR UPDATE")
                _ = try await valueInTime("the call gets no answer") { limit -> Bool? in
                    var configuration = database.configuration()
                    configuration.timeout = limit
                    let pool = try PostgresPool(configuration, logger: TestLog.logger)
                    defer { pool.close() }
                    let hasty = try TestDispatcher.make(pool, redis, keys)
                    do {
                        _ = try await DigestService(dispatcher: hasty).flush(atMost: 1)
                        return nil
                    } catch let error as PostgresError {
                        return error.code == .timeout ? true : nil
                    }
                }
            }
            // The server may still claim it for 30 s, once the lock is free.
            let late = try await database.pool.query(
                "SELECT FROM carillon.digests WHERE due_at > $1", .timestamp(TestDispatcher.now + .seconds(60)))
            #expect(late.isEmpty)
        }
    }
}
