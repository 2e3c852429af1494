// Carillon · UserRateTests.swift
// SPDX-License-Identifier: Apache-2.0

import Fixtures
import Redis
import Services
import Streams
import Testing

@Suite("Rates of users", .timeLimit(.minutes(10)))
struct UserRateTests {
    @Test("Who does too much waits, on every node; others go on")
    func bound() async throws {
        try await TestRedis.with { connection, prefix in
            let buckets = TokenBuckets(connection: connection, keys: Keyspace(prefix: prefix))
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

    @Test("While Redis is out of reach nobody waits")
    func failsOpen() async throws {
        var configuration = RedisConfiguration(
            address: try RedisAddress(url: "redis://127.0.0.1:1/0"), clientName: "test")
        configuration.commandTimeout = .milliseconds(50)
        try await TestRedis.with(configuration) { connection in
            let buckets = TokenBuckets(connection: connection, keys: Keyspace())
            let rate = UserRate(kind: .calls, perSecond: 1, burst: 4, buckets: buckets)
            await withTaskGroup(of: Void.self) { group in
                group.addTask { await rate.run() }
                for _ in 0..<20_000 { #expect(rate.delay("busy") == nil) }
                group.cancelAll()
            }
        }
    }
}
