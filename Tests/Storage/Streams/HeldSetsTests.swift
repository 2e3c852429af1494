// Carillon · HeldSetsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// Deliveries that are held back for their app, on a real Redis.
@Suite(.timeLimit(.minutes(10)))
struct HeldSetsTests {
    private static let now = Timestamp(seconds: 1_795_000_000)

    private static func work(_ number: UInt64, user: String = "ada", since: Timestamp? = nil) -> DeliveryWork {
        let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0000 + number)
        return DeliveryWork(notification: id, device: id, user: user, attempt: 0, isRepeat: false, since: since)
    }

    private static func add(
        _ works: [DeliveryWork], of app: String, due: Timestamp = HeldSetsTests.now, _ redis: RedisClient,
        _ keys: Keyspace
    ) async throws {
        let sets = Live(redis, keys: keys).retries
        var batch = RedisBatch()
        for work in works {
            sets.add(work, due: due, provider: .fcm, lane: .bulk, scope: BreakerScope(app), in: &batch)
        }
        try await redis.run(batch)
    }

    @Test("releases the due deliveries of an app and forgets an app without any")
    func moves() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let sets = Live(redis, keys: keys).retries
            try await Self.add((0..<5).map { Self.work($0) }, of: "one", redis, keys)
            // Adding it twice keeps one.
            for _ in 0..<2 { try await Self.add([Self.work(9)], of: "two", due: Self.now + .seconds(1), redis, keys) }
            #expect(try await Set(sets.heldScopes(provider: .fcm, lane: .bulk).map(\.app)) == ["one", "two"])
            #expect(try await sets.heldScopes(provider: .fcm, lane: .normal).isEmpty)
            func move(_ app: String, after milliseconds: Int64, limit: Int = 10) async throws -> Int {
                try await sets.moveDue(
                    provider: .fcm, lane: .bulk, scope: BreakerScope(app), now: Self.now + .milliseconds(milliseconds),
                    limit: limit)
            }
            #expect(try await move("two", after: 999) == 0)
            #expect(try await move("two", after: 1_000) == 1)
            #expect(try await sets.heldScopes(provider: .fcm, lane: .bulk) == [BreakerScope("one")])
            #expect(try await move("one", after: 0, limit: 3) == 3)
            #expect(try await sets.heldScopes(provider: .fcm, lane: .bulk) == [BreakerScope("one")])
            #expect(try await move("one", after: 0) == 2)
            #expect(try await sets.heldScopes(provider: .fcm, lane: .bulk).isEmpty)
            let stream = RedisArgument.text(keys.deliveries(.fcm, .bulk))
            #expect(try await redis.send("XLEN", stream).integer() == 6)
        }
    }

    @Test("moves each delivery once with several dispatchers, while more are added")
    func rivals() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let sets = Live(redis, keys: keys).retries
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    for number in 0..<300 { try await Self.add([Self.work(UInt64(number))], of: "one", redis, keys) }
                }
                for _ in 0..<3 {
                    group.addTask {
                        let rival = try await TestRedis.connect()
                        let theirs = Live(rival, keys: keys).retries
                        for _ in 0..<300 {
                            _ = try await theirs.moveDue(
                                provider: .fcm, lane: .bulk, scope: BreakerScope("one"), now: Self.now, limit: 2)
                        }
                        await rival.close()
                    }
                }
                try await group.waitForAll()
            }
            // An app with deliveries left stays listed, so that they are moved.
            while let scope = try await sets.heldScopes(provider: .fcm, lane: .bulk).first {
                _ = try await sets.moveDue(provider: .fcm, lane: .bulk, scope: scope, now: Self.now, limit: 10)
            }
            let stream = RedisArgument.text(keys.deliveries(.fcm, .bulk))
            #expect(try await redis.send("XLEN", stream).integer() == 300)
        }
    }

    @Test("counts held deliveries of all apps with the retries")
    func survey() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let survey = Live(redis, keys: keys).survey
            var batch = RedisBatch()
            Live(redis, keys: keys).retries
                .add(Self.work(1), due: Self.now, provider: .fcm, lane: .bulk, in: &batch)
            try await redis.run(batch)
            try await Self.add([Self.work(2), Self.work(3)], of: "one", due: Self.now + .seconds(-9), redis, keys)
            try await Self.add([Self.work(4)], of: "two", due: Self.now + .seconds(60), redis, keys)
            func bulk(_ provider: Provider) async throws -> StreamSurvey.Stream? {
                try await survey.streams(of: [provider]).first { $0.provider == provider && $0.lane == .bulk }
            }
            #expect(try await bulk(.fcm)?.retries == 4)
            let live = Live(redis, keys: keys)
            #expect(try await live.waitingDeliveries(of: [.fcm, .apns], lane: .bulk) == 4)
            #expect(try await live.waitingDeliveries(of: [.fcm, .apns], lane: .normal) == 0)
            #expect(try await live.waitingDeliveries(of: [.apns], lane: .bulk) == 0)
            #expect(try await bulk(.fcm)?.nextRetry == Self.now + .seconds(-9))
            #expect(try await bulk(.fcm)?.waitingSince == Self.now + .seconds(-9))
            #expect(try await bulk(.apns)?.retries == 0)
            #expect(try await bulk(.apns)?.waitingSince == nil)
            // Due later, and waiting for long.
            let since = Self.now + .seconds(-70)
            try await Self.add([Self.work(5, since: since)], of: "two", due: Self.now + .seconds(90), redis, keys)
            #expect(try await bulk(.fcm)?.waitingSince == since)
        }
    }

    @Test("erases one user's deliveries from every app")
    func erasure() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            for (number, app) in ["one", "two"].enumerated() {
                let ids = [UInt64(number * 2), UInt64(number * 2 + 1)]
                try await Self.add(
                    [Self.work(ids[0], user: "ada"), Self.work(ids[1], user: "eve")], of: app, redis, keys)
            }
            let traces = Live(redis, keys: keys).userTraces
            #expect(try await traces.eraseRetries(user: "ada") == 2)
            #expect(try await traces.eraseRetries(user: "ada") == 0)
            let sets = Live(redis, keys: keys).retries
            for app in ["one", "two"] {
                #expect(try await sets.count(provider: .fcm, lane: .bulk, scope: BreakerScope(app)) == 1)
            }
        }
    }
}
