// Carillon · RetryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Providers
import Storage
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline

/// Retries that return to their streams.
@Suite(.timeLimit(.minutes(10)))
struct RetryServiceTests {
    private static func add(
        _ numbers: Range<UInt64>, _ lane: Lane, _ redis: RedisClient, _ keys: Keyspace
    ) async throws {
        let set = Live(redis, keys: keys).retries
        var batch = RedisBatch()
        for number in numbers {
            let work = DeliveryWork(
                notification: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + number),
                device: DeviceID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0003),
                user: "ada", attempt: 1, isRepeat: true)
            set.add(work, due: TestDispatcher.now, provider: .fcm, lane: lane, in: &batch)
        }
        try await redis.run(batch)
    }

    @Test("moves a retry that another dispatcher left, soon after it is due")
    func left() async throws {
        let start = ContinuousClock.now
        try await TestDispatcher.with(now: { TestDispatcher.now + (ContinuousClock.now - start) }) { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 64, readers: [])
            let mover = RetryService(dispatcher: dispatcher, deliveries: [service])
            let running = Task { try await mover.run() }
            // This process is not told about it.
            try await Self.add(0..<1, .normal, redis, keys)
            try await eventually("it is moved") {
                try await redis.send("XLEN", .text(keys.deliveries(.fcm, .normal))).integer() == 1
            }
            running.cancel()
            try await running.value
        }
    }

    @Test("logs the first failure alone until it has moved everything again")
    func failing() async throws {
        let start = ContinuousClock.now
        let warnings = LogRecorder(from: .warning) { "\($0.message)" }
        try await TestDispatcher.with(
            now: { TestDispatcher.now + (ContinuousClock.now - start) }, logger: warnings.logger
        ) { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 64, readers: [])
            let mover = RetryService(dispatcher: dispatcher, deliveries: [service])
            let stream = keys.deliveries(.fcm, .normal)
            func length(_ lane: Lane) async throws -> Int64 {
                try await redis.send("XLEN", .text(keys.deliveries(.fcm, lane))).integer()
            }
            try await redis.send("SET", .text(stream), "no stream")
            try await Self.add(0..<1, .normal, redis, keys)
            let running = Task { try await mover.run() }
            // The critical lane goes first in each look, so two looks follow the failed one.
            for number in 0..<3 as Range<UInt64> {
                try await Self.add(10 + number..<11 + number, .critical, redis, keys)
                try await eventually("a look has moved it") { try await length(.critical) == Int64(number) + 1 }
            }
            #expect(warnings.all == ["cannot move due deliveries; retrying"])
            try await redis.send("DEL", .text(stream))
            try await eventually("it is moved") { try await length(.normal) == 1 }
            try await redis.send("SET", .text(stream), "no stream")
            try await Self.add(1..<2, .normal, redis, keys)
            try await eventually("the next failure is logged") { warnings.all.count == 2 }
            running.cancel()
            try await running.value
        }
    }

    @Test("moves thousands that are due as the stream empties, each once, and critical ones at once")
    func backlog() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 64, readers: [])
            let mover = RetryService(dispatcher: dispatcher, deliveries: [service])
            let set = dispatcher.live.retries
            func length(_ lane: Lane) async throws -> Int {
                Int(try await redis.send("XLEN", .text(keys.deliveries(.fcm, lane))).integer())
            }
            try await Self.add(0..<3_000, .normal, redis, keys)
            try await Self.add(3_000..<3_300, .critical, redis, keys)
            await mover.move(service, in: dispatcher.live)
            #expect(try await length(.critical) == 300)
            #expect(try await length(.normal) == service.mostWaiting)
            var total = 0
            var rounds = 0
            while try await set.count(provider: .fcm, lane: .normal) > 0, rounds < 100 {
                total += try await length(.normal)
                _ = try await redis.send("DEL", .text(keys.deliveries(.fcm, .normal)))
                await mover.move(service, in: dispatcher.live)
                rounds += 1
            }
            #expect(rounds > 5)
            #expect(try await total + length(.normal) == 3_000, "each once")
        }
    }
}

/// Retries and held-back deliveries of two apps of one provider.
@Suite(.timeLimit(.minutes(10)))
struct RetryFairnessTests {
    /// Seconds that pass when the test says so.
    private final class Seconds: Sendable {
        private let count = Mutex<Int64>(0)

