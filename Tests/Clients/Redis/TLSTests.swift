// Carillon · TLSTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOPosix
import Support
import Synchronization
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct TLSTests {
    private static func server() async throws -> RedisServer {
        var options = RedisServer.Options()
        options.certificate = try await TestCertificate.make()
        return try await RedisServer.start(options)
    }

    @Test("a certificate of a known authority is accepted", arguments: ["localhost", "127.0.0.1"])
    func known(_ host: String) async throws {
        let server = try await Self.server()
        var configuration = try server.configuration()
        configuration.address = try RedisAddress(url: "rediss://\(host):\(server.port)/0")
        configuration.commandTimeout = .seconds(20)
        try await TestRedis.with(configuration) { redis in
            #expect(try await redis.text("PING") == "PONG")
            let value = String(repeating: "x", count: 300_000)
            try await redis.send("SET", "big", .text(value))
            #expect(try await redis.text("GET", "big") == value)
        }
    }

    @Test("a certificate of an unknown authority is refused")
    func unknown() async throws {
        let server = try await Self.server()
        let stranger = try await TestCertificate.make()
        var configuration = try server.configuration()
        configuration.certificateAuthorityFile = stranger.authorityFile
        try await Self.expectRefusal(configuration, "TLS handshake failed: certificate verify failed")
        // The system's authorities do not know it either.
        configuration.certificateAuthorityFile = nil
        try await Self.expectRefusal(configuration, "TLS handshake failed: certificate verify failed")
        withExtendedLifetime(stranger) {}
    }

    @Test("a certificate for another name is refused")
    func otherName() async throws {
        let server = try await Self.server()
        var configuration = try server.configuration()
        configuration.address = try RedisAddress(url: "rediss://127.0.0.2:\(server.port)/0")
        // The server listens there too; only the name in the certificate is wrong.
        try await TestRedis.with(try server.configuration()) { redis in
            _ = try await redis.send("CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2")
        }
        try await Self.expectRefusal(configuration, "the certificate is for another host")
    }

    @Test("an abandoned connection does not disturb the next")
    func abandoned() async throws {
        let server = try await Self.server()
        var configuration = try server.configuration()
        configuration.commandTimeout = .milliseconds(300)
        try await TestRedis.with(configuration) { redis in
            try await redis.send("PING", timeout: .seconds(20))
            try await server.stall()
            #expect(await redis.failure(of: "ECHO", "given up")?.code == .timeout)
            server.resume()
            // The old connection closes slowly and must not disturb anything until then.
            let identifier = try await redis.text("CLIENT", "ID", timeout: .seconds(20))
            try await TestRedis.with(try server.configuration(clientName: "watcher")) { watcher in
                try await eventually("the old connection is gone") {
                    #expect(try await redis.text("ECHO", "new", timeout: .seconds(20)) == "new")
                    let clients = try await watcher.text("CLIENT", "LIST") ?? ""
                    return clients.split(separator: "\n").count { $0.contains(" name=test ") } == 1
                }
            }
            #expect(try await redis.text("CLIENT", "ID", timeout: .seconds(20)) == identifier)
        }
    }

    @Test("a subscription that was given up is lost at once, and its connection does not disturb the next")
    func abandonedSubscription() async throws {
        let server = try await Self.server()
        var configuration = try server.configuration()
        // No probe of its own gives the server up.
        configuration.commandTimeout = .seconds(600)
        let heard = Mutex<[String]>([])
        let subscription = try RedisSubscription(
            configuration, channels: ["news"], on: MultiThreadedEventLoopGroup.singleton.next(),
            logger: TestLog.logger
        ) { event in
            heard.withLock { $0.append("\(event)") }
        }
        let expected = ["subscribed(isFirst: true)", #"lost("given up")"#, "subscribed(isFirst: false)"]
        try await eventually("it is subscribed") { heard.withLock { $0.count } == 1 }
        try await server.stall()
        // The silent server does not close its side.
        await subscription.restart("given up")
        #expect(heard.withLock { $0 } == Array(expected.prefix(2)))
        server.resume()
        try await eventually("it is subscribed again") { heard.withLock { $0.count } == 3 }
        try await TestRedis.with(try server.configuration(clientName: "watcher")) { watcher in
            try await eventually("the old connection is gone") {
                let clients = try await watcher.text("CLIENT", "LIST", timeout: .seconds(20)) ?? ""
                return clients.split(separator: "\n").count { $0.contains(" name=test ") } == 1
            }
        }
        #expect(heard.withLock { $0 } == expected)
        #expect(await subscription.isComplete)
        await subscription.close()
    }

    @Test("connections with copies of one configuration share the certificate authorities")
    func shared() async throws {
        let certificate = try await TestCertificate.make()
        var configuration = RedisConfiguration(
            address: try RedisAddress(url: "rediss://localhost:1/0"), clientName: "test")
        let system = try #require(try RedisConnector(configuration).tls)
        configuration.certificateAuthorityFile = certificate.authorityFile
        let own = try #require(try RedisConnector(configuration).tls)
        let copy = configuration
        #expect(own !== system)
        #expect(try RedisConnector(copy).tls === own)
        withExtendedLifetime(certificate) {}
    }

    @Test("a missing file of authorities is a configuration fault")
    func missingFile() async throws {
        var configuration = RedisConfiguration(
            address: try RedisAddress(url: "rediss://localhost:1/0"), clientName: "test")
        configuration.certificateAuthorityFile = "/nonexistent/ca.pem"
        do throws(RedisError) {
            _ = try TestRedis.connect(configuration)
            Issue.record("a missing file of authorities was accepted")
        } catch {
            #expect(error.code == .configuration)
        }
    }

    private static func expectRefusal(_ configuration: RedisConfiguration, _ reason: String) async throws {
        var configuration = configuration
        configuration.commandTimeout = .seconds(1)
        try await TestRedis.with(configuration) { redis in
            try await eventually("the refusal is reported") {
                let error = await redis.failure(of: "PING")
                #expect(error?.code == .unavailable)
                // BoringSSL's texts name files and lines, and Swift's contain arrays.
                #expect(error?.message?.contains(#/\.cc|\[|Error/#) != true, "\(error?.message ?? "nil")")
                // The first call may time out before the handshake has failed.
                return error?.message?.contains(reason) == true
            }
        }
    }
}
