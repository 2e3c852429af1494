// Carillon · SentinelTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOPosix
import Support
import Synchronization
import Testing

@testable import Clients

/// Addresses that name Sentinels.
struct SentinelAddressTests {
    @Test("reads hosts, name, login and database")
    func reads() throws {
        let address = try RedisAddress(url: "rediss+sentinel://app:p%40w@a.example,[::1]:7000,b:26380/main/3")
        guard case .sentinels(let servers, let name) = address.endpoint else {
            Issue.record("\(address.endpoint)")
            return
        }
        #expect(servers.map(\.description) == ["a.example:26379", "[::1]:7000", "b:26380"])
        #expect(name == "main" && address.usesTLS && address.database == 3)
        #expect(address.username == "app" && address.password == "p@w")
        #expect(address.description == "rediss+sentinel://a.example:26379,[::1]:7000,b:26380/main/3")
    }

    @Test(
        "names what is missing or wrong, without the password",
        arguments: [
            ("redis+sentinel://u:hunter2@a:1", "name"), ("redis+sentinel://u:hunter2@a:1/", "name"),
            ("redis+sentinel://u:hunter2@a:1,,b/main", "host:port"),
            ("redis+sentinel://u:hunter2@a:port/main", "host:port"),
            ("redis+sentinel://u:hunter2@a/main/x", "database"), ("redis+sentinel://u:hunter2@a/main/0/x", "name"),
            ("http+sentinel://u:hunter2@a/main", "http+sentinel"),
            ("redis+sentinel://u:%hunter2@a/main", "percent-encoded"),
            ("redis+sentinel://u%:hunter2@a/main", "percent-encoded"),
        ])
    func refuses(url: String, word: String) {
        let error = #expect(throws: RedisError.self) { try RedisAddress(url: url) }
        #expect(error?.code == .configuration)
        #expect(error?.message?.contains(word) == true && error?.message?.contains("hunter2") == false)
    }
}

/// Connections to the master of a group that Sentinels watch.
@Suite(.timeLimit(.minutes(10)))
struct SentinelTests {
    @Test("finds the master through any Sentinel, and the next one after it died")
    func failover() async throws {
        let group = try await SentinelGroup.start()
        var configuration = RedisConfiguration(address: try RedisAddress(url: group.url), clientName: "test")
        configuration.commandTimeout = .seconds(2)
        try await group.killSentinel(0)
        let messages = Mutex<[String]>([])
        let subscription = try RedisSubscription(
            configuration, channels: ["news"], on: MultiThreadedEventLoopGroup.singleton.any(), logger: TestLog.logger
        ) { event in
            guard case .message(_, let payload) = event else { return }
            messages.withLock { $0.append(String(decoding: payload, as: UTF8.self)) }
        }
        // The group had three Sentinels, so two still agree.
        try await TestRedis.with(configuration) { redis in
            try await eventually("the replica has a value") {
                // On a machine that stalls, the Sentinels may replace the master already.
                guard (try? await redis.send("SET", "one", "1")) != nil else { return false }
                return (try? await redis.send("WAIT", "1", "1000").integer()) == 1
            }
            try await group.servers[0].kill()
            try await eventually("writes go to the new master") {
                (try? await redis.send("SET", "two", "2")) != nil
            }
            func text(_ key: RedisArgument) async throws -> String? {
                // A read without an error counts, also one that finds nothing.
                try await eventualValue("a read is answered") { () -> String?? in
                    do { return .some(try await redis.text("GET", key)) } catch { return nil }
                }
            }
            #expect(try await text("one") == "1")
            try await eventually("the subscription is on the new master") {
                _ = try? await redis.send("PUBLISH", "news", "hello")
                return messages.withLock { $0.contains("hello") }
            }
            // It returns as a master until the Sentinels make it a replica.
            try await group.servers[0].start()
            #expect(try await text("two") == "2")
        }
        await subscription.close()
    }

    @Test("leaves a server that answers on when the Sentinels name another")
    func moved() async throws {
        let group = try await SentinelGroup.start(failsOver: false)
        let configuration = RedisConfiguration(address: try RedisAddress(url: group.url), clientName: "test")
        let subscriptions = Mutex(0)
        let subscription = try RedisSubscription(
            configuration, channels: ["news"], on: MultiThreadedEventLoopGroup.singleton.any(), logger: TestLog.logger
        ) { event in
            if case .subscribed = event { subscriptions.withLock { $0 += 1 } }
        }
        try await TestRedis.with(configuration) { redis in
            try await redis.send("SET", "one", "1", timeout: longestWait)
            try await eventually("it is subscribed") { subscriptions.withLock { $0 } == 1 }
            try await group.name(1)
            // Reads alone would never learn of it.
            try await eventually("the connection moves") {
                let port = try? await redis.send("CONFIG", "GET", "port").strings().last
                return port == "\(group.servers[1].port)"
            }
            try await eventually("the subscription moves") { subscriptions.withLock { $0 } == 2 }
        }
        await subscription.close()
    }

