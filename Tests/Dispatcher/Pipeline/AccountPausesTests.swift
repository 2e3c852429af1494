// Carillon · AccountPausesTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Providers
import Storage
import Support
import Synchronization
import Testing

@testable import Pipeline

/// Pauses of accounts: which apps they stop, for how long, and when they are shared.
struct AccountPausesTests {
    private struct Bench {
        let channels = ChannelDirectory(
            [("default", "one"), ("sister", "one"), ("news", "two")].map {
                ChannelDirectory.Entry(FakeChannel(app: $0.0, account: $0.1))
            })
        let health = ProviderHealth(.fcm, calls: 512, logger: TestLog.logger)
        let pauses: AccountPauses

        init() {
            self.pauses = AccountPauses(.fcm, health: self.health, channels: self.channels)
        }

        /// Returns the apps whose breakers are open.
        func held(_ moment: Timestamp) -> [String] {
            self.channels.apps(of: .fcm).filter { app in
                guard self.health.admit(BreakerScope(app), isShared: true, now: moment) == .yes else { return true }
                self.health.withdraw(BreakerScope(app))
                return false
            }
        }
    }

    private static let now = Timestamp(seconds: 1_000)

    private static func at(_ seconds: Int64) -> Timestamp { self.now + .seconds(seconds) }

    private static func pause(_ seconds: Int64, provider: Provider = .fcm, _ account: String = "one")
        -> SendingPauses.Pause
    {
        SendingPauses.Pause(provider: provider, account: account, until: Self.at(seconds))
    }

    @Test("a pause stops all apps of its account, and no other")
    func apps() {
        let bench = Bench()
        let shared = bench.pauses.record("one", service: nil, until: Self.at(7), now: Self.now)
        #expect(shared == Self.pause(7))
        #expect(bench.held(Self.now) == ["default", "sister"])
        #expect(bench.held(Self.at(6)) == ["default", "sister"])
        #expect(bench.held(Self.at(7)).isEmpty)
    }

    @Test("applies the pauses of other dispatchers; the latest end counts")
    func learning() {
        let bench = Bench()
        _ = bench.pauses.record("one", service: nil, until: Self.at(7), now: Self.now)
        bench.pauses.learn([Self.pause(3), Self.pause(5, "two"), Self.pause(60, provider: .apns)], now: Self.at(1))
        #expect(bench.held(Self.at(4)) == ["default", "news", "sister"])
        #expect(bench.held(Self.at(6)) == ["default", "sister"])
        bench.pauses.learn([Self.pause(20)], now: Self.at(6))
        #expect(bench.pauses.record("one", service: nil, until: Self.at(10), now: Self.at(6)) == nil)
        #expect(bench.held(Self.at(19)) == ["default", "sister"])
        #expect(bench.held(Self.at(20)).isEmpty)
        // Over, and read from Redis all the same.
        bench.pauses.learn([Self.pause(20)], now: Self.at(20))
        #expect(bench.held(Self.at(20)).isEmpty)
    }

    @Test("a shared pause that disappears early is lifted; one that is being shared is not")
    func lifting() {
        let bench = Bench()
        // Redis stores whole milliseconds.
        _ = bench.pauses.record(
            "one", service: nil, until: Self.at(70) + .microseconds(300), now: Self.now)
        bench.pauses.learn([], now: Self.at(1))
        #expect(bench.held(Self.at(1)) == ["default", "sister"], "it was under way to Redis")
        // A pause for another reason, which was not lifted.
        bench.health.hold(["sister"], until: Self.at(90), now: Self.at(1))
        bench.pauses.learn([Self.pause(70), Self.pause(70, "two")], now: Self.at(2))
        #expect(bench.held(Self.at(2)) == ["default", "news", "sister"])
        bench.pauses.learn([Self.pause(70, "two"), Self.pause(70, provider: .apns)], now: Self.at(3))
        #expect(bench.held(Self.at(3)) == ["news", "sister"])
        #expect(bench.health.overviews(of: ["default"], now: Self.at(3))["default"]?.state == .probing)
        #expect(bench.pauses.takeUnshared(now: Self.at(3)).isEmpty, "it does not return")
        // The provider asks again.
        #expect(bench.pauses.record("one", service: nil, until: Self.at(60), now: Self.at(4)) == Self.pause(60))
        #expect(bench.held(Self.at(4)) == ["default", "news", "sister"])
    }

