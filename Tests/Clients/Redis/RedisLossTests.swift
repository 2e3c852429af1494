// Carillon · RedisLossTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOPosix
import Support
import Synchronization
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct RedisLossTests {
    @Test("the connection recovers after a kill and a restart")
    func restart() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            // After this answer all everysec writes are on disk.
            try await redis.send("CONFIG", "SET", "appendfsync", "always")
            try await redis.send("SET", "kept", "yes")
            try await server.kill()
            try await eventually("the loss is noticed") {
                (try? await redis.send("PING", timeout: .milliseconds(50))) == nil
            }
            // Sent without a server, answered by the next one.
            async let waiting = redis.send("GET", "kept")
            try await server.start()
            #expect(try await waiting.string() == "yes")
        }
    }

    @Test("an in-flight command fails with connectionLost when the server dies")
    func inFlight() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            #expect(try await redis.text("PING") == "PONG")
            async let blocked = redis.failure(of: "BLPOP", "nothing", "0", timeout: .seconds(300))
            try await Self.waitUntilBlocked(server)
            try await server.kill()
            let error = await blocked
            #expect(error?.code == .connectionLost)
        }
    }

    @Test("a short deadline holds behind a long call")
    func shortBehindLong() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            let connection = try await redis.number("CLIENT", "ID")
            async let blocked = redis.send("BLPOP", "list", "0", timeout: .seconds(300))
            try await Self.waitUntilBlocked(server)
            let clock = ContinuousClock()
            let start = clock.now
            async let batch = redis.outcome(of: ["one", "two"], timeout: .milliseconds(400))
            let error = await redis.failure(of: "ECHO", "three", timeout: .milliseconds(300))
            #expect(error?.code == .timeout)
            #expect(await batch == .failure(RedisError(.timeout, "no reply in time")))
            #expect(clock.now - start < .seconds(200))
            // Replies without a waiting caller stay in order.
            async let later = redis.text("ECHO", "four", timeout: .seconds(300))
            try await TestRedis.with(try server.configuration(clientName: "pusher")) { pusher in
                _ = try await pusher.send("RPUSH", "list", "pushed")
            }
            #expect(try await blocked.strings() == ["list", "pushed"])
            #expect(try await later == "four")
            let same = try await redis.number("CLIENT", "ID")
            #expect(same == connection)
        }
    }

    private static func waitUntilBlocked(_ server: RedisServer) async throws {
        try await TestRedis.with(try server.configuration(clientName: "watcher")) { watcher in
            try await eventually("a client blocks") {
                try await watcher.text("INFO", "clients")?.contains("blocked_clients:1") == true
            }
        }
    }

    @Test("calls to a stalled server fail at the deadline")
    func stalled() async throws {
        let server = try await RedisServer.start()
        var configuration = try server.configuration()
        configuration.commandTimeout = .seconds(1)
        try await TestRedis.with(configuration) { redis in
            let reply = try await redis.text("PING", timeout: longestWait)
            #expect(reply == "PONG")
            try await server.stall()
            let clock = ContinuousClock()
            let start = clock.now
            let error = await redis.failure(of: "PING")
            #expect(error?.code == .timeout)
            #expect(clock.now - start >= .seconds(1))
            #expect(clock.now - start < .seconds(200))
            // Only the kernel accepts a new connection, so later commands are not sent at all.
            let later = await redis.failure(of: "PING")
            #expect(later?.code == .unavailable)
            server.resume()
            let resumed = try await redis.text("PING", timeout: longestWait)
            #expect(resumed == "PONG")
        }
    }

    @Test("a call that waited for the connection times out alone and leaves the connection to others")
    func waited() async throws {
        try await valueInTime("the login is answered just before the call's deadline") { limit -> Void? in
            let server = LateServer(delay: TimeAmount(limit * 95 / 100))
            return try await Self.with(server, limit) { redis in
                let error = await redis.failure(of: "PING")
                // Another error means that the login was too late, and the call was never sent.
                guard error?.code == .timeout else { return nil }
                await server.answer()
                let reply = try await redis.text("PING", timeout: longestWait)
                #expect(reply == "PONG" && redis.session == 1)
                return ()
            }
        }
    }

    @Test("a call whose reply takes too long to arrive times out alone")
    func arriving() async throws {
        try await valueInTime("the next part of a reply arrives in time") { limit -> Void? in
            let server = LateServer(delay: .zero, partInterval: TimeAmount(limit / 8))
            return try await Self.with(server, limit) { redis in
                guard await redis.failure(of: "PING")?.code == .timeout else { return nil }
                await server.answer()
                let reply = try await redis.text("PING", timeout: longestWait)
                #expect(reply == "PONG")
                return redis.session == 1 ? () : nil
            }
        }
    }

    /// Runs `body` with a client of the server whose commands have the given time limit.
    private static func with(
        _ server: LateServer,
        _ limit: Duration,
        _ body: (RedisClient) async throws -> Void?
    ) async throws -> Void? {
        let port = try await server.start()
        var configuration = RedisConfiguration(
            address: try RedisAddress(url: "redis://127.0.0.1:\(port)"), clientName: "test")
        configuration.commandTimeout = limit
        return try await withCleanUp({ try await server.stop() }) {
            try await TestRedis.with(configuration, body)
        }
    }

    @Test("at the deadline the error names the absent server")
    func absent() async throws {
        let address = try RedisAddress(url: "redis://127.0.0.1:\(try FreePort.next())/0")
        var configuration = RedisConfiguration(address: address, clientName: "test")
        configuration.commandTimeout = .milliseconds(300)
        try await TestRedis.with(configuration) { redis in
            let error = await redis.failure(of: "PING")
            #expect(error?.code == .unavailable)
            #expect(error?.message?.contains("no connection") == true)
        }
    }

    @Test("a connection that does not wait for its server fails when it is refused")
    func impatient() async throws {
        let address = try RedisAddress(url: "redis://127.0.0.1:\(try FreePort.next())/0")
        var configuration = RedisConfiguration(address: address, clientName: "test")
        configuration.commandTimeout = .seconds(300)
        configuration.waitsForServer = false
        try await TestRedis.with(configuration) { redis in
            let start = ContinuousClock.now
            let error = await redis.failure(of: "PING")
            #expect(error?.code == .unavailable)
            #expect(error?.message?.contains("refused") == true)
            #expect(ContinuousClock.now - start < .seconds(200))
        }
    }

    @Test("commands beyond the limit are refused at once")
    func overloaded() async throws {
        let server = try await RedisServer.start()
        var configuration = try server.configuration()
        configuration.maximumWaitingCommands = 10
        try await TestRedis.with(configuration) { redis in
            let reply = try await redis.text("PING")
            #expect(reply == "PONG")
            try await server.stall()
            let outcomes = await withTaskGroup(of: RedisError.Code?.self) { group in
                for _ in 0..<15 {
                    group.addTask { await redis.failure(of: "PING")?.code }
                }
                var refused: [RedisError.Code] = []
                for await code in group {
                    if let code { refused.append(code) }
                    // The waiting ones continue once all others were refused.
                    if refused.count == 5 { server.resume() }
                }
                return refused
            }
            #expect(outcomes.allSatisfy { $0 == .overloaded })
            // The connection's own probe may count, too.
            #expect((5...6).contains(outcomes.count))
            let resumed = try await redis.text("PING")
            #expect(resumed == "PONG")
        }
    }

    @Test("a batch that exceeds the limit is answered")
    func largeBatch() async throws {
        let server = try await RedisServer.start()
        var configuration = try server.configuration()
        configuration.maximumWaitingCommands = 10
        try await TestRedis.with(configuration) { redis in
            let words = (0..<11).map { "\($0)" }
            #expect(await redis.outcome(of: words, timeout: longestWait) == .success(words))
        }
    }

    @Test("calls behind a batch that exceeds the limit are refused")
    func behindLargeBatch() async throws {
        let address = try RedisAddress(url: "redis://127.0.0.1:\(try FreePort.next())/0")
        let refusal = RedisError(.overloaded, "too many commands wait")
        var configuration = RedisConfiguration(address: address, clientName: "test")
        configuration.maximumWaitingCommands = 10
        try await TestRedis.with(configuration) { redis in
            let words = (0..<11).map { "\($0)" }
            _ = try await valueInTime("two come while the first waits") { limit -> Void? in
                let outcomes = await withTaskGroup(of: Result<[String], RedisError>.self) { group in
                    for _ in 0..<3 { group.addTask { await redis.outcome(of: words, timeout: limit) } }
                    return await group.reduce(into: []) { $0.append($1) }
                }
                return outcomes.count { $0 == .failure(refusal) } == 2 ? () : nil
            }
        }
    }

    @Test("bytes beyond the limit are refused")
    func tooManyBytes() async throws {
        let address = try RedisAddress(url: "redis://127.0.0.1:\(try FreePort.next())/0")
        var configuration = RedisConfiguration(address: address, clientName: "test")
        configuration.maximumWaitingBytes = 1_000
        try await TestRedis.with(configuration) { redis in
            let big = String(repeating: "x", count: 2_000)
            _ = try await valueInTime("two come while the first waits") { limit -> Void? in
                let codes = await withTaskGroup(of: RedisError.Code?.self) { group in
                    for _ in 0..<3 {
                        group.addTask { await redis.failure(of: "ECHO", .text(big), timeout: limit)?.code }
                    }
                    return await group.reduce(into: []) { $0.append($1) }
                }
                #expect(codes.allSatisfy { $0 == .overloaded || $0 == .unavailable }, "\(codes)")
                return codes.count { $0 == .overloaded } == 2 ? () : nil
            }
        }
    }

    @Test("closing fails waiting and later calls")
    func closing() async throws {
        let address = try RedisAddress(url: "redis://127.0.0.1:\(try FreePort.next())/0")
        let redis = try TestRedis.connect(RedisConfiguration(address: address, clientName: "test"))
        async let waiting = redis.failure(of: "PING")
        await redis.close()
        #expect(await waiting?.code == .closed)
        let second = await redis.failure(of: "PING")
        #expect(second?.code == .closed)
    }

    @Test("dropped connections are closed")
    func dropped() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration(clientName: "watcher")) { watcher in
            func clients() async throws -> Int {
                try await watcher.text("CLIENT", "LIST")?.split(separator: "\n").count { $0.contains("dropped") } ?? 0
            }
            do {
                let configuration = try server.configuration(clientName: "dropped")
                let connection = try TestRedis.connect(configuration)
                let subscription = try RedisSubscription(
                    configuration, channels: ["news"], on: MultiThreadedEventLoopGroup.singleton.next(),
                    logger: TestLog.logger
                ) { _ in }
                try await connection.send("PING")
                try await eventually("both are there") {
                    let isSubscribed = await subscription.isComplete
                    let count = try await clients()
                    return isSubscribed && count == 2
                }
            }
            try await eventually("both are gone") { try await clients() == 0 }
        }
    }
}