        var now: Timestamp { TestDispatcher.now + .seconds(self.count.withLock { $0 }) }

        func pass(_ count: Int64) {
            self.count.withLock { $0 += count }
        }
    }

    /// A dispatcher's retry service, for the apps `big` and `small`.
    private final class Bench: Sendable {
        private let sent = Mutex<[String: Int]>([:])
        let redis: RedisClient
        let keys: Keyspace
        let seconds: Seconds
        let service: DeliveriesService
        let mover: RetryService

        init(_ database: TestDatabase, _ redis: RedisClient, _ prefix: String) throws {
            let keys = Keyspace(prefix: prefix)
            let seconds = Seconds()
            let dispatcher = try TestDispatcher.make(
                database.pool, redis, keys, [FakeChannel(app: "big"), FakeChannel(app: "small")], now: { seconds.now })
            let service = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: [])
            self.redis = redis
            self.keys = keys
            self.seconds = seconds
            self.service = service
            self.mover = RetryService(dispatcher: dispatcher, deliveries: [service])
        }

        var live: Live { Live(self.redis, keys: self.keys) }
        var retries: RetrySet { self.live.retries }

        private func work(_ number: UInt64, _ user: String, attempt: Int) -> DeliveryWork {
            DeliveryWork(
                notification: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + number),
                device: DeviceID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0003),
                user: user, attempt: attempt, isRepeat: attempt > 0)
        }

        /// Holds deliveries back that are due now.
        func hold(_ numbers: Range<UInt64>, _ lane: Lane = .normal, of app: String) async throws {
            try await self.hold(numbers, lane, of: BreakerScope(app))
        }

        func hold(_ numbers: Range<UInt64>, _ lane: Lane, of scope: BreakerScope) async throws {
            var batch = RedisBatch()
            for number in numbers {
                self.retries.add(
                    self.work(number, scope.app, attempt: 0), due: TestDispatcher.now, provider: .fcm, lane: lane,
                    scope: scope, in: &batch)
            }
            try await self.redis.run(batch)
        }

        /// Adds retries that are due now.
        func retry(_ numbers: Range<UInt64>, user: String) async throws {
            var batch = RedisBatch()
            for number in numbers {
                self.retries.add(
                    self.work(number, user, attempt: 1), due: TestDispatcher.now, provider: .fcm, lane: .normal,
                    in: &batch)
            }
            try await self.redis.run(batch)
        }

        /// Returns the number of each user's deliveries in a stream.
        func moved(_ lane: Lane = .normal) async throws -> [String: Int] {
            var counts: [String: Int] = [:]
            for entry in try await self.redis.entries(of: self.keys.deliveries(.fcm, lane)) {
                let work = try DeliveryWork(entry[DeliveryWork.field] ?? [])
                counts[work.user, default: 0] += 1
            }
            return counts
        }

        /// Removes the normal stream's deliveries, as calls would.
        func send() async throws {
            for (user, count) in try await self.moved() { self.sent.withLock { $0[user, default: 0] += count } }
            _ = try await self.redis.send("DEL", .text(self.keys.deliveries(.fcm, .normal)))
        }

        /// Returns the number of each user's moved deliveries, sent ones included.
        func total() async throws -> [String: Int] {
            let moved = try await self.moved()
            return self.sent.withLock { $0.merging(moved) { $0 + $1 } }
        }

        /// Returns the number of held-back deliveries in the normal lane.
        func waiting() async throws -> Int {
            var count = 0
            for scope in try await self.retries.heldScopes(provider: .fcm, lane: .normal) {
                count += try await self.retries.count(provider: .fcm, lane: .normal, scope: scope)
            }
            return count
        }

        /// Runs the retry service a second later.
        func step() async {
            self.seconds.pass(1)
            await self.mover.move(self.service, in: self.live)
        }
    }

    private static func with(_ body: (Bench) async throws -> Void) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await body(try Bench(database, redis, prefix))
            }
        }
    }

    @Test("an unavailable app delays no delivery of another app")
    func unavailableApp() async throws {
        try await Self.with { bench in
            try await bench.hold(0..<3_000, of: "big")
            try await bench.hold(3_000..<3_001, of: "small")
            try await bench.retry(4_000..<4_001, user: "small")
            bench.service.health.hold(
                ["big"], until: TestDispatcher.now + .seconds(60), now: TestDispatcher.now)
            await bench.mover.move(bench.service, in: bench.live)
            #expect(try await bench.moved() == ["small": 2])
            #expect(try await bench.waiting() == 3_000)
            #expect(try await bench.retries.heldScopes(provider: .fcm, lane: .normal) == [BreakerScope("big")])
        }
    }

    @Test("retries and held-back deliveries of two apps share the room of a stream")
    func shares() async throws {
        try await Self.with { bench in
            try await bench.hold(0..<3_000, of: "big")
            try await bench.hold(3_000..<3_001, of: "small")
            try await bench.retry(4_000..<7_000, user: "tried")
            await bench.mover.move(bench.service, in: bench.live)
            let moved = try await bench.moved()
            #expect(moved["small"] == 1)
            #expect(moved["tried"].map { $0 >= 10 } == true)
            #expect(moved["big"].map { $0 >= 10 } == true)
            #expect(moved.values.reduce(0, +) == bench.service.mostWaiting)
        }
    }

    @Test("moves a few retries even to a full stream")
    func full() async throws {
        try await Self.with { bench in
            try await bench.retry(0..<100, user: "tried")
            await bench.mover.move(bench.service, in: bench.live)
            #expect(try await bench.moved() == ["tried": bench.service.mostWaiting])
            await bench.step()
            #expect(try await bench.moved() == ["tried": bench.service.mostWaiting + bench.service.fewestRetries])
        }
    }

    @Test("probes an app that is back, then moves its backlog, while another app's goes on")
    func comesBack() async throws {
        try await Self.with { bench in
            let health = bench.service.health
            try await bench.hold(0..<1_000, of: "big")
            try await bench.hold(3_000..<3_300, .critical, of: "big")
            try await bench.hold(4_000..<4_020, of: "small")
            health.hold(["big"], until: TestDispatcher.now + .seconds(60), now: TestDispatcher.now)
            await bench.mover.move(bench.service, in: bench.live)
            #expect(try await bench.moved() == ["small": 20])
            #expect(try await bench.moved(.critical).isEmpty)

            bench.seconds.pass(60)
            await bench.step()
            #expect(try await bench.moved()["big"] == 4, "probes")
            #expect(try await bench.moved(.critical) == ["big": 4], "probes")

            #expect(health.admit(BreakerScope("big"), isShared: true, now: bench.seconds.now) == .yes)
            health.record(ProviderReply(.answered(.accepted(id: nil))), BreakerScope("big"), now: bench.seconds.now)
            await bench.step()
            #expect(try await bench.moved(.critical) == ["big": 300])
            var steps = 0
            while try await bench.waiting() > 0, steps < 1_000 {
                try await bench.send()
                await bench.step()
                steps += 1
            }
            #expect(steps > 10)
            #expect(try await bench.total() == ["big": 1_000, "small": 20], "each once")
        }
    }

    @Test("probes a push service that is back, then moves its backlog, and delays no other service")
    func service() async throws {
        try await Self.with { bench in
            let health = bench.service.health
            let dead = BreakerScope("big", service: "https://dead.example")
            try await bench.hold(0..<300, .critical, of: dead)
            try await bench.hold(1_000..<1_020, .critical, of: "big")
            health.hold(
                ["big"], service: dead.service, until: TestDispatcher.now + .seconds(60), now: TestDispatcher.now)
            await bench.mover.move(bench.service, in: bench.live)
            #expect(try await bench.moved(.critical) == ["big": 20])
            #expect(try await bench.retries.heldScopes(provider: .fcm, lane: .critical) == [dead])

            bench.seconds.pass(60)
            await bench.step()
            #expect(try await bench.moved(.critical) == ["big": 24], "probes")

            #expect(health.admit(dead, isShared: true, now: bench.seconds.now) == .yes)
            health.record(ProviderReply(.answered(.accepted(id: nil))), dead, now: bench.seconds.now)
            await bench.step()
            #expect(try await bench.moved(.critical) == ["big": 320])
        }
    }

    @Test("moves what has long been due although its provider is unavailable, so that it can expire")
    func overdue() async throws {
        try await Self.with { bench in
            try await bench.hold(0..<30, of: "big")
            try await bench.retry(4_000..<4_002, user: "tried")
            bench.seconds.pass(599)
            let until = bench.seconds.now + .seconds(60)
            bench.service.health.hold(["big", "small"], until: until, now: bench.seconds.now)
            #expect(await bench.mover.move(bench.service, in: bench.live).next == until)
            #expect(try await bench.moved().isEmpty)
            bench.seconds.pass(1)
            #expect(await bench.mover.move(bench.service, in: bench.live).next == until)
            #expect(try await bench.moved() == ["big": 30, "tried": 2])
        }
    }

    @Test("moves the held-back deliveries of an app that no longer exists")
    func unknownApp() async throws {
        try await Self.with { bench in
            try await bench.hold(0..<30, of: "gone")
            bench.service.health.hold(["gone"], until: TestDispatcher.now + .seconds(60), now: TestDispatcher.now)
            await bench.mover.move(bench.service, in: bench.live)
            #expect(try await bench.moved() == ["gone": 30])
            #expect(try await bench.retries.heldScopes(provider: .fcm, lane: .normal).isEmpty)
        }
    }
}

