// Carillon · UsageCapsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// Counts of a user's recent interruptions, on a real Redis.
@Suite("Usage caps", .timeLimit(.minutes(10)))
struct UsageCapsTests {
    private static let now = Timestamp(seconds: 1_795_000_000)
    private static let byType = UsageCaps.Cap(name: "type:news", limit: FrequencyCap(count: 2, window: .seconds(60)))
    private static let byUser = UsageCaps.Cap(name: "user", limit: FrequencyCap(count: 3, window: .seconds(3_600)))

    private static func use(_ number: UInt64, user: String = "ada") -> UsageCaps.Use {
        UsageCaps.Use(user: user, notification: NotificationID(high: 1, low: number), caps: [Self.byType, Self.byUser])
    }

    @Test("counts a notification once, none over the cap, and nothing when it only looks")
    func counts() async throws {
        try await TestRedis.with { connection, prefix in
            let usage = Live(connection, keys: Keyspace(prefix: prefix)).usageCaps
            func reached(at moment: Timestamp, user: String = "ada") async throws -> Int? {
                try await usage.reached([Self.byType, Self.byUser], user: user, now: moment)
            }
            for _ in 0..<3 { #expect(try await reached(at: Self.now) == nil) }
            let first = try await usage.use([Self.use(1), Self.use(1), Self.use(2)], now: Self.now)
            #expect(first == [nil, nil, nil])
            #expect(try await reached(at: Self.now) == 0)
            #expect(try await usage.use([Self.use(3), Self.use(1)], now: Self.now) == [0, nil])
            #expect(try await reached(at: Self.now, user: "bob") == nil)
            // A minute later the span of the type is over, to the millisecond; the user's is not.
            #expect(try await reached(at: Self.now + .milliseconds(59_999)) == 0)
            let later = Self.now + .seconds(60)
            #expect(try await reached(at: later) == nil)
            #expect(try await usage.use([Self.use(4)], now: later) == [nil])
            #expect(try await reached(at: later) == 1)
            #expect(try await usage.use([Self.use(5)], now: later) == [1])
        }
    }

    @Test("counts a notification again as of now, once, and not when a cap holds it back")
    func anew() async throws {
        try await TestRedis.with { connection, prefix in
            let usage = Live(connection, keys: Keyspace(prefix: prefix)).usageCaps
            let first = try await usage.use([Self.use(1), Self.use(2)], now: Self.now)
            #expect(first == [nil, nil])
            // The repeated count reaches the cap.
            let later = Self.now + .seconds(30)
            #expect(try await usage.use([Self.use(2), Self.use(2)], now: later, isAnew: true) == [nil, nil])
            // A minute after the first count the other count has left the span and this one has
            // not.
            let end = Self.now + .seconds(60)
            #expect(try await usage.use([Self.use(3)], now: end) == [nil])
            #expect(try await usage.use([Self.use(1), Self.use(3)], now: end, isAnew: true) == [0, nil])
            // The user's cap of three has room for one more when the type's has.
            let last = later + .seconds(60)
            #expect(try await usage.use([Self.use(4), Self.use(5)], now: last) == [nil, 0])
            #expect(try await usage.use([Self.use(6)], now: end + .seconds(60)) == [1])
        }
    }
}
