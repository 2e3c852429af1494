// Carillon · RetryFairnessTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Providers
import Storage
import Support
import Synchronization
import Testing

@testable import Pipeline

/// How retries and backlogs of two apps of one provider are released.
@Suite(.timeLimit(.minutes(10)))
struct RetryFairnessTests {
    private struct IdleChannel: ProviderChannel {
        let provider = Provider.fcm
        let app: String

        func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
            ProviderReply(.unanswered(reason: "unused", mayHaveBeenSent: false))
        }
    }

    /// A clock that the test advances.
    private final class Seconds: Sendable {
        private let count = Mutex<Int64>(0)

        var now: Timestamp { TestDispatcher.now + .seconds(self.count.withLock { $0 }) }

        func pass(_ count: Int64) {
            self.count.withLock { $0 += count }
        }
    }

    /// A dispatcher's retry service with the apps `big` and `small`.
    private struct Bench {
        let redis: RedisConnection
        let keys: Keyspace
        let seconds: Seconds
        let service: DeliveriesService
        let mover: RetryService

        init(_ database: TestDatabase, _ redis: RedisConnection, _ prefix: String) throws {
            let keys = Keyspace(prefix: prefix)
            let seconds = Seconds()
            let dispatcher = try TestDispatcher.make(
                database.pool, redis, keys, [NotificationType(name: "news")],
                IdleChannel(app: "big"), IdleChannel(app: "small"), now: { seconds.now })
            let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: [:])
            self.redis = redis
            self.keys = keys
            self.seconds = seconds
            self.service = service
            self.mover = RetryService(dispatcher: dispatcher, deliveries: [service])
        }

        var held: HeldSets { Live(self.redis, keys: self.keys).heldSets }
        var retries: RetrySet { Live(self.redis, keys: self.keys).retries }

        private func work(_ number: UInt64, _ user: String, attempt: Int) -> DeliveryWork {
            DeliveryWork(
                notification: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + number),
                device: NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0003),
                user: user, attempt: attempt, isRepeat: attempt > 0)
        }

        /// Holds back deliveries that are due now.
        func hold(_ numbers: Range<UInt64>, _ lane: Lane = .normal, of app: String) async throws {
            var batch = RedisBatch()
            for number in numbers {
                self.held.add(
                    self.work(number, app, attempt: 0), due: TestDispatcher.now, provider: .fcm, lane: lane, app: app,
                    in: &batch)
            }
            for reply in try await self.redis.send(batch) { _ = try reply.checked() }
        }

        /// Adds retries that are due now.
        func retry(_ numbers: Range<UInt64>, user: String, attempt: Int) async throws {
            var batch = RedisBatch()
            for number in numbers {
                self.retries.add(
                    self.work(number, user, attempt: attempt), due: TestDispatcher.now, provider: .fcm, lane: .normal,
                    in: &batch)
            }
            for reply in try await self.redis.send(batch) { _ = try reply.checked() }
        }

        /// The number of deliveries in a stream for each user.
        func moved(_ lane: Lane = .normal) async throws -> [String: Int] {
            let reply = try await self.redis.send("XRANGE", .text(self.keys.deliveries(.fcm, lane)), "-", "+")
            guard var cursor = try reply.cursor(), let entries = try cursor.array() else { return [:] }
            var counts: [String: Int] = [:]
            for _ in 0..<entries {
                // Skips the id, the field list and the name of its only field.
                _ = try cursor.array()
                try cursor.skip()
                _ = try cursor.array()
                try cursor.skip()
                let work = try DeliveryWork(try cursor.bytes() ?? [])
                counts[work.user, default: 0] += 1
            }
            return counts
        }

        /// The size of the normal lane's backlog.
        func waiting() async throws -> Int {
            try await self.held.waiting(provider: .fcm, lane: .normal).count
        }

        /// Moves what one more second allows.
        func step() async {
            self.seconds.pass(1)
            await self.mover.move(self.service)
        }
    }

    private static func with(_ body: (Bench) async throws -> Void) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await body(try Bench(database, redis, prefix))
            }
        }
    }

    @Test("keeps the backlog of one app from delaying another app")
    func outOfUse() async throws {
        try await Self.with { bench in
            try await bench.hold(0..<3_000, of: "big")
            try await bench.hold(3_000..<3_001, of: "small")
            try await bench.retry(4_000..<4_001, user: "small", attempt: 1)
            // An older dispatcher put its backlog here.
            try await bench.retry(4_001..<4_002, user: "small", attempt: 0)
            bench.service.health.hold(
                ["big"], until: TestDispatcher.now + .seconds(60), now: TestDispatcher.now)
            // The budget allows 20 a second.
            bench.service.traffic.note(sent: 100, failed: 100)
            await bench.mover.move(bench.service)
            #expect(try await bench.moved().isEmpty)
            await bench.step()
            #expect(try await bench.moved() == ["small": 3])
            #expect(try await bench.waiting() == 3_000)
            #expect(try await bench.held.apps(provider: .fcm, lane: .normal) == ["big"])
        }
    }

    @Test("shares turns among backlogs of apps and retries")
    func shares() async throws {
        try await Self.with { bench in
            try await bench.hold(0..<3_000, of: "big")
            try await bench.hold(3_000..<3_001, of: "small")
            try await bench.retry(4_000..<7_000, user: "tried", attempt: 1)
            bench.service.traffic.note(sent: 100, failed: 100)
            await bench.mover.move(bench.service)
            await bench.step()
            let moved = try await bench.moved()
            #expect(moved["small"] == 1)
            #expect(moved["tried"].map { $0 >= 10 } == true)
            #expect(moved["big"].map { $0 >= 5 } == true)
            #expect(moved.values.reduce(0, +) == 20)
        }
    }

    @Test("probes a recovered app, then releases its backlog in steps while others continue")
    func comesBack() async throws {
        try await Self.with { bench in
            let health = bench.service.health
            try await bench.hold(0..<3_000, of: "big")
            try await bench.hold(3_000..<3_300, .critical, of: "big")
            try await bench.hold(4_000..<4_500, of: "small")
            health.hold(["big"], until: TestDispatcher.now + .seconds(60), now: TestDispatcher.now)
            await bench.mover.move(bench.service)
            #expect(try await bench.moved() == ["small": 500])
            #expect(try await bench.moved(.critical).isEmpty)

            bench.seconds.pass(60)
            await bench.step()
            await bench.step()
            let probes = try await bench.moved()["big"] ?? 0
            #expect((1...8).contains(probes))

            #expect(health.admit("big", isShared: true, now: bench.seconds.now) == .yes)
            health.note(ProviderReply(.answered(.accepted(id: nil))), app: "big", now: bench.seconds.now)
            var steps: [Int] = []
            while try await bench.waiting() > 0, steps.count < 100 {
                let before = try await bench.moved()["big"] ?? 0
                await bench.step()
                steps.append((try await bench.moved()["big"] ?? 0) - before)
                // Critical deliveries do not wait.
                #expect(try await bench.moved(.critical) == ["big": 300])
            }
            let full = Array(steps.dropLast())
            #expect(full == full.sorted())
            #expect(steps.first.map { (1...40).contains($0) } == true)
            #expect(steps.count > 10)
            #expect(try await bench.moved() == ["big": 3_000, "small": 500], "each delivery once")

            // Nothing is due, so the limits are lifted.
            try await bench.hold(5_000..<6_000, of: "big")
            await bench.step()
            #expect(try await bench.moved()["big"] == 4_000)
        }
    }

    @Test("releases the backlog of an app that was removed")
    func unknownApp() async throws {
        try await Self.with { bench in
            try await bench.hold(0..<500, of: "gone")
            bench.service.health.hold(["gone"], until: TestDispatcher.now + .seconds(60), now: TestDispatcher.now)
            await bench.mover.move(bench.service)
            #expect(try await bench.moved() == ["gone": 500])
            #expect(try await bench.held.apps(provider: .fcm, lane: .normal).isEmpty)
        }
    }
}