struct RetryPolicyTests {
    private static let now = Timestamp(seconds: 1_000)
    private static let policy = RetryPolicy(backoff: Backoff(base: .seconds(1), limit: .seconds(8)), tries: 4)

    private static func next(
        tried: Int,
        minimum: Duration? = nil,
        expiresAt: Timestamp? = nil
    ) -> Timestamp? {
        var generator = SystemRandomNumberGenerator()
        return self.policy.next(
            tried: tried,
            since: self.now,
            minimum: minimum,
            now: self.now,
            expiresAt: expiresAt,
            using: &generator
        )
    }

    @Test("delays stay under a ceiling that doubles, and tries end", arguments: 1...3)
    func ceiling(tried: Int) throws {
        for _ in 0..<200 {
            let due = try #require(Self.next(tried: tried))
            #expect(due >= Self.now)
            #expect(due <= Self.now + .seconds(1 << (tried - 1)))
        }
        #expect(Self.next(tried: 4) == nil)
    }

    @Test("the delay that the provider asks for is a minimum")
    func floor() throws {
        for _ in 0..<200 {
            let due = try #require(Self.next(tried: 1, minimum: .seconds(60)))
            #expect(due >= Self.now + .seconds(60))
            #expect(due <= Self.now + .seconds(61))
        }
    }

