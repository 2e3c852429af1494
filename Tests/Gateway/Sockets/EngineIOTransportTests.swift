// Carillon · EngineIOTransportTests.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import NIOEmbedded
import NIOHTTP1
import Protocols
import Synchronization
import Testing

@testable import Sockets

@Suite("Engine.IO at a path", .timeLimit(.minutes(10)))
struct EngineIOEndpointTests {
    private static let endpoint = EngineIOEndpoint(
        path: "/engine.io",
        configuration: EngineIOConfiguration(maximumPayload: 1_000)
    ) { _, _ in nil }

    @Test("claims its path with and without a slash, and no other")
    func claims() {
        let table = [
            ("/engine.io", true), ("/engine.io/", true), ("/engine.io//", false), ("/engine.i", false), ("/", false),
            ("", false), ("/engine.io/x", false),
        ]
        for (path, isClaimed) in table { #expect(Self.endpoint.claims(path[...]) == isClaimed, "\(path)") }
        #expect(Self.endpoint.maximumBody == 1_000)
    }

    @Test("refuses upgrades without a known session in the protocol's own words")
    func refusals() async throws {
        let table = [
            ("transport=abc&EIO=4", "Transport unknown"), ("EIO=4", "Transport unknown"),
            ("EIO=4&transport=websocket&sid=abc", "Session ID unknown"), ("EIO=4&transport=polling", "Bad request"),
            ("EIO=3&transport=websocket", "Unsupported protocol version"),
        ]
        for (query, message) in table {
            let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/engine.io/?\(query)")
            let refusal = await #expect(throws: TransportRefusal.self) {
                _ = try await Self.endpoint.admit(head)
            }
            #expect(refusal?.status == .badRequest)
            #expect(refusal?.headers.first(name: "content-type") == "text/html")
            #expect(refusal.map { String(decoding: $0.body, as: UTF8.self) } == message)
        }
        let good = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/engine.io/?EIO=4&transport=websocket")
        let admission = try await Self.endpoint.admit(good)
        #expect(admission.limits.maximumMessage == 1_000)
    }

    @Test("lets pages of allowed origins read its refusals, and names `Origin` in `vary` once")
    func origins() throws {
        var policy = ConnectionPolicy()
        policy.origins = .listed(["https://app.example.com"])
        let client = try PollingClient(Self.endpoint, address: "192.0.2.1", policy: policy)
        for (origin, isAllowed) in [("https://App.example.com", true), ("https://evil.example", false)] {
            try client.send("GET /engine.io/?EIO=4 HTTP/1.1\r\nhost: x\r\norigin: \(origin)\r\n\r\n")
            let answer = try client.received()
            #expect(answer.hasPrefix("HTTP/1.1 400 "))
            #expect(answer.contains("access-control-allow-origin: \(origin)\r\n") == isAllowed, "\(origin)")
            #expect(answer.contains("access-control-allow-credentials: true\r\n") == isAllowed, "\(origin)")
            #expect(answer.ranges(of: "vary: Origin\r\n").count == 1, "\(origin)")
        }
        try client.close()
    }
}

/// Posts whose heads come before their bodies, on separate connections.
@Suite("Posts of polling clients", .timeLimit(.minutes(10)))
struct EngineIOPostTests {
    /// Echoes messages.
    private final class Echo: EngineIOApplication {
        private var connection: EngineIOConnection?

        func engineIOOpened(_ connection: EngineIOConnection) { self.connection = connection }
        func engineIOReceived(_ message: EngineIOMessage) { self.connection?.send([message]) }
        func engineIOIsTooSlow() { self.connection?.drop() }
        func engineIOClosed(_ reason: EngineIOCloseReason) { self.connection = nil }
    }

    /// Accepts three packets without a message and closes at the next.
    private final class Counter: EngineIOApplication {
        private var connection: EngineIOConnection?
        private var count = 0

        func engineIOOpened(_ connection: EngineIOConnection) {
            self.connection = connection
            connection.welcome()
        }

        func engineIOReceivedPing() -> Bool {
            self.count += 1
            if self.count == 4 { self.connection?.close(.forcedClose) }
            return self.count < 4
        }

        func engineIOReceived(_ message: EngineIOMessage) { self.connection?.send([message]) }
        func engineIOIsTooSlow() { self.connection?.drop() }
        func engineIOClosed(_ reason: EngineIOCloseReason) { self.connection = nil }
    }

    private static let unknown = #"{"code":1,"message":"Session ID unknown"}"#

    private static func connections() throws -> (first: PollingClient, second: PollingClient) {
        let endpoint = EngineIOEndpoint(
            path: "/engine.io",
            configuration: EngineIOConfiguration(maximumPayload: 1_000)
        ) { _, _ in Echo() }
        return (
            try PollingClient(endpoint, address: "192.0.2.1"), try PollingClient(endpoint, address: "192.0.2.1")
        )
    }

