// Carillon · SurveyServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Operations
import Storage
import Support
import Testing

@testable import Core
@testable import HTTP

@Suite("Survey of Redis", .timeLimit(.minutes(10)))
struct SurveyServiceTests {
    private static func value(_ name: String, _ registry: PrometheusRegistry) -> Double? {
        let line = registry.render().split(separator: "\n").first { $0.hasPrefix(name + " ") }
        return line.flatMap { Double($0.dropFirst(name.count + 1)) }
    }

    @Test("a stream that cannot be read leaves processes and memory fresh")
    func parts() async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                let keys = Keyspace(prefix: prefix)
                // No stream, so its length cannot be read.
                try await redis.send("SET", .text(keys.jobs(.critical)), "x")
                let register = Lease.Register(key: keys.dispatchers, name: "d", now: { Tokens.now })
                let lease = Lease(
                    key: keys.dispatcherLease("d"), value: "dispatcher", register: register, connection: redis)
                _ = try await lease.renew()
                let base = try GatewayBase.forTests(database.pool, redis, keys)
                let registry = PrometheusRegistry()
                let survey = SurveyService(base, interval: .milliseconds(20), metrics: registry)
                // A 0 before the first answer would be an alert.
                #expect(Self.value("carillon_redis_durable", registry) == nil)
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask { await survey.run() }
                    try await eventually("the dispatcher and the memory are seen") {
                        Self.value("carillon_dispatchers_alive", registry) == 1
                            && (Self.value("carillon_redis_memory_bytes", registry) ?? 0) > 0
                            && Self.value("carillon_redis_durable", registry) != nil
                    }
                    group.cancelAll()
                }
            }
        }
    }

    @Test("the age of an entry is by Redis's clock, which dates it, not by the gateway's")
    func age() async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                let keys = Keyspace(prefix: prefix)
                try await redis.send("XADD", .text(keys.jobs(.critical)), "*", "user", "ada")
                let ahead = Timestamp.now() + .seconds(86_400)
                let base = try GatewayBase.forTests(database.pool, redis, keys, now: { ahead })
                let registry = PrometheusRegistry()
                let survey = SurveyService(base, interval: .milliseconds(20), metrics: registry)
                func gauge(_ name: String, _ lane: String) -> Double? {
                    Self.value("carillon_stream_\(name){stream=\"jobs\",lane=\"\(lane)\"}", registry)
                }
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask { await survey.run() }
                    // The lane that follows in the same look.
                    try await eventually("the stream has been read") { gauge("length", "normal") != nil }
                    group.cancelAll()
                }
                #expect(gauge("length", "critical") == 1)
                #expect(Self.value("carillon_stream_length{stream=\"overflow\",lane=\"bulk\"}", registry) == 0)
                #expect((gauge("oldest_seconds", "critical") ?? .infinity) < 3_600)
            }
        }
    }

    @Test("the memory is that of the server that uses most of its limit, which may be the machine's memory")
    func memory() {
        func server(used: Int, limit: Int) -> RedisFacts {
            RedisFacts(info: "used_memory:\(used)\r\nmaxmemory:\(limit)\r\ntotal_system_memory:10000\r\n")
        }
        let full = server(used: 95, limit: 100)
        let roomy = server(used: 200, limit: 1_000)
        let unlimited = server(used: 9_600, limit: 0)
        #expect(SurveyService.fullest([roomy, full, server(used: 5_000, limit: 0), roomy]) == full)
        #expect(SurveyService.fullest([roomy, full, unlimited]) == unlimited)
        let (small, large) = (RedisFacts(info: "used_memory:5\r\n"), RedisFacts(info: "used_memory:9\r\n"))
        #expect(SurveyService.fullest([small, large, small]) == large)
        #expect(SurveyService.fullest([]) == nil)
    }

    @Test("the memory limit is a number of Redis without maxmemory too, and absent if Redis states neither")
    func memoryLimit() {
        func limit(_ info: String) -> Double? {
            let registry = PrometheusRegistry()
            SurveyMetrics(factory: registry).record(
                SurveyService.fullest([RedisFacts(info: "used_memory:5\r\n" + info)]), isDurable: true)
            return Self.value("carillon_redis_memory_limit_bytes", registry)
        }
        #expect(limit("maxmemory:0\r\ntotal_system_memory:100\r\n") == 100)
        #expect(limit("maxmemory:50\r\ntotal_system_memory:100\r\n") == 50)
        #expect(limit("maxmemory:0\r\n") == nil)
    }
}