    @Test("a try that would come too late is due at the expiry")
    func expiry() throws {
        for seconds in [-1, 0, 20, 60] as [Int64] {
            let expiry = Self.now + .seconds(seconds)
            #expect(Self.next(tried: 1, minimum: .seconds(60), expiresAt: expiry) == expiry)
        }
        let expiry = Self.now + .seconds(120)
        let due = try #require(Self.next(tried: 1, minimum: .seconds(60), expiresAt: expiry))
        #expect(due < expiry)
        #expect(Self.next(tried: 4, minimum: .seconds(60), expiresAt: expiry) == nil)
    }

    @Test("jitter takes at most half of the time that is left")
    func lastTries() throws {
        for _ in 0..<200 {
            let due = try #require(Self.next(tried: 3, expiresAt: Self.now + .seconds(1)))
            #expect(due <= Self.now + .milliseconds(500))
            let expiry = Self.now + .seconds(61)
            let late = try #require(Self.next(tried: 3, minimum: .seconds(60), expiresAt: expiry))
            #expect(late >= Self.now + .seconds(60))
            #expect(late <= Self.now + .milliseconds(60_500))
        }
    }

    @Test("jitter may end the tries when less than its first ceiling is left")
    func end() {
        let expiry = Self.now + .milliseconds(500)
        let dues = (0..<200).compactMap { _ in Self.next(tried: 3, expiresAt: expiry) }
        #expect(dues.count == 200)
        #expect(dues.max() == expiry)
    }

    /// Returns the longest delays of a policy, as many as its tries if they are counted.
    private static func ceilings(_ lane: Lane, _ provider: Provider) -> [Duration] {
        let policy = RetryPolicy.of(lane, provider)
        return (0..<policy.tries - 1).map { policy.backoff.ceiling(attempt: $0) }
    }

