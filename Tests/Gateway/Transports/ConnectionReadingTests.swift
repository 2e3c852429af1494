// Carillon · ConnectionReadingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOEmbedded
import NIOHTTP1
import NIOHTTPTypes
import NIOPosix
import Support
import Synchronization
import Testing

@testable import Sockets

@Suite("Reading of requests", .timeLimit(.minutes(10)))
struct ConnectionReadingTests {
    private static let park = "GET /park HTTP/1.1\r\nhost: x\r\n\r\n"
    private static let length = "POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"

    @Test("pauses reading while an endpoint answers")
    func held() throws {
        let connection = try TestConnection()
        #expect(connection.reads())
        try connection.send(Self.park)
        #expect(connection.lot.count == 1)
        #expect(!connection.reads())
        let before = connection.readCount
        connection.lot.release()
        #expect(connection.readCount == before + 1)
        #expect(try connection.answers().hasSuffix("parked 0"))
        #expect(connection.reads())
    }

    @Test("answers pipelined requests in order and continues reading after them")
    func pipelined() throws {
        let connection = try TestConnection()
        try connection.send(Self.park + Self.length + Self.park)
        #expect(!connection.reads())
        #expect(try connection.answers().isEmpty)
        connection.lot.release()
        let first = try connection.answers()
        #expect(first.contains("parked 0HTTP/1.1 200 "))
        #expect(first.hasSuffix("\r\n\r\n3"))
        #expect(!connection.reads())
        connection.lot.release()
        #expect(try connection.answers().hasSuffix("parked 0"))
        #expect(connection.reads())
    }

    @Test(
        "ignores Upgrade to another protocol and answers the requests that follow",
        arguments: [
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQBAAAA\r\n",
            "Upgrade: TLS/1.2\r\nConnection: Upgrade\r\n",
            "upgrade: a, b\r\nconnection: close-not ,\t UPGRADE  ,x\r\n",
            "upgrade: a\r\nconnection: keep-alive\r\nconnection: upgrade\r\n",
            "upgrade: a\r\nproxy-connection: upgrade\r\n",
            "upgrade:\r\nupgrade: ,\r\nconnection: ,,upgrade\r\n",
            // The decoder stops after none of these.
            "upgrade: a\r\n", "connection: upgrade\r\n", "upgrade:  \r\nconnection: upgrade\r\n",
            "upgrade: a\r\nconnection: upgrade\t\r\n", "upgrade: a\r\nconnection: upgrade \t,b\r\n",
            "upgrade: a\r\nconnection: upgrades, upgrade b, b upgrade\r\n",
        ])
    func otherProtocol(fields: String) throws {
        // The second request ends within a field, of which a stopped decoder has read nothing.
        let (begun, rest) = (String(Self.length.prefix(34)), String(Self.length.dropFirst(34)))
        for body in [
            "content-length: 3\r\n\r\nabc", "transfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n",
        ] {
            let connection = try TestConnection()
            let request = "POST /length HTTP/1.1\r\nhost: x\r\n\(fields)\(body)"
            try connection.send(request + begun)
            #expect(try connection.answers().hasSuffix("\r\n\r\n3"), "\(request)")
            try connection.send(rest + request)
            try connection.send(request)
            let answers = try connection.answers().split(separator: "HTTP/1.1 ").map { String($0) }
            #expect(answers.count == 3, "\(request)")
            for answer in answers {
                #expect(answer.hasPrefix("200 ") && answer.hasSuffix("\r\n\r\n3"), "\(request)")
                #expect(!answer.lowercased().contains("connection: close"), "\(request)")
            }
            #expect(connection.reads())
        }
    }

    private static let parkWithUpgrade =
        "GET /park HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"

    @Test("pauses reading behind a request with Upgrade, and bounds what is pipelined behind it")
    func otherProtocolHeld() throws {
        let connection = try TestConnection()
        try connection.send(Self.parkWithUpgrade + Self.parkWithUpgrade + Self.length)
        #expect(!connection.reads())
        connection.lot.release()
        #expect(try connection.answers().hasSuffix("parked 0"))
        #expect(!connection.reads())
        connection.lot.release()
        #expect(try connection.answers().hasSuffix("\r\n\r\n3"))
        #expect(connection.reads())
        try connection.send(Self.parkWithUpgrade + String(repeating: Self.parkWithUpgrade, count: 600))
        #expect(!connection.channel.isActive)
        #expect(connection.lot.aborted == 1)
    }

