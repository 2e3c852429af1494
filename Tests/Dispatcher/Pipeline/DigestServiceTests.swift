// Carillon · DigestServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
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
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, keys, [NotificationType(name: "news")], eventsLength: 100)
                dispatcher.leaseClock.renewed(at: .now)
                let items = (1...2).map { number in
                    DigestStore.Item(
                        notification: Notification(
                            id: NotificationID(
                                high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + UInt64(number)),
                            user: "ada", type: "news", createdAt: TestDispatcher.now),
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
                let events = try await redis.entries(of: keys.events).compactMap { $0.texts["event"] }
                #expect(events.count { $0 == "summarised" } == 2)
            }
        }
    }

    @Test("windows that outlast the time limit together are flushed one by one")
    func oneByOne() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let types = [NotificationType(name: "news")]
                let digests = Database(database.pool).digests
                for (number, user) in ["ada", "bob"].enumerated() {
                    let item = DigestStore.Item(
                        notification: Notification(
                            id: NotificationID(
                                high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + UInt64(number)),
                            user: user, type: "news", createdAt: TestDispatcher.now),
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
                let hasty = try TestDispatcher.make(pool, redis, keys, types)
                hasty.leaseClock.renewed(at: .now)
                try await database.pool.transaction { transaction in
                    // As if Bob's window, the later one, took very long.
                    try await transaction.query("SELECT FROM carillon.digest_items WHERE user_id = 'bob' FOR UPDATE")
                    let run = Task { try await DigestService(dispatcher: hasty).run() }
                    defer { run.cancel() }
                    try await eventually("Ada's is sent") {
                        // No `DueService` runs here.
                        hasty.alarms.digests.note(TestDispatcher.now)
                        return try await sent() == ["ada"]
                    }
                    run.cancel()
                    _ = await run.result
                }
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, types)
                dispatcher.leaseClock.renewed(at: .now)
                _ = try await DigestService(dispatcher: dispatcher).flush()
                #expect(try await sent() == ["ada", "bob"])
            }
        }
    }
}
