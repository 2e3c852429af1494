// Carillon · SendingPausesTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// Pauses of accounts that dispatchers share on a real Redis.
@Suite(.timeLimit(.minutes(10)))
struct SendingPausesTests {
    private static let now = Timestamp(seconds: 1_795_000_000)

    private static func pause(
        _ account: String, _ seconds: Int64, provider: Provider = .fcm, service: String? = nil
    ) -> SendingPauses.Pause {
        SendingPauses.Pause(
            provider: provider, account: account, service: service, until: Self.now + .seconds(seconds))
    }

    @Test("shares the latest pause of each account within a provider")
    func latest() async throws {
        try await TestRedis.with { first, prefix in
            try await TestRedis.with(try await TestRedis.configuration(clientName: "second")) { second in
                let keys = Keyspace(prefix: prefix)
                let mine = Live(first, keys: keys).sendingPauses
                let theirs = Live(second, keys: keys).sendingPauses
                func hear(_ after: Int64 = 0) async throws -> [SendingPauses.Pause] {
                    try await theirs.exchange([], of: [.fcm, .webpush], now: Self.now + .seconds(after))
                        .sorted { $0.account < $1.account }
                }
                let nothing = try await hear()
                #expect(nothing.isEmpty)
                let told = [
                    Self.pause("one", 60), Self.pause("one", 30), Self.pause("two", 20),
                    Self.pause("my app", 10, provider: .webpush, service: "https://push.example"),
                    Self.pause("one", 600, provider: .apns),
                ]
                #expect(try await mine.exchange(told, of: [], now: Self.now).isEmpty)
                #expect(
                    try await hear() == [
                        Self.pause("my app", 10, provider: .webpush, service: "https://push.example"),
                        Self.pause("one", 60), Self.pause("two", 20),
                    ])
                // An earlier end shortens nothing, a later one wins, and the sender reads it in the
                // same round trip.
                #expect(
                    try await theirs.exchange(
                        [Self.pause("one", 40), Self.pause("two", 40)], of: [.fcm], now: Self.now
                    ).sorted { $0.account < $1.account } == [Self.pause("one", 60), Self.pause("two", 40)])
                #expect(try await hear(40) == [Self.pause("one", 60)], "an ended pause is not shared")
                #expect(try await hear(60).isEmpty)
            }
        }
    }

    @Test("drops ended pauses with the next announcement and the key with the last")
    func end() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let pauses = Live(redis, keys: keys).sendingPauses
            let key = RedisArgument.text(keys.pauses(.fcm))
            _ = try await pauses.exchange([Self.pause("one", 60), Self.pause("two", 20)], of: [], now: Self.now)
            var left = try await redis.send("PTTL", key).integer()
            #expect((1...60_000).contains(left) && left > 20_000)
            _ = try await pauses.exchange([Self.pause("three", 30)], of: [], now: Self.now + .seconds(25))
            #expect(try await redis.send("HKEYS", key).strings().sorted() == ["- one", "- three"])
            left = try await redis.send("PTTL", key).integer()
            #expect((1...35_000).contains(left))
            _ = try await pauses.exchange([Self.pause("one", 10)], of: [], now: Self.now + .seconds(61))
            #expect(try await redis.send("EXISTS", key).integer() == 0)
        }
    }
}