    @Test("streams the answer to a request with Upgrade, and answers no request after it")
    func otherProtocolStream() throws {
        let connection = try TestConnection()
        try connection.send(Self.parkWithUpgrade + Self.length)
        let exchange = try #require(connection.lot.oldest)
        exchange.begin(.ok, headers: [:])
        try connection.send(Self.length)
        exchange.write(ByteBuffer(string: "event"))
        let answer = try connection.answers()
        #expect(answer.contains("event"))
        #expect(answer.split(separator: "HTTP/1.1 ").count == 1)
        exchange.end()
        _ = try connection.answers()
        #expect(!connection.channel.isActive)
    }

    @Test("refuses CONNECT, and a request with Upgrade whose end is uncertain")
    func uncertainEnd() throws {
        let upgrade = "host: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n"
        let table: [(request: String, reason: String)] = [
            ("CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n", "CONNECT"),
            ("CONNECT x:80 HTTP/1.1\r\n\(upgrade)content-length: \(Self.length.utf8.count)\r\n\r\n", "CONNECT"),
            ("POST /length HTTP/1.1\r\n\(upgrade)transfer-encoding: gzip\r\n\r\n", "transfer coding"),
            ("POST /nowhere HTTP/1.1\r\n\(upgrade)transfer-encoding: gzip\r\n\r\n", "transfer coding"),
        ]
        for (request, reason) in table {
            let connection = try TestConnection()
            try connection.send(request + Self.length)
            let answers = try connection.answers().split(separator: "HTTP/1.1 ")
            #expect(answers.count == 1, "\(request)")
            #expect(answers.first?.hasPrefix("400 ") == true, "\(request)")
            #expect(answers.first?.contains(reason) == true, "\(request)")
            #expect(!connection.channel.isActive, "\(request)")
        }
    }

    /// Writes nothing until the connection closes, as for a client that does not read.
    private final class WriteStopper: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer

