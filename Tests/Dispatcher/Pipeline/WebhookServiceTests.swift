// Carillon · WebhookServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Pipeline
@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct WebhookServiceTests {
    /// Returns how many commands of a name a server has had.
    private static func count(of command: String, _ redis: RedisClient) async throws -> Int {
        let text = try await redis.send("INFO", "commandstats").string() ?? ""
        guard let start = text.firstRange(of: "cmdstat_\(command):calls=") else { return 0 }
        return Int(text[start.upperBound...].prefix { $0.isNumber }) ?? 0
    }

    @Test("looks for due webhooks again soon after Redis failed")
    func failure() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestDatabase.with { database in
                let keys = Keyspace()
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, [NotificationType(name: "news")])
                let transfer = try TransferClient(configuration: TransferConfiguration(), logger: TestLog.logger)
                let service = WebhookService(dispatcher: dispatcher, transfer: transfer)
                // Each look fails, because this is no sorted set.
                try await redis.send("SET", .text(keys.webhooksDue), "x")
                let running = Task { try await service.run() }
                // Nine waits of the longest interval would take 45 s.
                try await eventually("it has looked ten times", within: .seconds(30)) {
                    try await Self.count(of: "zrange", redis) >= 10
                }
                running.cancel()
                try await running.value
            }
        }
    }

    @Test("a request that got no turn in our own queue is no failure of its receiver, and is made soon")
    func noTurn() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(prefix: prefix), [NotificationType(name: "news")])
                var configuration = TransferConfiguration()
                // Every request finds the queue full.
                configuration.maximumInFlight = 0
                configuration.maximumWaiting = 0
                let transfer = try TransferClient(configuration: configuration, logger: TestLog.logger)
                let store = dispatcher.database.webhooks
                let queues = dispatcher.live.webhookQueues
                let id = NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001)
                _ = try await store.register(
                    Webhook(
                        id: id, org: nil, url: "https://a.example", kinds: nil, secret: "s",
                        createdAt: TestDispatcher.now))
                _ = try await queues.append([(id, [Array("{}".utf8)])], now: TestDispatcher.now)
                let sender = WebhookSender(dispatcher: dispatcher, transfer: transfer)
                await sender.send(id, within: dispatcher.fence(for: WebhookSender.hold))
                let webhook = try #require(try await store.find(id))
                #expect(webhook.status == .active && webhook.failingSince == nil)
                #expect(try await queues.nextDue() == TestDispatcher.now + .seconds(1))
                await transfer.shutdown()
            }
        }
    }
}
