// Carillon · ConnectionPolicyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import Support
import Synchronization
import Testing

@testable import Sockets

@Suite("Origins of pages", .timeLimit(.minutes(10)))
struct AllowedOriginsTests {
    @Test("admits sockets of listed pages and our own")
    func admits() {
        let listed = AllowedOrigins.listed(["https://app.example.com", "capacitor://localhost"])
        let table: [(origin: String, host: String?, isAdmitted: Bool)] = [
            ("https://app.example.com", nil, true), ("HTTPS://App.Example.com", nil, true),
            ("https://app.example.com:8443", nil, false), ("http://app.example.com", nil, false),
            ("https://gateway.example.com", "gateway.example.com", true),
            ("https://gateway.example.com:81", "gateway.example.com", false),
            ("https://evil.example", "gateway.example.com", false), ("null", "null", false), ("", "", false),
            ("https://", "", false), ("https://x", nil, false), ("https://", ":443", false),
            // Some clients send the scheme of their socket; here a proxy has changed the host.
            ("wss://app.example.com", "gateway.internal", true), ("WSS://App.example.com", nil, true),
            ("ws://app.example.com", "gateway.internal", false), ("wss://evil.example", "gateway.internal", false),
            ("capacitor://localhost", nil, true), ("ionic://localhost", nil, false),
            // Some clients state the scheme's port in one of the two fields only.
            ("wss://gateway.example.com", "gateway.example.com:443", true),
            ("https://gateway.example.com:443", "gateway.example.com", true),
            ("ws://gateway.example.com", "Gateway.example.com:80", true),
            ("http://gateway.example.com:80", "gateway.example.com", true),
            ("wss://gateway.example.com", "gateway.example.com:80", false),
            ("http://gateway.example.com", "gateway.example.com:443", false),
            // U+212A is no K, although it is k in lower case.
            ("https://\u{212A}.example", "k.example", false), ("https://k.example", "\u{212A}.example", false),
        ]
        for row in table { #expect(listed.admits(row.origin, host: row.host) == row.isAdmitted, "\(row)") }
        #expect(AllowedOrigins.any.admits("https://evil.example", host: nil))
    }

    @Test("grants answers to listed pages, without credentials if all are allowed")
    func grants() {
        let listed = AllowedOrigins.listed(["https://app.example.com"])
        #expect(listed.grant("https://app.example.com") != nil)
        #expect(listed.grant("https://evil.example") == nil)
        #expect(AllowedOrigins.listed(["https://k.example"]).grant("https://\u{212A}.example") == nil)
        #expect(listed.grant("https://app.example.com") != AllowedOrigins.any.grant("https://app.example.com"))
        #expect(AllowedOrigins.any.grant("https://a.example") == AllowedOrigins.any.grant("https://b.example"))
        let open = AllowedOrigins.any.grant("https://app.example.com", allowsCredentials: true)
        #expect(open == listed.grant("https://app.example.com"), "but on paths that are made for it")
        #expect(listed.grant("https://evil.example", allowsCredentials: true) == nil)
    }

    @Test("lets granted pages read the fields that clients need")
    func exposedFields() {
        var headers = HTTPHeaders()
        ConnectionPolicy().protect(&headers, AllowedOrigins.any.grant("https://app.example.com"))
        let exposed = Set(headers[canonicalForm: "access-control-expose-headers"].map { $0.lowercased() })
        let needed: Set = ["content-range", "etag", "location", "retry-after", "www-authenticate", "x-request-id"]
        #expect(exposed == needed)
        var own = HTTPHeaders()
        ConnectionPolicy().protect(&own, nil)
        #expect(!own.contains(name: "access-control-expose-headers"))
    }
}

@Suite("Addresses of clients", .timeLimit(.minutes(10)))
struct AddressListTests {
    @Test("trusts X-Forwarded-For only from trusted proxies, rightmost first")
    func forwarded() throws {
        let list = try AddressList(["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"])
        let table: [(peer: String, fields: [String], client: String)] = [
            ("203.0.113.1", [], "203.0.113.1"), ("203.0.113.1", ["198.51.100.1"], "203.0.113.1"),
            ("10.1.2.3", [], "10.1.2.3"), ("10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
            ("10.1.2.3", ["1.1.1.1, 198.51.100.1, 192.0.2.7"], "198.51.100.1"),
            ("10.1.2.3", ["1.1.1.1", "198.51.100.1,10.9.9.9"], "198.51.100.1"),
            ("10.1.2.3", ["nonsense, 10.4.4.4"], "10.4.4.4"), ("10.1.2.3", ["nonsense"], "10.1.2.3"),
            ("10.1.2.3", ["1.1.1.1, 198.51.100.1:8080, 10.4.4.4:443"], "198.51.100.1"),
            ("10.1.2.3", ["[2001:db9::1]:443"], "2001:db9::1"), ("10.1.2.3", ["[2001:db9::1]"], "2001:db9::1"),
            ("2001:db8::1", ["2001:db9::1"], "2001:db9::1"), ("::ffff:10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
        ]
        for row in table {
            var head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/")
            for field in row.fields { head.headers.add(name: "x-forwarded-for", value: field) }
            let peer = try SocketAddress(ipAddress: row.peer, port: 1)
            #expect(list.client(of: head, peer: peer) == ClientAddress(row.client), "\(row)")
        }
    }

    @Test("matches networks by their prefix length", arguments: [0, 1, 7, 8, 9, 31, 32])
    func lengths(length: Int) throws {
        let list = try AddressList(["255.255.255.255/\(length)"])
        for bit in 0..<32 {
            let value = UInt32.max ^ (0x8000_0000 >> UInt32(bit))
            let text = [24, 16, 8, 0].map { "\(value >> UInt32($0) & 0xFF)" }.joined(separator: ".")
            let address = try #require(ClientAddress(text))
            #expect(list.contains(address) == (bit >= length), "\(text)/\(length)")
        }
    }

    @Test(
        "names an invalid network", arguments: ["", "10.0.0.0/33", "10.0.0/8", "host", "::1/129", "1.1.1.1/x", "/8"])
    func faults(text: String) {
        #expect(throws: AddressFault.self) { try AddressList(["10.0.0.1", text]) }
    }

    @Test("counts an address up to its limit, IPv6 by networks of 64 bits, and releases its count")
    func limiter() throws {
        let limiter = AddressLimiter(limit: 2)
        let addresses = try ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"]
            .map { try #require(ClientAddress($0)) }
        #expect(addresses.map { limiter.reserve($0) } == [true, true, true, true, false, true])
        #expect([limiter.reserve(addresses[0]), limiter.reserve(addresses[0])] == [true, false])
        limiter.release(addresses[0])
        #expect(limiter.reserve(addresses[0]))
    }
}

@Suite(.timeLimit(.minutes(10)))
struct BudgetTests {
    @Test("reports the end of a flood once, and no smaller burst")
    func flood() {
        let budget = Budget(limit: 6_400)
        #expect(budget.reserve(400))
        budget.release(400)
        #expect(!budget.floodHasEnded(), "a sixteenth is no flood")
        #expect(budget.reserve(401))
        #expect(!budget.floodHasEnded(), "it goes on")
        budget.release(301)
        #expect(!budget.floodHasEnded(), "a sixty-fourth is still held")
        budget.release()
        #expect(budget.floodHasEnded())
        #expect(!budget.floodHasEnded())
    }
}

@Suite("Limit of connections", .timeLimit(.minutes(10)))
struct ConnectionBudgetTests {
    @Test("closes a connection beyond the limit at once; one that ends makes room")
    func bound() async throws {
        var policy = ConnectionPolicy()
        policy.connections = Budget(limit: 1)
        policy.spare = Budget(limit: 0)
        // The first connection stays silent, however slow the machine.
        var timeouts = ConnectionTimeouts()
        timeouts.firstRequest = .seconds(3_600)
        let connections = ConnectionChannel(
            responder: { _, _, _ in },
            endpoints: [LengthEndpoint()],
            timeouts: timeouts,
            policy: policy,
            http: HTTP1Channel.Configuration()
        )
        let group = MultiThreadedEventLoopGroup.singleton
        let accepted = Mutex(0)
        let server = try await ServerBootstrap(group: group)
            .childChannelInitializer { channel in
                connections.setup(channel: channel, logger: Logger(label: "test")).map { _ in
                    accepted.withLock { $0 += 1 }
                }
            }
            .bind(host: "127.0.0.1", port: 0)
            .get()
        let address = try #require(server.localAddress)
        let connect = { () async throws -> any Channel in
            try await ClientBootstrap(group: group).connect(to: address).get()
        }

        let first = try await connect()
        // Connections are set up on several loops, so a second one could come first.
        try await eventually("the first is counted") { accepted.withLock { $0 } == 1 }
        let second = try await connect()
        // Only the gateway closes it.
        try await second.closeFuture.get()
        #expect(first.isActive)
        try await first.close()

        // The gateway sees the end of the first connection with some delay.
        var third = try await connect()
        while try await Self.answer(on: third) == nil { third = try await connect() }
        try await third.close()
        try await server.close()
    }

    @Test("goes on accepting after the system had no file for a connection")
    func noFile() async throws {
        let fault = IOError(errnoCode: EMFILE, reason: "accept")
        // Only the server answers, because endpoints would do so after its end, too.
        try await Self.withServer([], onStart: { $0.pipeline.fireErrorCaught(fault) }) { address in
            let client = try await Self.connect(to: address)
            let answer = try await Self.answer(on: client)
            #expect(answer?.hasPrefix("HTTP/1.1 200 ") == true)
            try await client.close()
        }
    }

    @Test("answers one probe of a connection beyond the limit, and nothing else")
    func probes() async throws {
        var policy = ConnectionPolicy()
        policy.connections = Budget(limit: 0)
        // However slow the machine.
        var timeouts = ConnectionTimeouts()
        timeouts.spareRequest = .seconds(3_600)
        try await Self.withServer([LengthEndpoint()], policy, timeouts) { address in
            for path in ["/healthz?full", "/metrics"] {
                let client = try await Self.connect(to: address)
                let answer = try await Self.answer(on: client, "GET \(path) HTTP/1.1\r\nhost: a\r\n\r\n")
                #expect(answer?.hasPrefix("HTTP/1.1 200 ") == true, "\(path)")
                // Only the gateway closes it.
                try await client.closeFuture.get()
            }
            for request in [Self.lengthRequest, "GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n"] {
                let client = try await Self.connect(to: address)
                #expect(try await Self.answer(on: client, request) == nil, "\(request)")
            }
        }
    }

    @Test("closes a silent connection beyond the limit early")
    func silent() async throws {
        var policy = ConnectionPolicy()
        policy.connections = Budget(limit: 0)
        var timeouts = ConnectionTimeouts()
        timeouts.firstRequest = .seconds(3_600)
        timeouts.spareRequest = .milliseconds(10)
        try await Self.withServer([], policy, timeouts) { address in
            try await Self.connect(to: address).closeFuture.get()
        }
    }

    private static func connect(to address: SocketAddress) async throws -> any Channel {
        try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton).connect(to: address).get()
    }

    /// Runs `body` with the address of a server that answers every request with 200.
    private static func withServer(
        _ endpoints: [any TransportEndpoint],
        _ policy: ConnectionPolicy = ConnectionPolicy(),
        _ timeouts: ConnectionTimeouts = ConnectionTimeouts(),
        onStart: @escaping @Sendable (any Channel) -> Void = { _ in },
        _ body: (SocketAddress) async throws -> Void
    ) async throws {
        let group = MultiThreadedEventLoopGroup.singleton
        let running = group.next().makePromise(of: SocketAddress?.self)
        let server = Server(
            childChannelSetup: ConnectionChannel(
                responder: { _, writer, _ in
                    let head = HTTPResponse(status: .ok, headerFields: [.contentLength: "0"])
                    try await writer.writeHead(head).finish(nil)
                },
                endpoints: endpoints,
                timeouts: timeouts,
                policy: policy,
                http: HTTP1Channel.Configuration()
            ),
            configuration: ServerConfiguration(address: .hostname("127.0.0.1", port: 0)),
            onServerRunning: { channel in
                onStart(channel)
                running.succeed(channel.localAddress)
            },
            eventLoopGroup: group,
            logger: Logger(label: "test")
        )
        let run = Task { try await server.run() }
        let local = try await running.futureResult.get()
        try await body(try #require(local))
        try await server.shutdownGracefully()
        try await run.value
    }

    private static let lengthRequest = "POST /length HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"

    /// The answer to a request; nil if the connection is closed without one.
    private static func answer(on channel: any Channel, _ request: String = Self.lengthRequest) async throws -> String?
    {
        let answer = channel.eventLoop.makePromise(of: String?.self)
        do {
            try await channel.pipeline.addHandler(FirstAnswer(answer)).get()
        } catch {
            // The channel was closed first.
            answer.succeed(nil)
        }
        channel.writeAndFlush(ByteBuffer(string: request), promise: nil)
        return try await answer.futureResult.get()
    }
}

/// Keeps the first input, or that there was none.
private final class FirstAnswer: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private let answer: EventLoopPromise<String?>

    init(_ answer: EventLoopPromise<String?>) {
        self.answer = answer
    }

    func handlerAdded(context: ChannelHandlerContext) {
        if !context.channel.isActive { self.answer.succeed(nil) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.answer.succeed(String(buffer: self.unwrapInboundIn(data)))
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.answer.succeed(nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.answer.succeed(nil)
    }
}
