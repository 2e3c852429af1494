// Carillon · RetryServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Synchronization
import Testing

@testable import Pipeline

/// How due retries return to their streams.
@Suite(.timeLimit(.minutes(10)))
struct RetryServiceTests {
    private static func add(
        _ numbers: Range<UInt64>, _ lane: Lane, _ redis: RedisConnection, _ keys: Keyspace
    ) async throws {
        let set = Live(redis, keys: keys).retries
        var batch = RedisBatch()
        for number in numbers {
            let work = DeliveryWork(
                notification: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + number),
                device: NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0003),
                user: "ada", attempt: 1, isRepeat: true)
            set.add(work, due: TestDispatcher.now, provider: .fcm, lane: lane, in: &batch)
        }
        for reply in try await redis.send(batch) { _ = try reply.checked() }
    }

    @Test("releases thousands of due retries in steps, each once, after a provider failed")
    func delayed() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let seconds = Mutex<Int64>(0)
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, keys, [NotificationType(name: "news")],
                    now: { TestDispatcher.now + .seconds(seconds.withLock { $0 }) })
                let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: [:])
                let retries = RetryService(dispatcher: dispatcher, deliveries: [service])
                let set = Live(redis, keys: keys).retries
                func length(_ lane: Lane) async throws -> Int {
                    Int(try await redis.send("XLEN", .text(keys.deliveries(.fcm, lane))).integer())
                }
                /// Counts the normal retries that return one second later.
                func moved() async throws -> Int {
                    let before = try await length(.normal)
                    seconds.withLock { $0 += 1 }
                    await retries.move(service)
                    return try await length(.normal) - before
                }

                try await Self.add(0..<3_000, .normal, redis, keys)
                try await Self.add(3_000..<3_300, .critical, redis, keys)
                service.traffic.note(sent: 100, failed: 100)
                await retries.move(service)
                #expect(try await length(.critical) == 300, "critical deliveries do not wait")
                #expect(try await length(.normal) == 0)
                for _ in 0..<5 { #expect(try await moved() == 20) }

                service.traffic.note(sent: 100, failed: 0)
                seconds.withLock { $0 += 10 }
                var steps: [Int] = []
                while try await set.count(provider: .fcm, lane: .normal) > 0, steps.count < 100 {
                    steps.append(try await moved())
                }
                let full = Array(steps.dropLast())
                #expect(full == full.sorted())
                #expect(steps.first == 20)
                #expect(steps.max().map { $0 <= 400 } == true)
                #expect(steps.count > 20)
                #expect(try await length(.normal) == 3_000, "each delivery once")

                // Nothing is due, so the limits are lifted.
                _ = try await moved()
                try await Self.add(4_000..<5_000, .normal, redis, keys)
                #expect(try await moved() == 1_000)
            }
        }
    }
}
