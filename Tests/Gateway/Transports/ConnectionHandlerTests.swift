// Carillon · ConnectionHandlerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOEmbedded
import NIOHTTP1
import NIOPosix
import Synchronization
import Testing

@testable import Sockets

/// Faulty WebSocket handshakes (RFC 6455, section 4.2.1).
@Suite("Faulty handshakes", .timeLimit(.minutes(10)))
struct ConnectionHandshakeTests {
    private static let key = "dGhlIHNhbXBsZSBub25jZQ=="

    /// A valid handshake with a test's changes; an empty value removes its field.
    private static func handshake(
        _ path: String, _ changes: [String: String], method: String = "GET", version: String = "HTTP/1.1"
    ) -> String {
        let fields = [
            "Host": "x", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": Self.key,
        ].merging(changes) { $1 }
        let lines = fields.filter { !$0.value.isEmpty }.map { "\($0.key): \($0.value)" }
        return (["\(method) \(path) \(version)"] + lines).joined(separator: "\r\n") + "\r\n\r\n"
    }

    /// The status of an answer, its body, and the protocols and versions that it names.
    private static func answer(
        to request: String
    ) throws -> (status: String, body: String, upgrades: [String], versions: [String]) {
        let connection = try TestConnection()
        try connection.send(request)
        let answer = try connection.answers()
        #expect(!connection.channel.isActive)
        let lines = answer.split(separator: "\r\n", omittingEmptySubsequences: false).map { String($0) }
        func values(_ name: String) -> [String] {
            lines.filter { $0.lowercased().hasPrefix(name + ": ") }.map { String($0.dropFirst(name.count + 2)) }
        }
        return (
            lines.first?.split(separator: " ").dropFirst().first.map { String($0) } ?? "",
            lines.last ?? "",
            values("upgrade"), values("sec-websocket-version")
        )
    }

    @Test("refuses each fault in the endpoint's own format", arguments: ["/length", "/plain"])
    func faults(_ path: String) throws {
        let marks = String(repeating: "\u{300}", count: 65)
        let table: [(request: String, status: String, reason: String)] = [
            (Self.handshake(path, [:], method: "POST"), "400", "the handshake must be GET"),
            (Self.handshake(path, [:], version: "HTTP/1.0"), "400", "the handshake must be GET"),
            (Self.handshake(path, ["Host": ""]), "400", "the Host header"),
            (Self.handshake(path, ["host": "y"]), "400", "the Host header"),
            (Self.handshake(path, ["Connection": ""]), "400", "the Connection header"),
            (Self.handshake(path, ["Connection": "keep-alive"]), "400", "the Connection header"),
            (Self.handshake(path, ["Sec-WebSocket-Version": ""]), "426", "must be 13"),
            (Self.handshake(path, ["Sec-WebSocket-Version": "8"]), "426", "must be 13"),
            (Self.handshake(path, ["Sec-WebSocket-Version": "14"]), "426", "must be 13"),
            (Self.handshake(path, ["Sec-WebSocket-Key": ""]), "400", "16 bytes in base64"),
            (Self.handshake(path, ["Sec-WebSocket-Key": "c2hvcnQ="]), "400", "16 bytes in base64"),
            (Self.handshake(path, ["Sec-WebSocket-Key": "no base64 of 16 bytes!!!"]), "400", "16 bytes in base64"),
            (Self.handshake(path, ["sec-websocket-key": Self.key]), "400", "16 bytes in base64"),
            (Self.handshake(path, ["X-Note": "a" + marks]), "400", "a header has more than 64 combining marks"),
        ]
        for (request, status, reason) in table {
            let answer = try Self.answer(to: request)
            #expect(answer.status == status, "\(request)")
            #expect(answer.body.contains(reason), "\(request)")
            #expect(answer.body.hasPrefix("{") == (path == "/length"))
            #expect(answer.upgrades == (status == "426" ? ["websocket"] : []), "\(request)")
            #expect(answer.versions == (status == "426" ? ["13"] : []), "\(request)")
        }
    }