    @Test("delivers a body in pieces once it is complete and accepts a post on another connection")
    func pieces() throws {
        let (first, second) = try Self.connections()
        let session = try first.open()
        try first.begin("POST", session, length: 6)
        try first.send("4he")
        #expect(try first.answer().status == 0)
        try first.send("llo")
        #expect(try first.answer().body == "ok")
        #expect(try second.request("POST", session, body: "4again").body == "ok")
        #expect(try first.request("GET", session).body == "4hello\u{1E}4again")
        #expect(try first.request("POST", session, body: "1").body == "ok")
        try first.close()
        try second.close()
    }

    @Test("counts packets without a message and closes a client that sends too many")
    func packetsWithoutMessage() throws {
        let endpoint = EngineIOEndpoint(path: "/engine.io", configuration: EngineIOConfiguration()) { _, _ in
            Counter()
        }
        let client = try PollingClient(endpoint, address: "192.0.2.1")
        let session = try client.open()
        #expect(try client.request("POST", session, body: "6\u{1E}3\u{1E}4a\u{1E}6\u{1E}b4Q==").body == "ok")
        #expect(try client.request("GET", session).body == "4a\u{1E}b4Q==")
        #expect(try client.request("POST", session, body: "6\u{1E}6\u{1E}4b").body == "ok")
        #expect(try client.request("GET", session).body == "6\u{1E}1")
        #expect(try client.request("GET", session).body == Self.unknown)
        try client.close()
    }

    @Test("answers two overlapping posts with 400 and ends the session")
    func overlap() throws {
        let (first, second) = try Self.connections()
        let session = try first.open()
        try first.begin("POST", session, length: 6)
        try first.send("4he")
        #expect(try second.request("POST", session, body: "4second").status == 400)
        // The answer waits until the client has sent its whole body.
        #expect(try first.answer().status == 0)
        try first.send("llo")
        #expect(try first.answer().status == 400)
        #expect(try second.request("GET", session).body == Self.unknown)
        // Both connections continue.
        let next = try first.open()
        #expect(try second.request("POST", next, body: "1").body == "ok")
        try first.close()
        try second.close()
    }

    @Test("ends the session of a client that leaves in the middle of a body")
    func aborted() throws {
        let (first, second) = try Self.connections()
        let session = try first.open()
        try first.begin("POST", session, length: 6)
        try first.send("4he")
        try first.close()
        #expect(try second.request("GET", session).body == Self.unknown)
        try second.close()
    }

    @Test("ends the session of a client that leaves before the server invites its body")
    func uninvited() throws {
        let (first, second) = try Self.connections()
        let session = try first.open()
        try first.closeAtFlush()
        try first.begin("POST", session, length: 6, expects: "100-continue")
        #expect(try first.answer().status == 0)
        #expect(try second.request("GET", session).body == Self.unknown)
        try second.close()
    }

    @Test("answers a body that is announced as too large with 413 and keeps the session")
    func tooLarge() throws {
        let (first, second) = try Self.connections()
        let session = try first.open()
        let text = "4" + String(repeating: "x", count: 1_000)
        #expect(try first.request("POST", session, body: text).status == 413)
        #expect(try second.request("POST", session, body: "4small").body == "ok")
        #expect(try second.request("GET", session).body == "4small")
        #expect(try second.request("POST", session, body: "1").body == "ok")
        try second.close()
    }
}

@Suite("Limits of polling clients", .timeLimit(.minutes(10)))
struct EngineIOLimitTests {
    /// Welcomes every client that sends a message.
    private final class Host: EngineIOApplication {
        private var connection: EngineIOConnection?

        func engineIOOpened(_ connection: EngineIOConnection) { self.connection = connection }
        func engineIOReceived(_ message: EngineIOMessage) { self.connection?.welcome() }
        func engineIOIsTooSlow() { self.connection?.drop() }
        func engineIOClosed(_ reason: EngineIOCloseReason) { self.connection = nil }
    }

    private final class Refusals: Sendable {
        private let counted = Mutex(0)

        var count: Int { self.counted.withLock { $0 } }
        func note() { self.counted.withLock { $0 += 1 } }
    }

    private static func endpoint(sessions: Int, unidentified: Int, _ refusals: Refusals) -> EngineIOEndpoint {
        EngineIOEndpoint(
            path: "/engine.io",
            configuration: EngineIOConfiguration(),
            maximumPollingSessions: sessions,
            maximumUnidentified: unidentified,
            isFull: { refusals.note() },
            open: { _, _ in Host() }
        )
    }