    @Test(
        "the ceilings of all lanes, and their sums",
        arguments: [
            (.critical, .fcm, [1, 2, 4, 8, 15, 15], 40, 540),
            (.normal, .fcm, [15, 30, 60, 120, 240, 480, 960], 8, 1_905),
            (.bulk, .fcm, [60, 120, 240, 480, 960, 1_920, 3_840, 7_200, 7_200], 16, 65_220),
            (.critical, .email, [60, 120, 240, 480, 900, 900], 40, 32_400),
            (.normal, .email, [120, 240, 480, 960, 1_920, 3_600, 3_600], 24, 68_520),
            (.bulk, .email, [300, 600, 1_200, 2_400, 4_800, 7_200, 7_200], 16, 81_300),
        ] as [(Lane, Provider, [Int], Int, Int)]
    )
    func table(lane: Lane, provider: Provider, first: [Int], tries: Int, total: Int) {
        let ceilings = Self.ceilings(lane, provider)
        #expect(Array(ceilings.prefix(first.count)) == first.map { Duration.seconds($0) })
        #expect(ceilings.count == tries - 1)
        let sum = ceilings.reduce(Duration.zero) { $0 + $1 }
        #expect(sum == .seconds(total))
        // No delivery is retried for longer than a day.
        #expect(total <= 86_400)
    }

    @Test(
        "all push services have the same delays", arguments: Lane.allCases, Provider.all.filter { $0 != .email })
    func pushes(lane: Lane, provider: Provider) {
        #expect(RetryPolicy.of(lane, provider) == RetryPolicy.of(lane, .fcm))
    }

    @Test(
        "critical deliveries retry any number of times for a day, then by count",
        arguments: [Provider.fcm, .email]
    )
    func critical(provider: Provider) throws {
        let policy = RetryPolicy.of(.critical, provider)
        func next(tried: Int, after age: Int64 = 0, expiresAt: Timestamp?) -> Timestamp? {
            var generator = SystemRandomNumberGenerator()
            return policy.next(
                tried: tried, since: Self.now - .seconds(age), minimum: nil, now: Self.now, expiresAt: expiresAt,
                using: &generator)
        }
        let tomorrow = Self.now + .seconds(86_400)
        for tried in [39, 40, 41, 5_000] {
            let due = try #require(next(tried: tried, expiresAt: tomorrow))
            #expect(due <= Self.now + policy.backoff.limit)
        }
        #expect(next(tried: 5_000, expiresAt: Self.now) == Self.now)
        #expect(next(tried: 5_000, after: 86_399, expiresAt: tomorrow) != nil)
        // A provider that was down for days gets the counted tries.
        #expect(next(tried: 39, after: 5 * 86_400, expiresAt: tomorrow) != nil)
        #expect(next(tried: 40, after: 86_400, expiresAt: tomorrow) == nil)
    }

    @Test("other lanes end by count before they expire", arguments: [Lane.normal, .bulk], Provider.all)
    func counted(lane: Lane, provider: Provider) {
        var generator = SystemRandomNumberGenerator()
        let policy = RetryPolicy.of(lane, provider)
        let due = policy.next(
            tried: policy.tries, since: Self.now, minimum: nil, now: Self.now,
            expiresAt: Self.now + .seconds(30 * 86_400), using: &generator)
        #expect(due == nil)
    }

    @Test("no lane retries sooner than the critical one", arguments: Lane.allCases, Provider.all)
    func lanes(lane: Lane, provider: Provider) {
        let policy = RetryPolicy.of(lane, provider)
        let critical = RetryPolicy.of(.critical, provider)
        #expect(policy.backoff.ceiling(attempt: 0) >= critical.backoff.ceiling(attempt: 0))
        #expect(policy.tries > 1)
    }

    @Test("mail retries for hours in every lane", arguments: Lane.allCases)
    func mail(lane: Lane) {
        let policy = RetryPolicy.of(lane, .email)
        let longest = (0..<policy.tries).reduce(Duration.zero) { $0 + policy.backoff.ceiling(attempt: $1) }
        #expect(policy.backoff.ceiling(attempt: 0) >= .seconds(60))
        #expect(longest >= .seconds(8 * 3_600))
    }
}
