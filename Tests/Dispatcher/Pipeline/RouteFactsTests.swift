// Carillon · RouteFactsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

@testable import Pipeline

/// The facts for decisions about notifications.
@Suite(.timeLimit(.minutes(2)))
struct RouteFactsTests {
    @Test("a user who is online stays so while Redis loads its data, so no push goes out for it")
    func loading() async throws {
        var options = RedisServer.Options()
        // Microseconds a key; it takes commands after every 1,024 keys.
        options.arguments = ["--key-load-delay", "300"]
        let server = try await RedisServer.start(options)
        try await TestDatabase.with { database in
            try await TestRedis.with(try server.configuration()) { redis in
                let dispatcher = try TestDispatcher.make(database.pool, redis, Keyspace(), [])
                let since = Timestamp(milliseconds: 5)
                let connection = ConnectionPresence(
                    connection: "c1", node: "n", dialect: .native, state: .active, since: since)
                try await dispatcher.presence.register([("ada", connection)])
                try await redis.send("SET", .text(dispatcher.keys.nodeLease("n")), "gateway")
                var batch = RedisBatch()
                for number in 0..<10_000 { batch.append("SET", .text("key-\(number)"), "1") }
                try await redis.send(batch)
                try await eventually("it is on disk") {
                    try await redis.send("INFO", "persistence").string()?.contains("aof_pending_bio_fsync:0") == true
                }
                try await server.kill()
                async let restarted: Void = server.start()
                try await eventually("it loads") {
                    do {
                        try await redis.send("GET", "key-1")
                        return false
                    } catch {
                        return "\(error)".contains("LOADING")
                    }
                }
                let presence = try await RouteFacts.presence(of: ["ada"], dispatcher)
                #expect(presence[ExactText("ada")] == .online([connection]))
                try await restarted
            }
        }
    }
}
