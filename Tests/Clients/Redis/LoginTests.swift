// Carillon · LoginTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOPosix
import Support
import Synchronization
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct LoginTests {
    /// Creates an ACL user with this password on the test's own server.
    private static func serverWithUser(_ name: String, password: String) async throws -> RedisServer {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            _ = try await redis.send("ACL", "SETUSER", .text(name), "on", .text(">" + password), "~*", "+@all")
            _ = try await redis.send("ACL", "SETUSER", "default", "off")
        }
        return server
    }

    private static func configuration(_ server: RedisServer, credentials: String) throws -> RedisConfiguration {
        let url = "redis://\(credentials)127.0.0.1:\(server.port)/0"
        var configuration = RedisConfiguration(address: try RedisAddress(url: url), clientName: "login")
        configuration.commandTimeout = .seconds(20)
        return configuration
    }

    @Test("an ACL user logs in")
    func aclUser() async throws {
        let server = try await Self.serverWithUser("carillon", password: "p@ss:word")
        let configuration = try Self.configuration(server, credentials: "carillon:p%40ss%3Aword@")
        try await TestRedis.with(configuration) { redis in
            let user = try await redis.text("ACL", "WHOAMI")
            #expect(user == "carillon")
            let name = try await redis.text("CLIENT", "GETNAME")
            #expect(name == "login")
        }
    }

    @Test(
        "wrong credentials are refused with the reason and without the password",
        arguments: ["carillon:wrong-secret@", "nobody:p%40ss@", ""])
    func wrongCredentials(_ credentials: String) async throws {
        let server = try await Self.serverWithUser("carillon", password: "right")
        var configuration = try Self.configuration(server, credentials: credentials)
        configuration.commandTimeout = .milliseconds(500)
        try await TestRedis.with(configuration) { redis in
            let reason = credentials.isEmpty ? "NOAUTH" : "WRONGPASS"
            try await eventually("the reason is reported") {
                let error = await redis.failure(of: "PING")
                #expect(error?.code == .unavailable)
                #expect(error?.description.contains("wrong-secret") == false)
                // The first call may time out before the server has refused the login.
                return error?.message?.contains(reason) == true
            }
        }
    }

    @Test("a server that refuses a connection before the login is over is quoted")
    func refusedConnection() async throws {
        var options = RedisServer.Options()
        options.arguments = ["--maxclients", "1"]
        let server = try await RedisServer.start(options)
        try await TestRedis.with(try server.configuration()) { only in
            let reply = try await only.text("PING")
            #expect(reply == "PONG")
            var configuration = try Self.configuration(server, credentials: "")
            configuration.commandTimeout = .milliseconds(500)
            let refused = configuration
            try await TestRedis.with(refused) { redis in
                try await eventually("the reason is reported") {
                    // The first call may time out before the server has refused the connection.
                    await redis.failure(of: "PING")?.message?.contains("max number of clients") == true
                }
            }
            let losses = Mutex<[String]>([])
            let subscription = try SubscriptionConnection(
                refused, channels: SubscriptionConnection.Channels(general: ["news"]),
                on: MultiThreadedEventLoopGroup.singleton.next(), logger: TestLog.logger
            ) { event in
                if case .lost(let reason) = event { losses.withLock { $0.append(reason) } }
            }
            try await eventually("the subscription has the reason") {
                losses.withLock { $0.contains { $0.contains("max number of clients") } }
            }
            await subscription.close()
        }
    }

    @Test("every connection selects the URL's database")
    func database() async throws {
        let server = try await RedisServer.start()
        let address = try RedisAddress(url: "redis://127.0.0.1:\(server.port)/7")
        var configuration = RedisConfiguration(address: address, clientName: "database")
        configuration.commandTimeout = .seconds(20)
        try await TestRedis.with(configuration) { redis in
            try await redis.send("SET", "here", "7")
            try await TestRedis.with(try server.configuration()) { other in
                #expect(try await other.text("GET", "here") == nil)
                _ = try await other.send("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            }
            try await eventually("the connection is back in its database") {
                // The first call may fail on the broken connection.
                (try? await redis.send("GET", "here").string()) == "7"
            }
        }
    }

    @Test("a Unix socket is reachable by its path")
    func socketPath() async throws {
        let directory = try TemporaryDirectory("socket")
        var options = RedisServer.Options()
        options.arguments = ["--unixsocket", directory.file("redis.sock")]
        let server = try await RedisServer.start(options)
        let address = try RedisAddress(url: "unix://\(directory.file("redis.sock"))?db=3")
        try await TestRedis.with(RedisConfiguration(address: address, clientName: "socket")) { redis in
            let reply = try await redis.text("PING")
            #expect(reply == "PONG")
            let client = try await redis.text("CLIENT", "INFO")
            #expect(client?.contains(" db=3 ") == true)
        }
        withExtendedLifetime(server) {}
    }
}