    @Test("a pause lasts at most twenty minutes")
    func longest() {
        let bench = Bench()
        #expect(bench.pauses.record("one", service: nil, until: Self.at(86_400), now: Self.now) == Self.pause(1_200))
        #expect(bench.held(Self.at(1_199)) == ["default", "sister"])
        #expect(bench.held(Self.at(1_200)).isEmpty)
        // The app whose call was answered.
        let reply = ProviderReply(.answered(.slowDown(reason: "HTTP_429", after: .seconds(86_400))))
        #expect(bench.health.admit(BreakerScope("news"), isShared: true, now: Self.now) == .yes)
        bench.health.record(reply, BreakerScope("news"), since: Self.now, now: Self.now)
        #expect(bench.held(Self.at(1_199)).contains("news"))
        #expect(!bench.held(Self.at(1_200)).contains("news"))
    }

    @Test("an app that joins a paused account pauses at the next look")
    func newApp() {
        let bench = Bench()
        bench.pauses.learn([Self.pause(7)], now: Self.now)
        bench.channels.replace(with: ChannelDirectory.Entry(FakeChannel(app: "late", account: "one")))
        #expect(bench.held(Self.at(1)) == ["default", "sister"])
        bench.pauses.learn([Self.pause(7)], now: Self.at(1))
        #expect(bench.held(Self.at(1)) == ["default", "late", "sister"])
    }

    @Test("shares a pause once, and again when it is extended")
    func telling() {
        let bench = Bench()
        func record(_ until: Timestamp) -> SendingPauses.Pause? {
            bench.pauses.record("one", service: nil, until: until, now: Self.now)
        }
        #expect(record(Self.at(7)) == Self.pause(7))
        #expect(bench.pauses.takeUnshared(now: Self.now).isEmpty)
        // Each of many answers at once asks for a little more.
        #expect(record(Self.at(7) + .milliseconds(5)) == nil)
        #expect(record(Self.at(8)) == nil)
        #expect(bench.pauses.takeUnshared(now: Self.now) == [Self.pause(8)])
        #expect(bench.pauses.takeUnshared(now: Self.now).isEmpty)
        #expect(record(Self.at(12)) == Self.pause(12))
        // Redis was down.
        bench.pauses.unshare([Self.pause(12)])
        #expect(bench.pauses.takeUnshared(now: Self.now) == [Self.pause(12)])
        // A pause from another dispatcher is not shared again.
        bench.pauses.learn([Self.pause(20)], now: Self.now)
        #expect(bench.pauses.takeUnshared(now: Self.now).isEmpty)
        bench.pauses.unshare([Self.pause(20)])
        #expect(bench.pauses.takeUnshared(now: Self.at(20)).isEmpty, "it is over")
    }

    @Test("shares a shorter pause after the clock has stepped back")
    func steppedBack() {
        let bench = Bench()
        _ = bench.pauses.record("one", service: nil, until: Self.at(86_410), now: Self.at(86_400))
        #expect(bench.pauses.record("one", service: nil, until: Self.at(7), now: Self.now) == Self.pause(7))
        #expect(bench.held(Self.now) == ["default", "sister"])
        #expect(bench.held(Self.at(7)).isEmpty)
    }

    @Test("a pause of one service stops no other")
    func services() {
        let bench = Bench()
        let shared = bench.pauses.record("one", service: "https://slow.example", until: Self.at(7), now: Self.now)
        #expect(shared?.service == "https://slow.example")
        #expect(bench.held(Self.now).isEmpty)
        func admission(_ service: String) -> CircuitBreaker.Admission {
            bench.health.admit(BreakerScope("sister", service: service), isShared: true, now: Self.now)
        }
        #expect(admission("https://slow.example") == .no(until: Self.at(7)))
        #expect(admission("https://other.example") == .yes)
    }

