// Carillon · DigestServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

@Suite("Flushing digests", .timeLimit(.minutes(10)))
struct DigestServiceTests {
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
                    try await eventually("Ada's is sent") { try await sent() == ["ada"] }
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