    @Test("answers a faulty handshake by HEAD without a body")
    func head() throws {
        let answer = try Self.answer(to: Self.handshake("/length", [:], method: "HEAD"))
        #expect(answer.status == "400")
        #expect(answer.body.isEmpty)
    }

    @Test("refuses control characters in a header")
    func controlCharacters() throws {
        for character in ["\u{0}", "\u{1F}", "\u{7F}"] {
            let connection = try TestConnection()
            // The answer reports the parser's fault.
            try? connection.send("GET /length HTTP/1.1\r\nhost: x\r\norigin: a\(character)\r\n\r\n")
            #expect(try connection.answers().hasPrefix("HTTP/1.1 400 "))
        }
    }

    @Test("asks a GET without a handshake to upgrade, and refuses other methods")
    func missing() throws {
        let other = try TestConnection()
        try other.send("PUT /plain HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        let refusal = try other.answers().lowercased()
        #expect(refusal.hasPrefix("http/1.1 405 "))
        #expect(refusal.contains("\r\nallow: get\r\n"))
        let connection = try TestConnection()
        try connection.send("GET /plain HTTP/1.1\r\nhost: x\r\n\r\n")
        let answer = try connection.answers().lowercased()
        #expect(answer.hasPrefix("http/1.1 426 "))
        for field in ["upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13"] {
            #expect(answer.contains("\r\n\(field)\r\n"), "\(field)")
        }
    }

    @Test("refuses a header with too many combining marks in a row", arguments: ["/length", "/nowhere"])
    func marks(_ path: String) throws {
        let connection = try TestConnection()
        let marks = String(repeating: "\u{300}", count: 65)
        try connection.send("GET \(path) HTTP/1.1\r\nhost: x\r\norigin: a\(marks)\r\n\r\n")
        let answer = try connection.answers()
        #expect(answer.hasPrefix("HTTP/1.1 400 "))
        #expect(answer.contains("a header has more than 64 combining marks in a row"))
        #expect(!connection.channel.isActive)
    }
}

@Suite("Targets of requests", .timeLimit(.minutes(10)))
struct ConnectionTargetTests {
    @Test(
        "finds the endpoint of a target in absolute form (RFC 9112, section 3.2.2)",
        arguments: ["http://x/length", "https://x:8080/length?next=http://y/nowhere"])
    func absolute(target: String) throws {
        let connection = try TestConnection()
        try connection.send("POST \(target) HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi")
        #expect(try connection.answers().hasSuffix("\r\n\r\n2"))
    }

    @Test(
        "reads the path of each form of target",
        arguments: [
            ("/a/b?c=d", "/a/b"), ("/a://b/c", "/a://b/c"), ("http://x/a?b", "/a"), ("http://x", ""),
            ("http://x?a=/b", ""), ("*", "*"), ("x:443", "x:443"),
        ])
    func path(target: String, path: String) {
        #expect(HTTPRequestHead(version: .http1_1, method: .GET, uri: target).path == path)
    }
}

@Suite("Slow clients of HTTP", .timeLimit(.minutes(10)))
struct ConnectionTimeTests {
    @Test("closes a client that is silent or whose first request does not end")
    func firstRequest() throws {
        for text in ["", "GET /length HTTP/1.1\r\nhost: x\r\nx-"] {
            let connection = try TestConnection()
            if !text.isEmpty { try connection.send(text) }
            connection.channel.embeddedEventLoop.advanceTime(by: .seconds(9))
            #expect(connection.channel.isActive)
            connection.channel.embeddedEventLoop.advanceTime(by: .seconds(2))
            #expect(!connection.channel.isActive)
        }
    }