    @Test("pauses of too many services stay in this dispatcher until others end")
    func bound() {
        let bench = Bench()
        for number in 0..<AccountPauses.capacity {
            let until = Self.at(number == 0 ? 5 : 60)
            #expect(bench.pauses.record("one", service: "https://s\(number)", until: until, now: Self.now) != nil)
        }
        #expect(bench.pauses.record("one", service: "https://more", until: Self.at(60), now: Self.now) == nil)
        let more = BreakerScope("sister", service: "https://more")
        let admission = bench.health.admit(more, isShared: true, now: Self.now)
        #expect(admission == .no(until: Self.at(60)))
        #expect(bench.pauses.record("one", service: "https://more", until: Self.at(61), now: Self.at(6)) != nil)
    }
}

/// Pauses that dispatchers share through a real Redis.
@Suite(.timeLimit(.minutes(10)))
struct AccountPauseServiceTests {
    private static let now = TestDispatcher.now

    /// Returns the apps for which a dispatcher makes no call.
    private static func held(_ service: DeliveriesService, after seconds: Int64 = 0) -> [String] {
        ["default", "news", "sister"].filter { app in
            let moment = Self.now + .seconds(seconds)
            guard service.health.admit(BreakerScope(app), isShared: true, now: moment) == .yes else { return true }
            service.health.withdraw(BreakerScope(app))
            return false
        }
    }

    @Test("a pause reaches other dispatchers at their next look; without Redis it stays local")
    func look() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                func start(_ connection: RedisClient) throws -> (DeliveriesService, AccountPauseService) {
                    let dispatcher = try TestDispatcher.make(
                        database.pool, connection, keys,
                        [
                            FakeChannel(app: "default", account: "one"), FakeChannel(app: "sister", account: "one"),
                            FakeChannel(app: "news", account: "two"),
                        ])
                    let deliveries = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: [])
                    return (deliveries, AccountPauseService(dispatcher: dispatcher, deliveries: [deliveries]))
                }
                let (first, firstService) = try start(redis)
                let (second, secondService) = try start(redis)
                let lost = try TestRedis.connect(try await TestRedis.configuration(clientName: "lost"))
                await lost.close()
                let (third, thirdService) = try start(lost)

                let unshared = third.pauses.record("two", service: nil, until: Self.now + .seconds(9), now: Self.now)
                third.pauses.unshare([unshared].compactMap(\.self))
                await thirdService.refresh()
                #expect(Self.held(third) == ["news"], "it knows what it was told itself")
                #expect(third.pauses.takeUnshared(now: Self.now).count == 1, "it is not shared yet")

                let pause = first.pauses.record("one", service: nil, until: Self.now + .seconds(7), now: Self.now)
                // Not shared at once in this test.
                first.pauses.unshare([pause].compactMap(\.self))
                await secondService.refresh()
                #expect(Self.held(second).isEmpty)
                await firstService.refresh()
                await secondService.refresh()
                #expect(Self.held(second) == ["default", "sister"])
                #expect(Self.held(second, after: 7).isEmpty)
                await thirdService.refresh()
                #expect(Self.held(third) == ["news"])
                await firstService.refresh()
                #expect(Self.held(first) == ["default", "sister"])

                // An operator lifts it.
                try await redis.send("HDEL", .text("\(prefix){fcm}:pauses"), "- one")
                await firstService.refresh()
                await secondService.refresh()
                #expect(Self.held(first).isEmpty)
                #expect(Self.held(second).isEmpty)
                await firstService.refresh()
                #expect(Self.held(first).isEmpty, "it does not return")
            }
        }
    }
}

