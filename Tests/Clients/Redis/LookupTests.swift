// Carillon · LookupTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOPosix
import Support
import Testing

@testable import Clients

/// How connections to Redis look up the name of its host.
@Suite("Lookups of Redis", .timeLimit(.minutes(10)))
struct LookupTests {
    private static let host = "redis.example"

    private static func configuration(_ port: Int, _ names: TestNames) throws -> RedisConfiguration {
        let address = try RedisAddress(url: "redis://\(Self.host):\(port)/0")
        var configuration = RedisConfiguration(address: address, clientName: "lookup")
        configuration.commandTimeout = fixturePatience
        configuration.names = names.resolver(freshness: .seconds(1), failurePause: .seconds(1))
        return configuration
    }

    /// Runs `body` with ten connections on one event loop.
    private static func withTen(
        _ configuration: RedisConfiguration,
        _ body: ([RedisClient]) async throws -> Void
    ) async throws {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        var clients: [RedisClient] = []
        for _ in 0..<10 {
            clients.append(try RedisClient(configuration, on: eventLoop, logger: TestLog.logger))
        }
        let all = clients
        try await withCleanUp {
            for client in all { await client.close() }
        } _: {
            try await body(all)
        }
    }

    @Test("ten connections on one event loop share a lookup that outlasts their attempts, and all get ready")
    func slow() async throws {
        let server = try await RedisServer.start()
        // Nothing listens on the first address.
        let names = try TestNames([Self.host: ["::1", "127.0.0.1"]], held: [Self.host])
        defer { names.release(Self.host) }
        var configuration = try Self.configuration(server.port, names)
        configuration.connectTimeout = .milliseconds(400)
        try await Self.withTen(configuration) { clients in
            try await eventually("two attempts of each have failed") { clients.allSatisfy(\.isAway) }
            #expect(names.lookups == [Self.host])
            names.release(Self.host)
            for client in clients {
                let reply = try await client.text("PING")
                #expect(reply == "PONG")
            }
            #expect(names.lookups == [Self.host])
        }
    }

    @Test("connections that were lost use the last addresses while the next lookup hangs")
    func hanging() async throws {
        let server = try await RedisServer.start()
        let names = try TestNames([Self.host: ["127.0.0.1"]])
        defer { names.release(Self.host) }
        var configuration = try Self.configuration(server.port, names)
        configuration.connectTimeout = .seconds(2)
        try await Self.withTen(configuration) { clients in
            for client in clients { try await client.send("PING") }
            names.hold(Self.host)
            names.advance(by: .seconds(1))
            try await TestRedis.with(try server.configuration(clientName: "killer")) { killer in
                _ = try await killer.send("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            }
            try await eventually("all are back") {
                for client in clients {
                    guard (try? await client.send("PING")) != nil, client.session > 1 else { return false }
                }
                return true
            }
            #expect(names.lookups.count == 2)
        }
    }

    @Test("a name without addresses is reported; an address is not looked up")
    func unknown() async throws {
        let server = try await RedisServer.start()
        let names = try TestNames()
        var configuration = try Self.configuration(server.port, names)
        configuration.waitsForServer = false
        try await TestRedis.with(configuration) { redis in
            let message = await redis.failure(of: "PING")?.message
            #expect(message == "no connection: \(Self.host) is not a known host")
        }
        #expect(Set(names.lookups) == [Self.host])
        var direct = try server.configuration()
        let none = try TestNames()
        direct.names = none.resolver()
        try await TestRedis.with(direct) { redis in
            let reply = try await redis.text("PING")
            #expect(reply == "PONG")
        }
        #expect(none.lookups.isEmpty)
    }
}
