// Carillon · SendClaimsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// Claims on a delivery that two stream entries hold.
@Suite(.timeLimit(.minutes(10)))
struct SendClaimsTests {
    private static let work = DeliveryWork(
        notification: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001),
        device: NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0002),
        user: "ada",
        attempt: 0,
        isRepeat: false
    )

    /// Appends the work to a lane and returns the entry's id.
    private static func append(_ redis: RedisConnection, _ keys: Keyspace, _ lane: Lane) async throws -> String {
        try await redis.send(
            "XADD", .text(keys.deliveries(.fcm, lane)), "*", .text(DeliveryWork.field), .text(self.work.text)
        ).string() ?? ""
    }

    @Test("claims one of two entries, also for a dispatcher that takes it over", arguments: Lane.allCases)
    func oneOfTwo(lane: Lane) async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let claims = Live(redis, keys: keys).sendClaims
            let first = try await Self.append(redis, keys, lane)
            let second = try await Self.append(redis, keys, .normal)
            let mine = [(work: Self.work, entry: first)]
            let others = [(work: Self.work.asRepeat, entry: second)]
            #expect(try await claims.take(mine, provider: .fcm, lane: lane) == [true])
            #expect(try await claims.take(others, provider: .fcm, lane: .normal) == [false])
            // Another dispatcher took the entry over from a dead one.
            #expect(try await claims.take(mine, provider: .fcm, lane: lane) == [true])
            #expect(try await claims.take(others, provider: .fcm, lane: .normal) == [false])
        }
    }

    @Test("claims the first of two entries in a batch")
    func oneBatch() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            var entries: [(work: DeliveryWork, entry: String)] = []
            for _ in 0..<2 { entries.append((Self.work, try await Self.append(redis, keys, .bulk))) }
            let claims = Live(redis, keys: keys).sendClaims
            #expect(try await claims.take(entries, provider: .fcm, lane: .bulk) == [true, false])
            #expect(try await claims.take([], provider: .fcm, lane: .bulk) == [])
        }
    }

    @Test("ends a claim when it is released or its entry is settled")
    func ends() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let claims = Live(redis, keys: keys).sendClaims
            let first = try await Self.append(redis, keys, .normal)
            let second = [(work: Self.work, entry: try await Self.append(redis, keys, .normal))]
            #expect(try await claims.take([(Self.work, first)], provider: .fcm, lane: .normal) == [true])
            var batch = RedisBatch()
            // A dispatcher without the claim, such as one whose provider is out of use, ends
            // nothing.
            claims.giveBack([(Self.work, second[0].entry, .normal)], provider: .fcm, in: &batch)
            for reply in try await redis.send(batch) { _ = try reply.checked() }
            #expect(try await claims.take(second, provider: .fcm, lane: .normal) == [false])
            batch = RedisBatch()
            claims.giveBack([(Self.work, first, .normal)], provider: .fcm, in: &batch)
            for reply in try await redis.send(batch) { _ = try reply.checked() }
            #expect(try await claims.take(second, provider: .fcm, lane: .normal) == [true])
            #expect(try await claims.take([(Self.work, first)], provider: .fcm, lane: .normal) == [false])
            try await redis.send("XDEL", .text(keys.deliveries(.fcm, .normal)), .text(second[0].entry))
            #expect(try await claims.take([(Self.work, first)], provider: .fcm, lane: .normal) == [true])
        }
    }

    @Test("keeps claims apart by kind and provider")
    func others() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let claims = Live(redis, keys: keys).sendClaims
            let first = try await Self.append(redis, keys, .normal)
            #expect(try await claims.take([(Self.work, first)], provider: .fcm, lane: .normal) == [true])
            let retraction = DeliveryWork(
                notification: Self.work.notification, device: Self.work.device, user: "ada", attempt: 0,
                isRepeat: false, isRetraction: true)
            #expect(try await claims.take([(retraction, "9-0")], provider: .fcm, lane: .normal) == [true])
            #expect(try await claims.take([(Self.work, "9-0")], provider: .apns, lane: .normal) == [true])
        }
    }
}
