// Carillon · RouteFactsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

@testable import Pipeline

/// The facts for decisions about notifications.
@Suite(.timeLimit(.minutes(10)))
struct RouteFactsTests {
    @Test("a user who is online stays so while Redis loads its data, so no push goes out for it")
    func loading() async throws {
        let server = try await RedisServer.startSlowLoader()
        try await TestDatabase.with { database in
            try await TestRedis.with(try server.configuration()) { redis in
                let dispatcher = try TestDispatcher.make(database.pool, redis, Keyspace(), [])
                let since = Timestamp(milliseconds: 5)
                let connection = ConnectionPresence(
                    connection: "c1", node: "n", dialect: .native, state: .active, since: since)
                _ = try await dispatcher.presence.register([("ada", connection)])
                try await redis.send("SET", .text(dispatcher.keys.nodeLease("n")), "gateway")
                try await server.fillAndKill()
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
