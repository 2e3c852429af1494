// Carillon · SubscriptionTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOPosix
import Support
import Synchronization
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct SubscriptionTests {
    /// Records a subscriber's events as text.
    private final class Heard: Sendable {
        private let words = Mutex<[String]>([])

        var all: [String] { self.words.withLock { $0 } }

        func note(_ event: RedisSubscription.Event) {
            let word =
                switch event {
                case .subscribed(let isFirst): isFirst ? "first" : "again"
                case .resumed: "resumed"
                case .lost(let reason): "lost: \(reason)"
                case .message(let channel, let payload): "\(channel)=\(String(decoding: payload, as: UTF8.self))"
                }
            self.words.withLock { $0.append(word) }
        }
    }

    private static func subscribe(
        _ configuration: RedisConfiguration, to channels: [String], _ heard: Heard
    ) async throws -> RedisSubscription {
        let subscription = try RedisSubscription(
            configuration, channels: channels, on: MultiThreadedEventLoopGroup.singleton.next(),
            logger: TestLog.logger
        ) { heard.note($0) }
        try await eventually("the channels are subscribed") { heard.all == ["first"] }
        return subscription
    }

    @Test("messages of the channels arrive in order")
    func order() async throws {
        try await TestRedis.with { redis, prefix in
            let heard = Heard()
            let subscription = try await Self.subscribe(
                try await TestRedis.configuration(), to: [prefix + "a", prefix + "b"], heard)
            var batch = RedisBatch()
            for number in 0..<100 {
                batch.append("PUBLISH", .text(prefix + (number.isMultiple(of: 2) ? "a" : "b")), .text("\(number)"))
            }
            batch.append("PUBLISH", .text(prefix + "c"), "not ours")
            let receivers = try await redis.send(batch).map { try $0.integer() }
            #expect(receivers == Array(repeating: 1, count: 100) + [0])
            try await eventually("all messages arrive") { heard.all.count == 101 }
            let expected = (0..<100).map { "\(prefix)\($0.isMultiple(of: 2) ? "a" : "b")=\($0)" }
            #expect(Array(heard.all.dropFirst()) == expected)
            await subscription.close()
        }
    }

    @Test("a loss is reported and the channels are subscribed again")
    func loss() async throws {
        let server = try await RedisServer.start()
        let heard = Heard()
        let subscription = try await Self.subscribe(try server.configuration(), to: ["news", "more"], heard)
        try await server.kill()
        try await eventually("the loss is reported") {
            heard.all.count == 2 && heard.all.last?.hasPrefix("lost: ") == true
        }
        #expect(await subscription.isComplete == false)
        try await server.start()
        try await eventually("the channels are back") { heard.all.count == 3 && heard.all.last == "again" }
        #expect(await subscription.isComplete)
        try await TestRedis.with(try server.configuration()) { redis in
            let receivers = try await redis.number("PUBLISH", "more", "hello")
            #expect(receivers == 1)
        }
        try await eventually("a message arrives") { heard.all.last == "more=hello" }
        await subscription.close()
    }

    @Test("a stalled server is detected and the channels are subscribed again")
    func stalled() async throws {
        let server = try await RedisServer.start()
        let heard = Heard()
        var configuration = try server.configuration()
        configuration.commandTimeout = .seconds(1)
        let subscription = try await Self.subscribe(configuration, to: ["news"], heard)
        try await server.stall()
        try await eventually("the silence is reported") {
            heard.all == ["first", "lost: no answer to a probe in time"]
        }
        server.resume()
        try await eventually("the channel is back") { heard.all.last == "again" }
        await subscription.close()
    }
}