        private var promises: [EventLoopPromise<Void>] = []

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            if let promise { self.promises.append(promise) }
        }

        func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
            let promises = self.promises
            self.promises = []
            for promise in promises { promise.fail(ChannelError.ioOnClosedChannel) }
            context.close(mode: mode, promise: promise)
        }
    }

    @Test("closes a client that sends too much behind a refused handshake whose answer it does not read")
    func refusedHandshake() throws {
        let connection = try TestConnection()
        try connection.channel.pipeline.syncOperations.addHandler(WriteStopper(), position: .first)
        let faulty = "GET /length HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
        try connection.send(faulty + String(repeating: "x", count: 10_000))
        #expect(connection.channel.isActive)
        for _ in 0..<20 where connection.channel.isActive { try connection.send(String(repeating: "x", count: 10_000)) }
        #expect(!connection.channel.isActive)
    }

    @Test("pauses reading while a client does not read its answers, except within a body")
    func unread() throws {
        let connection = try TestConnection()
        try connection.send(Self.length)
        func setWritable(_ isWritable: Bool) {
            connection.channel.isWritable = isWritable
            connection.channel.pipeline.fireChannelWritabilityChanged()
        }
        setWritable(false)
        #expect(!connection.reads())
        let before = connection.readCount
        setWritable(true)
        #expect(connection.readCount == before + 1)
        try connection.send("POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n")
        setWritable(false)
        #expect(connection.reads())
    }

    @Test(
        "bounds what waits for the server, and drops the rest of a body that it has answered",
        arguments: [false, true])
    func serverInput(isAnswered: Bool) throws {
        let connection = try TestConnection()
        try connection.send("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
        if isAnswered {
            let head = HTTPResponse(status: .unauthorized, headerFields: [.contentLength: "0"])
            try connection.channel.writeOutbound(HTTPResponsePart.head(head))
            try connection.channel.writeOutbound(HTTPResponsePart.end(nil))
            #expect(try connection.answers().hasPrefix("HTTP/1.1 401 "))
        }
        // The server takes nothing, so reading pauses once four parts wait for it.
        for _ in 0..<8 { try connection.send(String(repeating: "x", count: 10_000)) }
        #expect(connection.reads() == isAnswered)
    }

    @Test("closes a client that pipelines too much")
    func tooMuch() throws {
        let body = "POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 16000000\r\n\r\n"
        let some = try TestConnection()
        try some.send(Self.park + body + String(repeating: "x", count: 30_000))
        #expect(some.channel.isActive)
        let chunked = "POST /length HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        for flood in [
            body + String(repeating: "x", count: 33_000), String(repeating: Self.park, count: 1_200),
            chunked + String(repeating: "1\r\nx\r\n", count: 4_100),
        ] {
            let connection = try TestConnection()
            try connection.send(Self.park + flood)
            #expect(!connection.channel.isActive)
            #expect(connection.lot.aborted == 1)
        }
    }

    @Test("answers all requests of one read")
    func deepPipeline() throws {
        let connection = try TestConnection()
        try connection.send(Self.park + String(repeating: Self.length, count: 200))
        connection.lot.release()
        #expect(try connection.answers().split(separator: "HTTP/1.1 200 ").count == 201)
        #expect(connection.reads())
    }

    private static let forServer = "GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n"

    @Test("hands the server one request at a time, and bounds those that wait")
    func forServer() throws {
        let connection = try TestConnection()
        try connection.send(Self.forServer)
        #expect(connection.reads())
        try connection.send(Self.forServer + Self.length)
        #expect(!connection.reads())
        let answer = HTTPResponse(status: .ok, headerFields: [.contentLength: "0"])
        for isLast in [false, true] {
            let before = connection.readCount
            try connection.channel.writeOutbound(HTTPResponsePart.head(answer))
            try connection.channel.writeOutbound(HTTPResponsePart.end(nil))
            // Only the second leaves nothing that waits.
            #expect(connection.readCount == before + (isLast ? 1 : 0))
            let text = try connection.answers()
            #expect(text.hasPrefix("HTTP/1.1 200 "))
            #expect(text.hasSuffix("\r\n\r\n3") == isLast)
        }
        let flooded = try TestConnection()
        try flooded.send(Self.forServer + String(repeating: Self.forServer, count: 1_100))
        #expect(!flooded.channel.isActive)
        // Empty fields are short on the wire; the shared budget counts their memory.
        let emptyFields = String(repeating: "a:\r\n", count: 99)
        let request = "GET /nowhere HTTP/1.1\r\nhost: x\r\n\(emptyFields)\r\n"
        var policy = ConnectionPolicy()
        policy.bodies = Budget(limit: 64 * 1024)
        let full = try TestConnection(policy: policy)
        try full.send(Self.forServer + String(repeating: request, count: 4))
        #expect(full.channel.isActive)
        try full.send(String(repeating: request, count: 60))
        #expect(!full.channel.isActive)
    }

    /// Records the input that reaches the server.
    private final class ServerInput: ChannelInboundHandler {
        typealias InboundIn = HTTPServerRequestPart
        typealias InboundOut = HTTPServerRequestPart

        private(set) var requests = 0
        private(set) var hasEnded = false

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            if case .head = self.unwrapInboundIn(data) { self.requests += 1 }
            context.fireChannelRead(data)
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            if case ChannelEvent.inputClosed = event { self.hasEnded = true }
            context.fireUserInboundEventTriggered(event)
        }
    }

    @Test("hands the server no queued request during a shutdown")
    func shutdown() throws {
        let connection = try TestConnection()
        let input = ServerInput()
        try connection.channel.pipeline.syncOperations.addHandler(input)
        try connection.send(Self.forServer + Self.forServer)
        connection.channel.pipeline.fireUserInboundEventTriggered(ChannelShouldQuiesceEvent())
        #expect(connection.channel.isActive)
        let answer = HTTPResponse(status: .ok, headerFields: [.contentLength: "0"])
        try connection.channel.writeOutbound(HTTPResponsePart.head(answer))
        try connection.channel.writeOutbound(HTTPResponsePart.end(nil))
        #expect(try connection.answers().hasPrefix("HTTP/1.1 200 "))
        #expect(input.requests == 1)
        #expect(!connection.channel.isActive)
    }

    @Test("serves the queued requests of a client that closes its half, then ends the server's input")
    func halfClosed() throws {
        let single = try TestConnection()
        try single.send(Self.forServer)
        single.channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(single.channel.isActive)
        let several = try TestConnection()
        let input = ServerInput()
        try several.channel.pipeline.syncOperations.addHandler(input)
        try several.send(Self.forServer + Self.forServer)
        several.channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(several.channel.isActive)
        #expect(input.requests == 1 && !input.hasEnded)
        let answer = HTTPResponse(status: .ok, headerFields: [.contentLength: "0"])
        try several.channel.writeOutbound(HTTPResponsePart.head(answer))
        try several.channel.writeOutbound(HTTPResponsePart.end(nil))
        #expect(try several.answers().hasPrefix("HTTP/1.1 200 "))
        #expect(input.requests == 2 && input.hasEnded)
        // As without a queue, an endpoint answers no client that has closed its half.
        let parked = try TestConnection()
        try parked.send(Self.forServer + Self.park)
        parked.channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        try parked.channel.writeOutbound(HTTPResponsePart.head(answer))
        try parked.channel.writeOutbound(HTTPResponsePart.end(nil))
        #expect(try parked.answers().hasPrefix("HTTP/1.1 200 "))
        #expect(parked.lot.aborted == 1)
        #expect(!parked.channel.isActive)
    }

    @Test("asks a client that waits for it to send the body", arguments: ["/length", "/nowhere"])
    func expectation(path: String) throws {
        func head(_ version: String, _ expectation: String) -> String {
            "POST \(path) \(version)\r\nhost: x\r\nexpect: \(expectation)\r\ncontent-length: 3\r\n\r\n"
        }
        for expectation in ["100-continue", "100-Continue"] {
            let connection = try TestConnection()
            try connection.send(head("HTTP/1.1", expectation))
            #expect(try connection.answers() == "HTTP/1.1 100 Continue\r\n\r\n")
            try connection.send("abc")
            let answer = try connection.answers()
            #expect(path == "/length" ? answer.hasSuffix("\r\n\r\n3") : answer.isEmpty)
        }
        for request in [head("HTTP/1.0", "100-continue"), head("HTTP/1.1", "else")] {
            let connection = try TestConnection()
            try connection.send(request)
            #expect(try connection.answers().isEmpty)
        }
    }

    @Test("answers bodies beyond the total limit with 503; an answered one makes room")
    func process() throws {
        func post(_ length: Int) -> String {
            "POST /park HTTP/1.1\r\nhost: x\r\ncontent-length: \(length)\r\n\r\n"
        }
        let part = String(repeating: "x", count: 30_000)
        var policy = ConnectionPolicy()
        policy.bodies = Budget(limit: 40_000)
        let first = try TestConnection(policy: policy)
        try first.send(post(60_000) + part)
        let second = try TestConnection(policy: policy)
        try second.send(post(60_000) + part)
        #expect(try second.answers().hasPrefix("HTTP/1.1 503 "))
        #expect(!second.channel.isActive)
        // A small body always fits.
        let small = try TestConnection(policy: policy)
        try small.send(post(4_000) + String(repeating: "x", count: 4_000))
        #expect(small.lot.count == 1)
        // A body that no endpoint reads takes no room.
        let skipped = try TestConnection(policy: policy)
        try skipped.send("GET /park HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n" + part + part)
        #expect(skipped.lot.count == 1)
        // A client that leaves makes room, too.
        try first.channel.close().wait()
        for _ in 0..<2 {
            let next = try TestConnection(policy: policy)
            try next.send(post(30_000) + part)
            #expect(next.lot.count == 1)
            next.lot.release()
            #expect(try next.answers().hasSuffix("parked 30000"))
        }
    }

    /// Passes nothing on, as if the client read nothing.
    private final class FlushStopper: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer

        func flush(context: ChannelHandlerContext) {}
    }

    @Test(
        "closes the newest client that does not read its answer once such answers exceed the total limit",
        arguments: [false, true])
    func unreadAnswers(isServer: Bool) throws {
        var policy = ConnectionPolicy()
        policy.answers = Budget(limit: 250_000)
        let body = ByteBuffer(repeating: 0x78, count: 100_000)
        func answered() throws -> TestConnection {
            let connection = try TestConnection(policy: policy)
            try connection.channel.pipeline.syncOperations.addHandler(FlushStopper(), position: .first)
            try connection.send(isServer ? Self.forServer : Self.park)
            connection.channel.isWritable = false
            guard isServer else {
                try #require(connection.lot.oldest).respond(.ok, body: body)
                return connection
            }
            let head = HTTPResponse(status: .ok, headerFields: [.contentLength: "\(body.readableBytes)"])
            connection.channel.write(HTTPResponsePart.head(head), promise: nil)
            connection.channel.write(HTTPResponsePart.body(body), promise: nil)
            connection.channel.writeAndFlush(HTTPResponsePart.end(nil), promise: nil)
            return connection
        }
        let first = try answered()
        let second = try answered()
        let third = try answered()
        #expect(first.channel.isActive && second.channel.isActive && !third.channel.isActive)
        // A client that reads, and one that leaves, make room.
        first.channel.isWritable = true
        first.channel.pipeline.fireChannelWritabilityChanged()
        let fourth = try answered()
        #expect(fourth.channel.isActive)
        second.channel.close(promise: nil)
        let fifth = try answered()
        let sixth = try answered()
        #expect(fifth.channel.isActive && !sixth.channel.isActive)
    }

    @Test("counts incomplete socket messages as bodies")
    func messages() throws {
        let bodies = Budget(limit: 40_000)
        func open() throws -> EmbeddedChannel {
            let limits = WebSocketLimits(maximumMessage: 64 * 1024)
            let handler = WebSocketHandler(application: Listener(), limits: limits, bodies: bodies)
            let channel = EmbeddedChannel(handler: handler)
            try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
            return channel
        }
        // The first half of a text of 60,000 bytes, masked with zeros.
        var half = ByteBuffer(bytes: [0x81, 0xFE, 0xEA, 0x60, 0, 0, 0, 0])
        half.writeRepeatingByte(0x78, count: 30_000)
        let first = try open()
        try first.writeInbound(half)
        #expect(first.isActive)
        let second = try open()
        try second.writeInbound(half)
        #expect(!second.isActive)
        let frame = try second.readOutbound(as: ByteBuffer.self)
        // A close frame with 1013, try again later.
        #expect(frame.map { Array($0.readableBytesView.dropFirst(2).prefix(2)) } == [0x03, 0xF5])
        // Completing the first message makes room.
        try first.writeInbound(ByteBuffer(repeating: 0x78, count: 30_000))
        let third = try open()
        try third.writeInbound(half)
        #expect(first.isActive && third.isActive)
    }

    @Test("requires exactly one Host field, except in HTTP/1.0")
    func host() throws {
        let table: [(request: String, status: String)] = [
            ("GET /park HTTP/1.1\r\n\r\n", "400"),
            ("GET /park HTTP/1.1\r\nhost: a\r\nHost: a\r\n\r\n", "400"),
            ("GET /park HTTP/1.0\r\nhost: a\r\nHost: a\r\n\r\n", "400"),
            ("GET /park HTTP/1.1\r\nhost: a b\r\n\r\n", "400"),
            ("GET /park HTTP/1.1\r\nhost: a/b\r\n\r\n", "400"),
            ("GET /nowhere HTTP/1.1\r\n\r\n", "400"),
            ("GET /nowhere HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", "400"),
        ]
        for (request, status) in table {
            let connection = try TestConnection()
            try connection.send(request)
            let answer = try connection.answers()
            #expect(answer.hasPrefix("HTTP/1.1 \(status) "), "\(request)")
            #expect(answer.contains("Host header"), "\(request)")
            #expect(!connection.channel.isActive)
        }
        for host in ["", "example.com", "example.com:8080", "[2001:db8::1]:80", "a_b.test"] {
            let connection = try TestConnection()
            try connection.send("GET /park HTTP/1.1\r\nhost: \(host)\r\n\r\n")
            #expect(connection.lot.count == 1, "\(host)")
        }
        let old = try TestConnection()
        try old.send("GET /park HTTP/1.0\r\n\r\n")
        #expect(old.lot.count == 1)
    }

    // MARK: On a network

    @Test("cuts off a client that does not read the server's answer, and serves others meanwhile")
    func slowReader() async throws {
        var timeouts = ConnectionTimeouts()
        timeouts.stall = .milliseconds(500)
        let connections = ConnectionChannel(
            responder: { request, writer, _ in
                var body = try await writer.writeHead(HTTPResponse(status: .ok))
                // More than fits into the system's buffers.
                for _ in 0..<(request.head.path == "/long" ? 10_000 : 1) {
                    try await body.write(ByteBuffer(repeating: 0x78, count: 64 * 1024))
                }
                try await body.finish(nil)
            },
            endpoints: [],
            timeouts: timeouts,
            http: HTTP1Channel.Configuration()
        )
        let closed = Mutex(0)
        let group = MultiThreadedEventLoopGroup.singleton
        let listener = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                channel.closeFuture.whenComplete { _ in closed.withLock { $0 += 1 } }
                return connections.setup(channel: channel, logger: Logger(label: "test")).map { value in
                    _ = Task { await connections.handle(value: value, logger: Logger(label: "test")) }
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let port = listener.localAddress?.port ?? 0
        func client(_ path: String, reads: Bool) async throws -> any Channel {
            let client = try await ClientBootstrap(group: group).channelOption(.autoRead, value: reads)
                .connect(host: "127.0.0.1", port: port).get()
            let head = "GET \(path) HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            try await client.writeAndFlush(ByteBuffer(string: head)).get()
            return client
        }
        let slow = try await client("/long", reads: false)
        try await client("/short", reads: true).closeFuture.get()
        try await eventually("both have ended") { closed.withLock { $0 } == 2 }
        try await slow.close().get()
        try await listener.close().get()
    }

    /// Counts the server's tasks that have ended.
    private final class Ends: Sendable {
        let count = Mutex(0)
    }

    @Test("opens a socket on a connection that the server answered, and ends its task with the socket")
    func reused() async throws {
        let connections = ConnectionChannel(
            responder: { _, writer, _ in
                let head = HTTPResponse(status: .ok, headerFields: [.contentLength: "0"])
                try await writer.writeHead(head).finish(nil)
            },
            endpoints: [EchoEndpoint()],
            http: HTTP1Channel.Configuration(idleTimeout: .seconds(60))
        )
        let ends = Ends()
        let group = MultiThreadedEventLoopGroup.singleton
        let listener = try await ServerBootstrap(group: group)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { channel in
                connections.setup(channel: channel, logger: Logger(label: "test")).map { value in
                    _ = Task {
                        await connections.handle(value: value, logger: Logger(label: "test"))
                        ends.count.withLock { $0 += 1 }
                    }
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let received = ReceivedBytes()
        let client = try await ClientBootstrap(group: group)
            .channelInitializer { $0.pipeline.addHandler(received) }
            .connect(host: "127.0.0.1", port: listener.localAddress?.port ?? 0).get()
        // The server ignores other protocols, and WebSockets on its own paths.
        let upgrades = ["", "connection: upgrade\r\nupgrade: h2c\r\n", "connection: upgrade\r\nupgrade: websocket\r\n"]
        for fields in upgrades {
            received.clear()
            let request = "GET /rest HTTP/1.1\r\nhost: x\r\n\(fields)\r\n"
            try await client.writeAndFlush(ByteBuffer(string: request + request)).get()
            try await eventually("the server answers both") {
                received.text.hasSuffix("\r\n\r\n") && received.text.split(separator: "HTTP/1.1 200 ").count == 2
            }
            #expect(received.text.hasPrefix("HTTP/1.1 200 "))
        }
        received.clear()
        let fields = [
            "GET /echo HTTP/1.1", "host: x", "upgrade: websocket", "connection: Upgrade", "sec-websocket-version: 13",
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        ]
        // The text "hi", masked with zeros; the first comes together with the handshake.
        let frame = ByteBuffer(bytes: [0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69])
        var handshake = ByteBuffer(string: fields.joined(separator: "\r\n") + "\r\n\r\n")
        handshake.writeImmutableBuffer(frame)
        try await client.writeAndFlush(handshake).get()
        try await eventually("the first text comes back") { received.bytes.suffix(4) == [0x81, 0x02, 0x68, 0x69] }
        #expect(received.text.hasPrefix("HTTP/1.1 101 "))
        // More messages than the server's input would hold.
        for _ in 0..<8 {
            received.clear()
            try await client.writeAndFlush(frame).get()
            try await eventually("the text comes back") { received.bytes == [0x81, 0x02, 0x68, 0x69] }
        }
        #expect(ends.count.withLock { $0 } == 0)
        try await client.close().get()
        try await eventually("the server's task has ended") { ends.count.withLock { $0 } == 1 }
        try await listener.close().get()
    }

    @Test(
        "closes after the server's answer to HTTP/1.0, without chunks, and to a client that asks for it",
        arguments: [
            "HTTP/1.0\r\nhost: x", "HTTP/1.0\r\nhost: x\r\nConnection: keep-alive",
            "HTTP/1.1\r\nhost: x\r\nConnection: TE, Close",
        ])
    func lastRequest(start: String) async throws {
        let connections = ConnectionChannel(
            responder: { _, writer, _ in
                var body = try await writer.writeHead(HTTPResponse(status: .ok))
                for text in ["ab", "c"] { try await body.write(ByteBuffer(string: text)) }
                try await body.finish(nil)
            },
            endpoints: [],
            http: HTTP1Channel.Configuration()
        )
        let group = MultiThreadedEventLoopGroup.singleton
        let listener = try await ServerBootstrap(group: group)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { channel in
                connections.setup(channel: channel, logger: Logger(label: "test")).map { value in
                    _ = Task { await connections.handle(value: value, logger: Logger(label: "test")) }
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let received = ReceivedBytes()
        let client = try await ClientBootstrap(group: group)
            .channelInitializer { $0.pipeline.addHandler(received) }
            .connect(host: "127.0.0.1", port: listener.localAddress?.port ?? 0).get()
        try await client.writeAndFlush(ByteBuffer(string: "GET /rest \(start)\r\n\r\n")).get()
        // Ends only if the server closes.
        try await client.closeFuture.get()
        let version = String(start.prefix(8))
        #expect(received.text.hasPrefix("\(version) 200 ") && received.text.contains("\r\nconnection: close\r\n"))
        let body = version == "HTTP/1.0" ? "abc" : "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        #expect(received.text.hasSuffix("\r\n\r\n\(body)"))
        try await listener.close().get()
    }

    /// How a request to the server ends before its body does.
    enum Cut: CaseIterable {
        case halfClose, close, reset, silence, badChunk, shutdown
        /// The rest of the body comes before the client closes its half.
        case nothing
    }

    @Test("fails a body of the server that is cut, and answers whole requests", arguments: Cut.allCases)
    func cutBody(_ cut: Cut) async throws {
        var timeouts = ConnectionTimeouts()
        // Long enough for the server to begin with the request on a busy machine.
        if cut == .silence { timeouts.body = .seconds(5) }
        let begun = Mutex(0)
        // Nil for one that failed.
        let bodies = Mutex<[String?]>([])
        let tasks = Mutex<[Task<Void, Never>]>([])
        let connections = ConnectionChannel(
            responder: { request, writer, _ in
                begun.withLock { $0 += 1 }
                let body = try? await request.body.collect(upTo: 1_000)
                bodies.withLock { $0.append(body.map { String(buffer: $0) }) }
                let head = HTTPResponse(status: .ok, headerFields: [.contentLength: "0"])
                try await writer.writeHead(head).finish(nil)
            },
            endpoints: [],
            timeouts: timeouts,
            http: HTTP1Channel.Configuration()
        )
        let group = MultiThreadedEventLoopGroup.singleton
        let listener = try await ServerBootstrap(group: group)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { channel in
                connections.setup(channel: channel, logger: Logger(label: "test")).map { value in
                    let task = Task { await connections.handle(value: value, logger: Logger(label: "test")) }
                    tasks.withLock { $0.append(task) }
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let received = ReceivedBytes()
        let client = try await ClientBootstrap(group: group).channelOption(.allowRemoteHalfClosure, value: true)
            .channelInitializer { $0.pipeline.addHandler(received) }
            .connect(host: "127.0.0.1", port: listener.localAddress?.port ?? 0).get()
        let form = cut == .badChunk ? "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n" : "content-length: 6\r\n\r\nabc"
        let head = "POST /rest HTTP/1.1\r\nhost: x\r\n"
        // The first request is whole, and the second waits behind it.
        let requests = "\(head)content-length: 5\r\n\r\nwhole\(head)\(form)"
        try await client.writeAndFlush(ByteBuffer(string: requests)).get()
        try await eventually("the second request begins") { begun.withLock { $0 } == 2 }
        switch cut {
        case .halfClose: try await client.close(mode: .output).get()
        case .close: try await client.close().get()
        case .reset:
            let options = try #require(client as? any SocketOptionProvider)
            try await options.setSoLinger(linger(l_onoff: 1, l_linger: 0)).get()
            try await client.close().get()
        case .silence: break
        case .badChunk: try await client.writeAndFlush(ByteBuffer(string: "x\r\n")).get()
        case .shutdown:
            for task in tasks.withLock({ $0 }) { task.cancel() }
        case .nothing:
            try await client.writeAndFlush(ByteBuffer(string: "def")).get()
            try await client.close(mode: .output).get()
        }
        try await eventually("the second request ends") { bodies.withLock { $0.count } == 2 }
        let read = bodies.withLock { $0 }
        #expect(read == ["whole", cut == .nothing ? "abcdef" : nil])
        if cut == .nothing {
            try await eventually("both are answered") { received.text.split(separator: "HTTP/1.1 200 ").count == 2 }
        }
        try? await client.close().get()
        try await listener.close().get()
    }

    /// How a client leaves during a request, and what it had pipelined.
    enum Departure: CaseIterable {
        case halfClose, close, reset, closeWithUnread, closeWithTooMuch
    }

    @Test("notices a client that leaves while reading is paused", arguments: Departure.allCases)
    func departures(_ departure: Departure) async throws {
        let lot = ParkEndpoint.Lot()
        let connections = ConnectionChannel(
            responder: { _, _, _ in },
            endpoints: [ParkEndpoint(lot: lot)],
            http: HTTP1Channel.Configuration()
        )
        let group = MultiThreadedEventLoopGroup.singleton
        let listener = try await ServerBootstrap(group: group)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { channel in
                connections.setup(channel: channel, logger: Logger(label: "test")).map { _ in }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        let client = try await ClientBootstrap(group: group).channelOption(.allowRemoteHalfClosure, value: true)
            .connect(host: "127.0.0.1", port: listener.localAddress?.port ?? 0).get()
        try await client.writeAndFlush(ByteBuffer(string: Self.park)).get()
        try await eventually("it waits") { lot.count == 1 }
        switch departure {
        case .halfClose: try await client.close(mode: .output).get()
        case .close: try await client.close().get()
        case .reset:
            let options = try #require(client as? any SocketOptionProvider)
            try await options.setSoLinger(linger(l_onoff: 1, l_linger: 0)).get()
            try await client.close().get()
        case .closeWithUnread, .closeWithTooMuch:
            let length = departure == .closeWithUnread ? 10_000 : 60_000
            let text = "POST /park HTTP/1.1\r\nhost: x\r\ncontent-length: 16000000\r\n\r\n"
            let rest = ByteBuffer(string: text + String(repeating: "x", count: length))
            try await client.writeAndFlush(rest).get()
            try await client.close().get()
        }
        try await eventually("it is noticed") { lot.aborted == 1 }
        try? await client.close().get()
        try await listener.close().get()
    }
}

/// An endpoint whose sockets send each text back.
private struct EchoEndpoint: TransportEndpoint {
    private final class Echo: WebSocketApplication {
        private var socket: WebSocketHandler?

        func webSocketOpened(_ socket: WebSocketHandler) { self.socket = socket }
        func webSocketReceived(text: String) { self.socket?.send(text: Array(text.utf8)) }
        func webSocketReceived(binary: [UInt8]) {}
        func webSocketReceivedPing() -> Bool { true }
        func webSocketProven(_ sequence: UInt64) {}
        func webSocketIsTooSlow() {}
        func webSocketReadComplete() {}
        func webSocketClosed() { self.socket = nil }
    }

    func claims(_ path: Substring) -> Bool { path == "/echo" }

    func admit(_ head: HTTPRequestHead) async throws -> WebSocketAdmission {
        WebSocketAdmission(limits: WebSocketLimits(maximumMessage: 1_024)) { _ in Echo() }
    }
}

/// Collects what a client receives.
private final class ReceivedBytes: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private let collected = Mutex<[UInt8]>([])

    var bytes: [UInt8] { self.collected.withLock { $0 } }
    var text: String { String(decoding: self.bytes, as: UTF8.self) }

    func clear() { self.collected.withLock { $0 = [] } }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = Array(self.unwrapInboundIn(data).readableBytesView)
        self.collected.withLock { $0 += bytes }
    }
}