    @Test("answers a body that never ends with 408, however slowly it trickles; its page may read that")
    func body() throws {
        var policy = ConnectionPolicy()
        policy.origins = .any
        let connection = try TestConnection(policy: policy)
        let head = "POST /length HTTP/1.1\r\nhost: x\r\norigin: https://app.example\r\ncontent-length: 100\r\n\r\n"
        try connection.send(head)
        for _ in 0..<19 {
            connection.channel.embeddedEventLoop.advanceTime(by: .seconds(1))
            try connection.send("x")
        }
        #expect(try connection.answers().isEmpty)
        connection.channel.embeddedEventLoop.advanceTime(by: .seconds(2))
        let answer = try connection.answers()
        #expect(answer.hasPrefix("HTTP/1.1 408 "))
        #expect(answer.contains("\r\naccess-control-allow-origin: *\r\n"))
        #expect(!connection.channel.isActive)
    }

    @Test("answers a body that arrives in time and keeps the connection for a while")
    func inTime() throws {
        let connection = try TestConnection()
        try connection.send("POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n01234")
        connection.channel.embeddedEventLoop.advanceTime(by: .seconds(15))
        try connection.send("56789")
        #expect(try connection.answers().hasSuffix("\r\n\r\n10"))
        connection.channel.embeddedEventLoop.advanceTime(by: .seconds(60))
        #expect(connection.channel.isActive)
        connection.channel.embeddedEventLoop.advanceTime(by: .seconds(16))
        #expect(!connection.channel.isActive)
    }

    @Test("closes a client whose request to the server never ends, so that a shutdown does not wait for it")
    func serverBody() throws {
        let connection = try TestConnection()
        try connection.send("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        connection.channel.embeddedEventLoop.advanceTime(by: .seconds(19))
        #expect(connection.channel.isActive)
        connection.channel.embeddedEventLoop.advanceTime(by: .seconds(2))
        #expect(!connection.channel.isActive)
    }

    /// Delays closes, as TLS does until the client closes its half.
    private final class CloseHolder: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer

        func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
            promise?.succeed()
        }
    }

    /// Holds writes back until the connection closes, as a full socket does.
    private final class WriteHolder: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer

