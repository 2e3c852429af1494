// Carillon · ProviderRosterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// The announced providers, on a real Redis.
@Suite(.timeLimit(.minutes(10)))
struct ProviderRosterTests {
    private static let drum = Provider(word: "drum")
    private static let pigeon = Provider(word: "pigeon")

    @Test("lists well-known providers, then announced ones, once")
    func announced() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let roster = Live(redis, keys: keys).providerRoster
            #expect(try await roster.all() == Provider.wellKnown)
            for _ in 0..<2 { try await roster.announce([.webhook, Self.pigeon, .fcm]) }
            #expect(try await roster.all() == Provider.wellKnown + [Self.pigeon])
            // Read by a dispatcher without the `pigeon` provider.
            let other = Live(redis, keys: keys).providerRoster
            try await other.announce([Self.drum])
            try await other.announce([])
            #expect(try await roster.all() == Provider.wellKnown + [Self.drum, Self.pigeon])
        }
    }

    @Test("skips invalid provider names")
    func strangers() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let roster = Live(redis, keys: keys).providerRoster
            try await redis.send(
                "SADD", .text(keys.knownProviders), "", "Pigeon", "two words", "a}b", .bytes([0xC3, 0x28]), "pigeon")
            #expect(try await roster.all() == Provider.wellKnown + [Self.pigeon])
        }
    }

    @Test("takes the first names when there are more than the limit")
    func bound() async throws {
        try await TestRedis.with { redis, prefix in
            let roster = Live(redis, keys: Keyspace(prefix: prefix)).providerRoster
            let many = (0..<100).compactMap { Provider(rawValue: "p\($0 + 100)") }
            try await roster.announce(many.reversed())
            let taken = Array(many.prefix(ProviderRoster.bound - Provider.wellKnown.count))
            #expect(try await roster.all() == Provider.wellKnown + taken)
        }
    }

    @Test("surveys the deliveries of an announced provider and erases them with their user")
    func work() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            try await Live(redis, keys: keys).providerRoster.announce([Self.pigeon])
            let id = NotificationID(high: 1, low: 2)
            let work = DeliveryWork(notification: id, device: id, user: "ada", attempt: 1, isRepeat: false)
            var batch = RedisBatch()
            Live(redis, keys: keys).retries
                .add(work, due: Timestamp(seconds: 1_795_000_000), provider: Self.pigeon, lane: .bulk, in: &batch)
            for reply in try await redis.send(batch) { _ = try reply.checked() }
            let survey = Live(redis, keys: keys).survey
            let streams = try await survey.streams()
            #expect(try await survey.providers() == Provider.wellKnown + [Self.pigeon])
            #expect(streams.count == Lane.allCases.count * (Provider.wellKnown.count + 2))
            #expect(streams.first { $0.provider == Self.pigeon && $0.lane == .bulk }?.retries == 1)
            #expect(try await survey.streams(of: []).allSatisfy { $0.provider == nil })
            #expect(try await Live(redis, keys: keys).userTraces.eraseRetries(user: "ada") == 1)
        }
    }
}
