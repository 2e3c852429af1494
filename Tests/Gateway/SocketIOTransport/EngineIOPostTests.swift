// Carillon · EngineIOPostTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Sockets
import Testing

/// Posts whose heads come before their bodies, on connections of their own.
@Suite("Posts of polling clients", .timeLimit(.minutes(10)))
struct EngineIOPostTests {
    /// Sends back what it hears.
    private final class Echo: EngineIOApplication {
        private var connection: EngineIOConnection?

        func engineIOOpened(_ connection: EngineIOConnection) { self.connection = connection }
        func engineIOReceived(_ message: EngineIOMessage) { self.connection?.send([message]) }
        func engineIOIsTooSlow() { self.connection?.drop() }
        func engineIOClosed(_ reason: EngineIOCloseReason) { self.connection = nil }
    }

    /// Takes three packets without a message, and closes at the next.
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
            configuration: EngineIOConfiguration(maximumPayload: 1_000),
            origins: .any
        ) { _, _ in Echo() }
        return (
            try PollingClient(endpoint, address: "192.0.2.1"), try PollingClient(endpoint, address: "192.0.2.1")
        )
    }

    @Test("A body that comes in pieces is delivered at its end, and a post may follow on another connection")
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

    @Test("Packets without a message are counted, and who sends too many is closed")
    func packetsWithoutMessage() throws {
        let endpoint = EngineIOEndpoint(path: "/engine.io", configuration: EngineIOConfiguration(), origins: .any) {
            _, _ in Counter()
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

    @Test("A second post before the end of the first gets 400, and so does the first; the session is over")
    func overlap() throws {
        let (first, second) = try Self.connections()
        let session = try first.open()
        try first.begin("POST", session, length: 6)
        try first.send("4he")
        #expect(try second.request("POST", session, body: "4second").status == 400)
        // Its answer waits until the client has said all that it had to say.
        #expect(try first.answer().status == 0)
        try first.send("llo")
        #expect(try first.answer().status == 400)
        #expect(try second.request("GET", session).body == Self.unknown)
        // Both connections go on.
        let next = try first.open()
        #expect(try second.request("POST", next, body: "1").body == "ok")
        try first.close()
        try second.close()
    }

    @Test("A client that goes away in the middle of a body ends its session")
    func aborted() throws {
        let (first, second) = try Self.connections()
        let session = try first.open()
        try first.begin("POST", session, length: 6)
        try first.send("4he")
        try first.close()
        #expect(try second.request("GET", session).body == Self.unknown)
        try second.close()
    }

    @Test("A body that is announced as too large gets 413, and the session goes on")
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