/// The rates of accounts.
@Suite(.timeLimit(.minutes(10)))
struct AccountRateLimiterTests {
    @Test("an account has one rate in all dispatchers; another account or provider has its own")
    func account() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let buckets = Live(redis, keys: keys).buckets
            let dispatchers = (0..<2).map { _ in AccountRateLimiter(.fcm, buckets: buckets) }
            let survey = Live(redis, keys: keys).survey
            let start = try await survey.time()
            // The bucket of one a second holds one turn.
            #expect(await dispatchers[0].take("one", perSecond: 1, lane: .normal) == nil)
            let held = [
                await dispatchers[0].take("one", perSecond: 1, lane: .normal),
                await dispatchers[1].take("one", perSecond: 1, lane: .normal),
            ]
            // On a slow machine, another turn may have come.
            if try await survey.time() - start < .milliseconds(900) {
                #expect(held.allSatisfy { $0.map { $0 > .zero } == true })
            }
            #expect(await dispatchers[1].take("two", perSecond: 1, lane: .normal) == nil)
            let other = AccountRateLimiter(.apns, buckets: buckets)
            #expect(await other.take("one", perSecond: 1, lane: .normal) == nil)
        }
    }

    @Test("callers share the turns that they wait for and leave the rest to other dispatchers")
    func shared() async throws {
        try await TestRedis.with { redis, prefix in
            let buckets = Live(redis, keys: Keyspace(prefix: prefix)).buckets
            let dispatchers = (0..<2).map { _ in AccountRateLimiter(.fcm, buckets: buckets) }
            // The bucket holds ten turns, of which two are taken at a time.
            let held = await withTaskGroup(of: Duration?.self) { group in
                for _ in 0..<5 {
                    group.addTask { await dispatchers[0].take("one", perSecond: 40, lane: .normal) }
                }
                return await group.reduce(into: [Duration?]()) { $0.append($1) }
            }
            #expect(held == [nil, nil, nil, nil, nil])
            #expect(await dispatchers[1].take("one", perSecond: 40, lane: .normal) == nil)
        }
    }

    @Test("an account keeps its rate while Redis has no room to count it; refused callers are spread at it")
    func full() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            let start = ContinuousClock.now
            let passed = Mutex(Duration.zero)
            let limiter = AccountRateLimiter(
                .fcm, buckets: Live(redis).buckets, instant: { start + passed.withLock { $0 } })
            try await redis.send("CONFIG", "SET", "maxmemory", "1")
            // Redis is asked again every two seconds.
            for number in 0..<1_000 {
                let time = Duration.milliseconds(6 * number)
                passed.withLock { $0 = time }
                let wait = await limiter.take("one", perSecond: 10, lane: .bulk)
                #expect(wait.map { time + $0 } == Duration.milliseconds(2_000 + 100 * number))
            }
            let normal = await limiter.take("one", perSecond: 10, lane: .normal)
            #expect(normal.map { $0 <= .seconds(2) } == true, "no other lane delays it")

            try await redis.send("CONFIG", "SET", "maxmemory", "0")
            passed.withLock { $0 = .seconds(10) }
            for _ in 0..<16 {
                let critical = await limiter.take("one", perSecond: 10, lane: .critical)
                #expect(critical == nil, "it waits for a turn")
            }
            // The thousand did not come, so nothing has to wait behind them.
            var wait: Duration?
            while wait == nil { wait = await limiter.take("one", perSecond: 10, lane: .bulk) }
            #expect(wait.map { $0 < .seconds(2) } == true)
            for _ in 0..<100 { wait = await limiter.take("one", perSecond: 10, lane: .bulk) }
            #expect(wait.map { $0 > .seconds(9) } == true)
            wait = await limiter.take("one", perSecond: 20, lane: .bulk)
            #expect(wait.map { $0 < .seconds(3) } == true, "a new rate does not wait for the turns of the old one")
        }
    }

    /// The turns that others got.
    private final class Turns: Sendable {
        let count = Atomic(0)
    }

    @Test("a critical caller gets the next turn, however often others ask")
    func critical() async throws {
        try await TestRedis.with { redis, prefix in
            let limiter = AccountRateLimiter(
                .fcm, buckets: Live(redis, keys: Keyspace(prefix: prefix)).buckets)
            let turns = Turns()
            await withDiscardingTaskGroup { group in
                for _ in 0..<4 {
                    group.addTask {
                        while !Task.isCancelled {
                            let wait = await limiter.take("one", perSecond: 2, lane: .bulk)
                            if wait == nil { turns.count.add(1, ordering: .relaxed) }
                            await Task.yield()
                        }
                    }
                }
                for _ in 0..<3 {
                    let before = turns.count.load(ordering: .relaxed)
                    let wait = await limiter.take("one", perSecond: 2, lane: .critical)
                    let others = turns.count.load(ordering: .relaxed) - before
                    #expect(wait == nil)
                    #expect(others <= 1, "one may have had its turn before this caller asked")
                }
                group.cancelAll()
            }
        }
    }
}
