// Carillon · OutboxRelayTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Operations
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

@Suite("Outbox metrics", .timeLimit(.minutes(10)))
struct OutboxRelayTests {
    /// Makes a relay whose clock is a second later at each call.
    private static func make(
        _ database: TestDatabase,
        _ redis: RedisClient,
        _ prefix: String,
        _ configuration: PostgresConfiguration,
        _ registry: PrometheusRegistry
    ) throws -> OutboxRelay {
        let seconds = Mutex(0)
        let dispatcher = try TestDispatcher.make(
            database.pool, redis, Keyspace(prefix: prefix), [NotificationType(name: "news")],
            now: {
                seconds.withLock { seconds in
                    seconds += 1
                    return TestDispatcher.now + .seconds(seconds)
                }
            })
        return OutboxRelay(dispatcher: dispatcher, name: "own", configuration: configuration, metrics: registry)
    }

    private static func value(_ name: String, _ registry: PrometheusRegistry) -> Double? {
        let start = "carillon_outbox_\(name){database=\"own\"} "
        let line = registry.render().split(separator: "\n").first { $0.hasPrefix(start) }
        return line.flatMap { Double($0.dropFirst(start.count)) }
    }

    @Test("the age grows while the outbox cannot be read")
    func unreachable() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let nowhere = PostgresConfiguration(
                    connectionString: "postgresql://127.0.0.1:1/none", applicationName: "test")
                let registry = PrometheusRegistry()
                let relay = try Self.make(database, redis, prefix, nowhere, registry)
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask { try? await relay.run() }
                    try await eventually("it has grown") { (Self.value("age", registry) ?? 0) >= 2 }
                    group.cancelAll()
                }
            }
        }
    }

    @Test("a long round counts the waiting rows again and again")
    func longRound() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await database.pool.query(
                    """
                    SELECT carillon.enqueue(jsonb_build_object('user', 'ada', 'type', 'news', 'title', n::text))
                    FROM generate_series(1, 1000) n
                    """)
                var configuration = database.configuration()
                // A deletion that waits for the lock below must not end the round.
                configuration.timeout = .seconds(600)
                let registry = PrometheusRegistry()
                let relay = try Self.make(database, redis, prefix, configuration, registry)
                let running = try await database.pool.transaction { transaction in
                    // The third batch has this row.
                    try await transaction.query(
                        "SELECT FROM carillon.outbox WHERE fields ->> 'title' = '600' FOR UPDATE")
                    let running = Task { _ = try? await relay.run() }
                    defer { running.cancel() }
                    try await eventually("two batches have moved, and the metric shows it") {
                        Self.value("waiting", registry) == 488
                    }
                    return running
                }
                await running.value
            }
        }
    }
}