        private var held: [EventLoopPromise<Void>] = []

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            if let promise { self.held.append(promise) }
        }

        func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
            // First, because a write that fails may close the connection too.
            let held = self.held
            self.held = []
            for write in held { write.fail(ChannelError.ioOnClosedChannel) }
            context.close(mode: mode, promise: promise)
        }
    }

    @Test("fails the server's body before the end of its input, also while TLS delays the close")
    func inputEnds() throws {
        let connection = try TestConnection()
        try connection.send("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        try connection.channel.pipeline.syncOperations.addHandler(CloseHolder(), position: .first)
        connection.channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(throws: ChannelError.eof) { try connection.channel.throwIfErrorCaught() }
        let whole = try TestConnection()
        try whole.send("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n{")
        whole.channel.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        #expect(whole.channel.isActive)
        try whole.channel.throwIfErrorCaught()
    }

    @Test("closes a client that reads nothing, but not one that reads slowly")
    func readers() throws {
        let connection = try TestConnection()
        try connection.send("POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")
        #expect(try connection.answers().hasPrefix("HTTP/1.1 200 "))
        connection.channel.isWritable = false
        connection.channel.pipeline.fireChannelWritabilityChanged()
        connection.channel.embeddedEventLoop.advanceTime(by: .seconds(20))
        connection.channel.isWritable = true
        connection.channel.pipeline.fireChannelWritabilityChanged()
        connection.channel.embeddedEventLoop.advanceTime(by: .seconds(20))
        #expect(connection.channel.isActive)
        connection.channel.isWritable = false
        connection.channel.pipeline.fireChannelWritabilityChanged()
        connection.channel.embeddedEventLoop.advanceTime(by: .seconds(31))
        #expect(!connection.channel.isActive)
    }

    /// Leaves so many bytes of output unread.
    private static func leave(_ bytes: Int, at connection: TestConnection) throws {
        let encoder = try connection.channel.pipeline.syncOperations.context(handlerType: HTTPResponseEncoder.self)
        encoder.flush()
        encoder.write(NIOAny(ByteBuffer(repeating: 0x78, count: bytes)), promise: nil)
    }

    @Test(
        "closes a client that reads less than 4 KB, or less than a tenth, of a full connection in 30 s",
        arguments: [[100_000, 90_000, 81_000, 72_901], [30_000, 25_904, 21_809]])
    func trickle(left: [Int]) throws {
        let connection = try TestConnection()
        // So that the first request is not late.
        try connection.send("GET /park HTTP/1.1\r\nhost: x\r\n\r\n")
        try Self.leave(left[0], at: connection)
        connection.channel.isWritable = false
        connection.channel.pipeline.fireChannelWritabilityChanged()
        for (place, rest) in left.enumerated().dropFirst() {
            try Self.leave(rest, at: connection)
            connection.channel.embeddedEventLoop.advanceTime(by: .seconds(31))
            #expect(connection.channel.isActive == (place < left.count - 1))
        }
    }

    @Test(
        "keeps a stream that is read as fast as it is written, until its client reads less than 4 KB in 30 s",
        arguments: [false, true])
    func stream(beginsFull: Bool) throws {
        let connection = try TestConnection()
        try connection.send("GET /park HTTP/1.1\r\nhost: x\r\n\r\n")
        let exchange = try #require(connection.lot.oldest)
        if !beginsFull { exchange.begin(.ok, headers: [:]) }
        try Self.leave(100_000, at: connection)
        connection.channel.isWritable = false
        connection.channel.pipeline.fireChannelWritabilityChanged()
        if beginsFull { exchange.begin(.ok, headers: [:]) }
        for added in [8_000, 5_000, 8_000, 2_000] {
            exchange.write(ByteBuffer(repeating: 0x78, count: added))
            try Self.leave(100_000, at: connection)
            connection.channel.embeddedEventLoop.advanceTime(by: .seconds(31))
            #expect(connection.channel.isActive == (added > 4_096))
        }
    }

    @Test("streams to HTTP/1.0 without chunks", arguments: ["1.0", "1.1"])
    func streamVersion(version: String) throws {
        let connection = try TestConnection()
        try connection.send("GET /park HTTP/\(version)\r\nhost: x\r\n\r\n")
        let exchange = try #require(connection.lot.oldest)
        exchange.begin(.ok, headers: [:])
        exchange.write(ByteBuffer(string: "event"))
        let answer = try connection.answers()
        #expect(answer.hasPrefix("HTTP/\(version) 200 "))
        #expect(answer.hasSuffix(version == "1.0" ? "\r\n\r\nevent" : "\r\n\r\n5\r\nevent\r\n"))
    }

    @Test("closes a stream that has ended at once, or after 5 s if its client does not read the rest")
    func endedStream() throws {
        for leavesRest in [false, true] {
            let connection = try TestConnection()
            try connection.send("GET /park HTTP/1.1\r\nhost: x\r\n\r\n")
            let exchange = try #require(connection.lot.oldest)
            exchange.begin(.ok, headers: [:])
            if leavesRest {
                try connection.channel.pipeline.syncOperations.addHandler(WriteHolder(), position: .first)
            }
            exchange.write(ByteBuffer(repeating: 0x78, count: 1_000_000))
            exchange.end()
            connection.channel.embeddedEventLoop.run()
            #expect(connection.channel.isActive == leavesRest)
            connection.channel.embeddedEventLoop.advanceTime(by: .seconds(4))
            #expect(connection.channel.isActive == leavesRest)
            connection.channel.embeddedEventLoop.advanceTime(by: .seconds(1))
            #expect(!connection.channel.isActive)
            try? connection.channel.close().wait()
        }
    }

    @Test("answers oversized bodies with 413 and heads with 431")
    func sizes() throws {
        let long = String(repeating: "x", count: 1_001)
        for (request, status) in [
            ("POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 1001\r\n\r\n\(long)", "413"),
            ("GET /length HTTP/1.1\r\nhost: x\r\nx-long: \(String(repeating: "x", count: 200_000))\r\n\r\n", "431"),
            ("NONSENSE\r\n\r\n", "400"),
        ] {
            let connection = try TestConnection()
            // The answer reports the parser's fault.
            try? connection.send(request)
            #expect(try connection.answers().hasPrefix("HTTP/1.1 \(status) "), "\(status)")
            #expect(!connection.channel.isActive)
        }
    }
}