    @Test("takes the master that most Sentinels name when the first of them names another")
    func majority() async throws {
        // Stands for a Sentinel that is cut off from the others.
        let other = try await SentinelGroup.start(failsOver: false)
        let group = try await SentinelGroup.start(failsOver: false)
        let sentinels = (other.ports.prefix(1) + group.ports.prefix(2)).map { "127.0.0.1:\($0)" }
        let url = "redis+sentinel://\(sentinels.joined(separator: ","))/\(SentinelGroup.name)/0"
        let configuration = RedisConfiguration(address: try RedisAddress(url: url), clientName: "test")
        try await TestRedis.with(configuration) { redis in
            // If a Sentinel answers too late on a busy machine, the connection moves there later.
            try await eventually("the connection is at the master that most name") {
                let port = try? await redis.send("CONFIG", "GET", "port").strings().last
                return port == "\(group.servers[0].port)"
            }
        }
        withExtendedLifetime((other, group)) {}
    }

    @Test("writes go on at the new master when the old one becomes a replica and cuts no connection")
    func demoted() async throws {
        let group = try await SentinelGroup.start(failsOver: false)
        let configuration = RedisConfiguration(address: try RedisAddress(url: group.url), clientName: "test")
        try await TestRedis.with(configuration) { redis in
            try await redis.send("SET", "one", "1", timeout: longestWait)
            try await group.name(1)
            _ = try await TestRedis.withPatience(group.servers[0].url) { old in
                try await old.send("REPLICAOF", "127.0.0.1", .text("\(group.servers[1].port)"))
            }
            try await eventually("a write is taken") { (try? await redis.send("SET", "two", "2")) != nil }
            let port = try await redis.send("CONFIG", "GET", "port", timeout: longestWait).strings().last
            #expect(port == "\(group.servers[1].port)")
        }
    }

    @Test("names the reason when no Sentinel knows the group")
    func unknownGroup() async throws {
        let group = try await SentinelGroup.start(failsOver: false)
        let url = group.url.replacing("/\(SentinelGroup.name)/", with: "/other/")
        var configuration = RedisConfiguration(address: try RedisAddress(url: url), clientName: "test")
        configuration.waitsForServer = false
        try await TestRedis.with(configuration) { redis in
            // On a busy machine, all Sentinels may answer too late.
            try await eventually("a Sentinel has answered") {
                let error = await redis.failure(of: "PING")
                #expect(error?.code == .unavailable)
                return error?.message?.contains("knows no group other") == true
            }
        }
    }
}

/// Servers that cannot run a command now.
@Suite(.timeLimit(.minutes(10)))
struct UnavailableServerTests {
    @Test("a replica refuses writes as unavailable, and the connection follows when it is promoted")
    func replica() async throws {
        let master = try await RedisServer.start()
        let server = try await RedisServer.start()
        var configuration = try server.configuration()
        configuration.commandTimeout = .seconds(2)
        try await TestRedis.with(configuration) { redis in
            try await redis.send("SET", "one", "1", timeout: longestWait)
            let session = redis.session
            try await TestRedis.with(try server.configuration()) { operation in
                try await operation.send("REPLICAOF", "127.0.0.1", .text("\(master.port)"))
                try await eventually("writes are refused") { await redis.failure(of: "SET", "two", "2") != nil }
                // The reconnect finds a replica, so commands wait for a master.
                try await eventually("the connection waits for a master") {
                    await redis.failure(of: "GET", "one")?.message?.contains("the server is a replica") == true
                }
                try await operation.send("REPLICAOF", "NO", "ONE")
                try await eventually("writes are taken again") { (try? await redis.send("SET", "two", "2")) != nil }
            }
            #expect(redis.session > session)
        }
    }

    @Test("a server that loads its data is unavailable, not at fault")
    func loading() async throws {
        let server = try await RedisServer.startSlowLoader()
        try await TestRedis.with(try server.configuration()) { redis in
            var isLoading = false
            // A busy machine may ask only after it has loaded them.
            for _ in 1...10 where !isLoading {
                try await server.fillAndKill()
                async let restarted: Void = server.start()
                try await eventually("it loads, or has loaded") {
                    guard let error = await redis.failure(of: "HGETALL", "presence") else { return true }
                    isLoading = error.message?.hasPrefix("LOADING") == true
                    if isLoading { #expect(error.code == .unavailable) }
                    return isLoading
                }
                try await restarted
            }
            #expect(isLoading)
            let value = try await redis.text("GET", "key-9999")
            #expect(value == "1")
        }
    }
}
