// Carillon · UserRateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Operations
import Storage
import Support
import Testing

@testable import HTTP

@Suite("User rate limits", .timeLimit(.minutes(10)))
struct UserRateTests {
    @Test("delays a user over the limit on every node, and no other")
    func bound() async throws {
        try await TestRedis.with { connection, prefix in
            let buckets = Live(connection, keys: Keyspace(prefix: prefix)).buckets
            let rates = (0..<2).map { _ in UserRate(kind: .calls, perSecond: 1, burst: 40, buckets: buckets) }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for rate in rates { group.addTask { await rate.run() } }
                var count = 0
                try await eventually("the first has to wait") {
                    count += 1
                    return rates[0].delay("busy") != nil
                }
                #expect(count > 40)
                try await eventually("and the second soon after") { rates[1].delay("busy") != nil }
                let delay = rates[0].delay("busy") ?? .zero
                #expect(delay > .zero && delay <= .seconds(40))
                #expect(rates[0].delay("calm") == nil)
                group.cancelAll()
            }
        }
    }

    @Test("limits users of the other masters of a cluster while one is away")
    func absentMaster() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let keys = Keyspace(parts: 16)
        func user(of master: Int) throws -> String {
            let user = (0..<200).map { "user-\($0)" }.first { user in
                cluster.number(ofKey: keys.part(of: user).jobs(.normal)) == master
            }
            return try #require(user)
        }
        let away = try user(of: 0)
        let busy = try user(of: 1)
        try await TestRedis.with(try cluster.configuration()) { connection in
            try await cluster.lose(0)
            let buckets = Live(connection, keys: keys).buckets
            // With so small a burst, each call is a batch.
            let rate = UserRate(kind: .calls, perSecond: 1, burst: 4, buckets: buckets)
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { await rate.run() }
                try await eventually("the busy user has to wait") {
                    #expect(rate.delay(away) == nil)
                    return rate.delay(busy) != nil
                }
                group.cancelAll()
            }
        }
    }

    @Test("delays no further user while as many as it holds are over the limit, and counts this")
    func manyUsers() async throws {
        try await TestRedis.with { connection, prefix in
            let buckets = Live(connection, keys: Keyspace(prefix: prefix)).buckets
            let registry = PrometheusRegistry()
            let rate = UserRate(
                kind: .calls, perSecond: 1, burst: 3_600, mostUsers: 1, buckets: buckets, metrics: registry)
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { await rate.run() }
                // Has to wait for an hour.
                #expect(rate.delay("busy", count: 10_000) == nil)
                try await eventually("the first has to wait") { rate.delay("busy") != nil }
                #expect(Self.unchecked(registry) == 0)
                #expect(rate.delay("next") == nil)
                #expect(Self.unchecked(registry) == 1)
                group.cancelAll()
            }
        }
    }

    /// The number of batches that were not counted.
    private static func unchecked(_ registry: PrometheusRegistry) -> Int {
        let line = registry.render().split(separator: "\n").first {
            $0.hasPrefix(#"carillon_rate_unchecked{kind="calls"} "#)
        }
        return line?.split(separator: " ").last.flatMap { Int($0) } ?? 0
    }

    @Test("delays no user while Redis is down, and counts each batch that was not checked")
    func failsOpen() async throws {
        var configuration = RedisConfiguration(
            address: try RedisAddress(url: "redis://127.0.0.1:1/0"), clientName: "test")
        configuration.commandTimeout = .milliseconds(50)
        try await TestRedis.with(configuration) { connection in
            let buckets = Live(connection).buckets
            let registry = PrometheusRegistry()
            let rate = UserRate(kind: .calls, perSecond: 1, burst: 4, buckets: buckets, metrics: registry)
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { await rate.run() }
                // With so small a burst, each call is a batch.
                for _ in 0..<20 { #expect(rate.delay("busy") == nil) }
                try await eventually("all have failed") { Self.unchecked(registry) == 20 }
                // With so many, some cannot wait for Redis.
                for _ in 0..<20_000 { #expect(rate.delay("busy") == nil) }
                #expect(Self.unchecked(registry) > 20)
                group.cancelAll()
            }
        }
    }
}