    @Test("limits an address's unidentified clients; one that is identified or leaves makes room")
    func unidentified() throws {
        let refusals = Refusals()
        let endpoint = Self.endpoint(sessions: 100, unidentified: 2, refusals)
        let clients = try PollingClient(endpoint, address: "192.0.2.1")
        let friend = try clients.open()
        let leaver = try clients.open()
        let full = try clients.request("GET", "")
        #expect(full.status == 503)
        #expect(full.body.contains("too many sessions of this address have not joined"))
        #expect(refusals.count == 1)
        let neighbour = try PollingClient(endpoint, address: "192.0.2.2")
        let other = try neighbour.open()

        #expect(try clients.request("POST", friend, body: "4hello").body == "ok")
        // Only the first welcome counts.
        #expect(try clients.request("POST", friend, body: "4hello").body == "ok")
        let third = try clients.open()
        #expect(try clients.request("GET", "").status == 503)
        #expect(try clients.request("POST", leaver, body: "1").body == "ok")
        let fourth = try clients.open()
        #expect(try clients.request("GET", "").status == 503)
        // A client that was welcome does not release its place a second time when it leaves.
        #expect(try clients.request("POST", friend, body: "1").body == "ok")
        #expect(try clients.request("GET", "").status == 503)
        #expect(refusals.count == 4)

        for session in [third, fourth] { #expect(try clients.request("POST", session, body: "1").body == "ok") }
        #expect(try neighbour.request("POST", other, body: "1").body == "ok")
        try clients.close()
        try neighbour.close()
    }

    @Test("limits an endpoint's sessions and does not count refused ones")
    func sessions() throws {
        let refusals = Refusals()
        let client = try PollingClient(
            Self.endpoint(sessions: 1, unidentified: 2, refusals), address: "2001:db8::1")
        let first = try client.open()
        for _ in 0..<3 {
            let full = try client.request("GET", "")
            #expect(full.status == 503)
            #expect(full.body.contains("too many sessions, try again later"))
        }
        #expect(refusals.count == 3)
        #expect(try client.request("POST", first, body: "1").body == "ok")
        let second = try client.open()
        #expect(try client.request("POST", second, body: "1").body == "ok")
        try client.close()
    }
}

/// A client that polls an endpoint over one connection without a network.
final class PollingClient {
    private let channel = EmbeddedChannel()

    init(_ endpoint: EngineIOEndpoint, address: String, policy: ConnectionPolicy = ConnectionPolicy()) throws {
        let connections = ConnectionChannel(
            responder: { _, _, _ in },
            endpoints: [endpoint],
            policy: policy,
            http: HTTP1Channel.Configuration()
        )
        _ = try connections.setup(channel: self.channel, logger: Logger(label: "test")).map { _ in }.wait()
        try self.channel.connect(to: SocketAddress(ipAddress: address, port: 1)).wait()
    }

    /// Opens a session and returns its id.
    func open() throws -> String {
        let answer = try self.request("GET", "")
        let parts = answer.body.split(separator: "\"")
        // 0{"sid":"…"
        try #require(answer.status == 200 && parts.count > 3 && parts[1] == "sid", "\(answer.body)")
        return String(parts[3])
    }

    /// Sends a request of a session, or one for a new session if `sid` is empty.
    func request(_ method: String, _ sid: String, body: String = "") throws -> (status: Int, body: String) {
        try self.begin(method, sid, length: body.utf8.count)
        if !body.isEmpty { try self.send(body) }
        return try self.answer()
    }

    /// Sends the head of a request whose body comes later.
    func begin(_ method: String, _ sid: String, length: Int, expects expectation: String? = nil) throws {
        var lines = [
            "\(method) /engine.io/?EIO=4&transport=polling&sid=\(sid) HTTP/1.1", "host: x",
            "content-type: text/plain;charset=UTF-8", "content-length: \(length)",
        ]
        if let expectation { lines.append("expect: \(expectation)") }
        try self.send(lines.joined(separator: "\r\n") + "\r\n\r\n")
    }

    func send(_ text: String) throws {
        try self.channel.writeInbound(ByteBuffer(string: text))
    }

    /// Closes the connection at the next flush.
    func closeAtFlush() throws {
        try self.channel.pipeline.syncOperations.addHandler(FlushCloser(), position: .first)
    }

    /// The answer so far; the status is 0 if there is none.
    func answer() throws -> (status: Int, body: String) {
        let text = try self.received()
        let status = text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
        let rest = text.firstRange(of: "\r\n\r\n").map { text[$0.upperBound...] } ?? ""
        return (status, String(rest))
    }

    /// The text of the answer so far, with its head.
    func received() throws -> String {
        self.channel.embeddedEventLoop.run()
        var text = ""
        while let buffer = try self.channel.readOutbound(as: ByteBuffer.self) { text += String(buffer: buffer) }
        return text
    }

    func close() throws {
        _ = try self.channel.finish()
    }
}