/// A server that answers logins late, and PING once the test says so.
private final class LateServer: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private struct State {
        var listener: (any Channel)?
        /// The channels of unanswered commands; nil once the server answers at once.
        var held: [any Channel]? = []
    }

    private let state = Mutex(State())
    private let delay: TimeAmount
    private let partInterval: TimeAmount?

    /// - Parameters:
    ///   - delay: from a login to its replies.
    ///   - partInterval: how often a part of the reply to an unanswered command is sent; nil for
    ///     never.
    init(delay: TimeAmount, partInterval: TimeAmount? = nil) {
        self.delay = delay
        self.partInterval = partInterval
    }

    /// Listens on a free port and returns it.
    func start() async throws -> Int {
        let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(self) }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        self.state.withLock { $0.listener = listener }
        return listener.localAddress?.port ?? 0
    }

    /// Answers what came so far, and from now on at once.
    func answer() async {
        let held = self.state.withLock { state in
            defer { state.held = nil }
            return state.held ?? []
        }
        let rest = self.partInterval == nil ? "+PONG\r\n" : "\r\n"
        // Wait, so that no later reply overtakes these. The client may have closed the channel.
        for channel in held { try? await channel.writeAndFlush(ByteBuffer(string: rest)) }
    }

    func stop() async throws { try await self.state.withLock { $0.listener }?.close().get() }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let channel = context.channel
        guard String(buffer: self.unwrapInboundIn(data)).contains("PING") else {
            // The login, whose commands set the connection's name and ask for its number.
            channel.eventLoop.scheduleTask(in: self.delay) { Self.reply("+OK\r\n:1\r\n", on: channel) }
            return
        }
        let answersNow = self.state.withLock { state in
            state.held?.append(channel)
            return state.held == nil
        }
        guard !answersNow else { return Self.reply("+PONG\r\n", on: channel) }
        guard let partInterval = self.partInterval else { return }
        Self.reply("+", on: channel)
        channel.eventLoop.scheduleRepeatedTask(initialDelay: partInterval, delay: partInterval) { task in
            // Within the lock, so that no part follows the end of the reply.
            self.state.withLock { state in
                guard state.held != nil else { return task.cancel() }
                Self.reply("P", on: channel)
            }
        }
    }

    private static func reply(_ text: String, on channel: any Channel) {
        channel.writeAndFlush(ByteBuffer(string: text), promise: nil)
    }
}