/// Connections that a trusted proxy uses for several clients.
@Suite("Connections of a proxy", .timeLimit(.minutes(10)))
struct ProxyConnectionTests {
    @Test("counts a connection for the client of its last socket, stream or poll")
    func lastClient() throws {
        let limiter = AddressLimiter(limit: 1)
        var policy = ConnectionPolicy()
        policy.addresses = limiter
        policy.trustedProxies = try AddressList(["127.0.0.1"])
        let connection = try TestConnection(policy: policy)
        connection.channel.remoteAddress = try SocketAddress(ipAddress: "127.0.0.1", port: 1)
        func poll(_ address: String) throws -> Bool {
            try connection.send("GET /park HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: \(address)\r\n\r\n")
            let isCounted = try #require(connection.lot.oldest).countStream()
            connection.lot.release()
            _ = try connection.answers()
            return isCounted
        }
        let first = try #require(ClientAddress("192.0.2.1"))
        let second = try #require(ClientAddress("192.0.2.2"))
        for _ in 0..<2 { #expect(try poll("192.0.2.1")) }
        #expect(!limiter.reserve(first))
        #expect(try poll("192.0.2.2"))
        #expect(!limiter.reserve(second))
        #expect(limiter.reserve(first), "it counts no longer for the client before")
        #expect(try !poll("192.0.2.1"), "that client has another connection now")
        #expect(!limiter.reserve(second), "a refused poll moves nothing")
        try connection.channel.close().wait()
        connection.channel.embeddedEventLoop.run()
        #expect(limiter.reserve(second))
    }
}

/// Peers whose machines vanished; on a silent stream only TCP notices.
@Suite("Dead peers", .timeLimit(.minutes(10)))
struct DeadPeerTests {
    @Test("counts no stream of a client that has left")
    func leftBeforeItsStream() throws {
        let connection = try TestConnection()
        try connection.send("GET /park HTTP/1.1\r\nHost: x\r\n\r\n")
        let exchange = try #require(connection.lot.oldest)
        #expect(exchange.countStream())
        connection.channel.pipeline.fireChannelInactive()
        #expect(!exchange.countStream())
    }

    @Test("begins no request of a client that left while an earlier one was answered")
    func leftBeforeItsNextRequest() throws {
        let connection = try TestConnection()
        try connection.channel.pipeline.syncOperations.addHandler(FlushCloser(), position: .first)
        try connection.send("GET /length HTTP/1.1\r\nhost: x\r\n\r\nGET /park HTTP/1.1\r\nhost: x\r\n\r\n")
        #expect(!connection.channel.isActive)
        #expect(connection.lot.count == 0)
    }

    @Test("sets the time after which unacknowledged output ends a connection")
    func acknowledgement() async throws {
        #expect(ConnectionTimeouts().acknowledgement == .seconds(60))
        var timeouts = ConnectionTimeouts()
        timeouts.acknowledgement = .seconds(7)
        let connections = ConnectionChannel(
            responder: { _, _, _ in },
            endpoints: [],
            timeouts: timeouts,
            http: HTTP1Channel.Configuration()
        )
        let option: ChannelOptions.Types.SocketOption = .tcpOption(NIOBSDSocket.Option(rawValue: TCP_USER_TIMEOUT))
        let group = MultiThreadedEventLoopGroup.singleton
        let accepted = group.next().makePromise(of: SocketOptionValue.self)
        let server = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                let milliseconds = connections.setup(channel: channel, logger: Logger(label: "test")).flatMap { _ in
                    channel.getOption(option)
                }
                milliseconds.cascade(to: accepted)
                return milliseconds.map { _ in }
            }
            .bind(host: "127.0.0.1", port: 0)
            .get()
        let address = try #require(server.localAddress)
        let client = try await ClientBootstrap(group: group).connect(to: address).get()
        let milliseconds = try await accepted.futureResult.get()
        // The system fills only the first four bytes.
        #expect(CInt(truncatingIfNeeded: milliseconds) == 7_000)
        try await client.close()
        try await server.close()
    }
}

