// Carillon · AccountPauseServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Providers
import Storage
import Support
import Testing

@testable import Pipeline

/// Pauses that dispatchers share through a real Redis.
@Suite(.timeLimit(.minutes(10)))
struct AccountPauseServiceTests {
    /// A channel that no test sends through.
    private struct IdleChannel: ProviderChannel {
        let provider = Provider.fcm
        let app: String
        let account: String

        func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
            ProviderReply(.unanswered(reason: "unused", mayHaveBeenSent: false))
        }
    }

    private static let now = TestDispatcher.now

    /// The apps that the dispatcher may not call.
    private static func held(_ service: DeliveriesService, after seconds: Int64 = 0) -> [String] {
        ["default", "news", "sister"].filter { app in
            let moment = Self.now + .seconds(seconds)
            guard service.health.admit(app, isShared: true, now: moment) == .yes else { return true }
            service.health.withdraw(app)
            return false
        }
    }

    @Test("shares a pause with other dispatchers at their next look; without Redis each keeps its own")
    func look() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                func start(_ connection: RedisConnection) throws -> (DeliveriesService, AccountPauseService) {
                    let dispatcher = try TestDispatcher.make(
                        database.pool, connection, keys, [NotificationType(name: "news")],
                        IdleChannel(app: "default", account: "one"), IdleChannel(app: "sister", account: "one"),
                        IdleChannel(app: "news", account: "two"))
                    let deliveries = DeliveriesService(dispatcher: dispatcher, provider: .fcm, calls: 8, readers: [:])
                    return (deliveries, AccountPauseService(dispatcher: dispatcher, deliveries: [deliveries]))
                }
                let (first, firstLooks) = try start(redis)
                let (second, secondLooks) = try start(redis)
                let lost = try TestRedis.connect(try await TestRedis.configuration(clientName: "lost"))
                await lost.close()
                let (third, thirdLooks) = try start(lost)

                let untold = third.pauses.note("two", service: nil, until: Self.now + .seconds(9), now: Self.now)
                third.pauses.takeBack([untold].compactMap(\.self))
                await thirdLooks.look()
                #expect(Self.held(third) == ["news"], "it keeps its own pause")
                #expect(third.pauses.untold(now: Self.now).count == 1, "the pause is still to be announced")

                let pause = first.pauses.note("one", service: nil, until: Self.now + .seconds(7), now: Self.now)
                // The immediate announcement did not happen.
                first.pauses.takeBack([pause].compactMap(\.self))
                await secondLooks.look()
                #expect(Self.held(second).isEmpty)
                await firstLooks.look()
                await secondLooks.look()
                #expect(Self.held(second) == ["default", "sister"])
                #expect(Self.held(second, after: 7).isEmpty)
                await thirdLooks.look()
                #expect(Self.held(third) == ["news"])
                await firstLooks.look()
                #expect(Self.held(first) == ["default", "sister"])

                // An operator lifts the pause.
                try await redis.send("HDEL", .text("\(prefix){fcm}:pauses"), "- one")
                await firstLooks.look()
                await secondLooks.look()
                #expect(Self.held(first).isEmpty)
                #expect(Self.held(second).isEmpty)
                await firstLooks.look()
                #expect(Self.held(first).isEmpty, "the pause stays lifted")
            }
        }
    }
}