/// An endpoint that answers with the length of the body.
struct LengthEndpoint: TransportEndpoint {
    let maximumBody = 1_000

    func claims(_ path: Substring) -> Bool { path == "/length" }

    func handle(_ exchange: HTTPExchange) {
        exchange.respond(.ok, body: ByteBuffer(string: "\(exchange.body.readableBytes)"))
    }
}

/// An endpoint that refuses in plain text.
struct PlainEndpoint: TransportEndpoint {
    func claims(_ path: Substring) -> Bool { path == "/plain" }

    func refusal(_ status: HTTPResponseStatus, reason: String) -> TransportRefusal {
        TransportRefusal(status, headers: ["content-type": "text/plain"], body: Array(reason.utf8))
    }
}

/// An endpoint that answers on a test's command, with the length of the body.
struct ParkEndpoint: TransportEndpoint {
    /// The waiting exchanges.
    final class Lot: Sendable {
        private let exchanges = Mutex<[NIOLoopBound<HTTPExchange>]>([])
        private let aborts = Atomic(0)

        var count: Int { self.exchanges.withLock { $0.count } }
        /// The number of clients that left before their answer.
        var aborted: Int { self.aborts.load(ordering: .relaxed) }

        fileprivate func add(_ exchange: HTTPExchange) {
            exchange.onAbort = { self.aborts.add(1, ordering: .relaxed) }
            let bound = NIOLoopBound(exchange, eventLoop: exchange.eventLoop)
            self.exchanges.withLock { $0.append(bound) }
        }

        /// The oldest; called on its event loop.
        var oldest: HTTPExchange? { self.exchanges.withLock { $0.first }?.value }

        /// Answers the oldest; called on its event loop.
        func release() {
            let exchange = self.exchanges.withLock { $0.isEmpty ? nil : $0.removeFirst() }?.value
            exchange?.respond(.ok, body: ByteBuffer(string: "parked \(exchange?.body.readableBytes ?? 0)"))
        }
    }

    let lot: Lot
    let maximumBody = 64 * 1024

    func claims(_ path: Substring) -> Bool { path == "/park" }

    func handle(_ exchange: HTTPExchange) { self.lot.add(exchange) }
}

/// Closes the connection at the next flush, as a write that fails does.
final class FlushCloser: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer

    func flush(context: ChannelHandlerContext) { context.close(promise: nil) }
}

/// A connection without a network.
final class TestConnection {
    /// Counts the reads that reach the network.
    private final class ReadCounter: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer

        private(set) var count = 0

        func read(context: ChannelHandlerContext) {
            self.count += 1
            context.read()
        }
    }

    let channel = EmbeddedChannel()
    let lot = ParkEndpoint.Lot()
    private let counter = ReadCounter()

    init(timeouts: ConnectionTimeouts = ConnectionTimeouts(), policy: ConnectionPolicy = ConnectionPolicy()) throws {
        let connections = ConnectionChannel(
            responder: { _, _, _ in },
            endpoints: [LengthEndpoint(), PlainEndpoint(), ParkEndpoint(lot: self.lot)],
            timeouts: timeouts,
            policy: policy,
            http: HTTP1Channel.Configuration()
        )
        try self.channel.pipeline.syncOperations.addHandler(self.counter)
        _ = try connections.setup(channel: self.channel, logger: Logger(label: "test")).map { _ in }.wait()
        try self.channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 1)).wait()
    }

    /// Requests a read, as the channel does after each one; false if none is made.
    func reads() -> Bool {
        let before = self.counter.count
        self.channel.read()
        return self.counter.count > before
    }

    var readCount: Int { self.counter.count }

    func send(_ text: String) throws {
        try self.channel.writeInbound(ByteBuffer(string: text))
    }

    /// Everything that was answered so far.
    func answers() throws -> String {
        self.channel.embeddedEventLoop.run()
        var text = ""
        while let buffer = try self.channel.readOutbound(as: ByteBuffer.self) { text += String(buffer: buffer) }
        return text
    }
}
