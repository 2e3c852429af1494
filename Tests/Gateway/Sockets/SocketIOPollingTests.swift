// Carillon · SocketIOPollingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import NIOCore
import Support
import Testing

@testable import Sockets

/// Polling clients of Socket.IO, on a network, from a hub without stores.
@Suite("Socket.IO over polling", .timeLimit(.minutes(10)))
struct SocketIOPollingTests {
    private static let join = #"40{"token":"ada"}"#
    private static let separator = "\u{1E}"
    /// An event that announces one attachment and wants an answer.
    private static let binaryEvent = #"451-7["mark_read",{"_placeholder":true,"num":0}]"#

    /// A client that fetches nothing unless a test lets it.
    private struct Client {
        let hub: RunningHub
        let http: TransferClient
        let url: String

        /// Opens a session.
        static func opened(_ hub: RunningHub, _ http: TransferClient, _ url: String) async throws -> Client {
            let url = "\(url)\(SocketIOEndpoint.path)/?EIO=4&transport=polling"
            let opened = try await Client(hub: hub, http: http, url: url).send(.get)
            // 0{"sid":"…"
            let parts = opened.split(separator: "\"")
            try #require(parts.count > 3 && parts[1] == "sid", "\(opened)")
            return Client(hub: hub, http: http, url: "\(url)&sid=\(parts[3])")
        }

        /// Joins, and waits until the sync waits for a poll.
        func join() async throws {
            let answer = try await self.send(.post, SocketIOPollingTests.join)
            #expect(answer == "ok")
            try await eventually("its sync waits") { try await self.session { $0.lastVersion } != nil }
        }

        func leave() async throws {
            let answer = try await self.send(.post, "41")
            #expect(answer == "ok")
        }

        func send(_ method: TransferRequest.Method, _ body: String = "") async throws -> String {
            let request = TransferRequest(method, url: self.url, body: Array(body.utf8), timeout: .seconds(300))
            return String(decoding: try await self.http.answer(request).body, as: UTF8.self)
        }

        /// Calls `body` with the user's session on its loop; nil if the user has none.
        func session<Answer: Sendable>(
            _ body: @escaping @Sendable (SocketSession) -> Answer?
        ) async throws -> Answer? {
            let (hub, eventLoop) = (self.hub.hub, self.hub.eventLoop)
            let session = try await eventLoop.submit {
                hub.shard(on: eventLoop)?.openSockets(of: "ada").first?.reference
            }.get()
            return try await session?.ask(body).get() ?? nil
        }
    }

    /// Runs `body` with a client that has fetched nothing since it joined, if `joins`.
    private static func withClient(joins: Bool = true, _ body: (Client) async throws -> Void) async throws {
        try await Self.withEndpoint { running, http, url in
            let client = try await Client.opened(running, http, url)
            if joins { try await client.join() }
            try await body(client)
        }
    }

    /// Runs `body` with an endpoint that sends no pings.
    private static func withEndpoint(
        maximumIdle: Int = 10,
        pingInterval: Duration = .seconds(300),
        messageBurst: Int = 120,
        _ body: (RunningHub, TransferClient, String) async throws -> Void
    ) async throws {
        let configure = { (configuration: inout SocketConfiguration) in
            configuration.pingInterval = pingInterval
            configuration.messageBurst = messageBurst
            configuration.authentication = .seconds(300)
        }
        try await RunningHub.with(ScriptedBackend(), configure) { running in
            let endpoint = SocketIOEndpoint.endpoint(hub: running.hub, maximumIdle: maximumIdle)
            try await running.withListener(endpoint) { http, url in try await body(running, http, url) }
        }
    }

    @Test("a client that is closed for good gets the reason, and nothing that waited for its poll")
    func expelled() async throws {
        try await Self.withClient { client in
            let isClosed = try await client.session { session -> Bool? in
                session.close(.tooManyConnections)
                return true
            }
            #expect(isClosed == true)
            let packets = try await client.send(.get).split(separator: Self.separator)
            #expect(packets.first?.hasPrefix(#"42["error",{"code":"too_many_connections""#) == true, "\(packets)")
            #expect(packets.dropFirst() == ["41", "1"], "\(packets)")
        }
    }

    @Test("a client that leaves, or sends nonsense, gets nothing that waited for its poll")
    func left() async throws {
        try await Self.withClient { client in
            try await client.leave()
            try await client.join()
            let packets = try await client.send(.get).split(separator: Self.separator)
            #expect(packets.count { $0.hasPrefix("40") } == 1, "\(packets)")
            #expect(packets.count { $0.hasPrefix(#"42["sync""#) } == 1, "\(packets)")
        }
        try await Self.withClient { client in
            let taken = try await client.send(.post, "4nonsense")
            #expect(taken == "ok")
            let packets = try await client.send(.get).split(separator: Self.separator)
            #expect(packets == ["6", "1"], "\(packets)")
        }
    }

    @Test("a client that has left stays connected, unless the node has enough of them")
    func idle() async throws {
        try await Self.withEndpoint(maximumIdle: 1) { running, http, url in
            let first = try await Client.opened(running, http, url)
            try await first.join()
            try await first.leave()
            let second = try await Client.opened(running, http, url)
            try await second.join()
            try await second.leave()
            let end = try await second.send(.get)
            #expect(end == "6\(Self.separator)1")

            // A client that joins again, or whose connection ends, makes room.
            try await first.join()
            let left = try await first.send(.post, "1")
            #expect(left == "ok")
            for _ in 0..<2 {
                let next = try await Client.opened(running, http, url)
                try await next.join()
                try await next.leave()
                try await next.join()
                try await next.leave()
                let left = try await next.send(.post, "1")
                #expect(left == "ok")
            }
        }
    }

    @Test("a client that has left may answer pings for ever, but sends few other packets")
    func answersPings() async throws {
        try await Self.withEndpoint(pingInterval: .milliseconds(20), messageBurst: 3) { running, http, url in
            let client = try await Client.opened(running, http, url)
            try await client.join()
            try await client.leave()
            for _ in 0..<8 {
                let ping = try await client.send(.get)
                #expect(ping == "2")
                let answered = try await client.send(.post, "3")
                #expect(answered == "ok")
            }
            let others = try await client.send(.post, Array(repeating: "3", count: 4).joined(separator: Self.separator))
            #expect(others == "ok")
            let end = try await client.send(.get)
            #expect(end.hasSuffix("1"), "\(end)")
        }
    }

    @Test("a binary event as the Java client writes it is answered with a fault, and its session goes on")
    func bytes() async throws {
        try await Self.withClient { client in
            // The Java client breaks base64 after 76 characters, and at its end.
            let attachment = "b" + String(repeating: "A", count: 76) + "\nAA==\n"
            let taken = try await client.send(.post, Self.binaryEvent + Self.separator + attachment)
            #expect(taken == "ok")
            let answer = try await client.send(.get)
            let fault = #"437[{"status":"error","error":"the argument must be a JSON object"}]"#
            #expect(answer.hasSuffix(fault), "\(answer)")
            let asked = try await client.send(.post, #"428["get_unread_count"]"#)
            #expect(asked == "ok")
            let count = try await client.send(.get)
            #expect(count == #"438[{"count":0}]"#)
        }
    }

    @Test("a client that announces bytes before it has joined is closed")
    func bytesTooEarly() async throws {
        try await Self.withClient(joins: false) { client in
            let taken = try await client.send(.post, Self.binaryEvent)
            #expect(taken == "ok")
            let end = try await client.send(.get)
            #expect(end == #"{"code":1,"message":"Session ID unknown"}"#)
        }
    }

    @Test("a client that sends more bytes than a message may have is closed")
    func tooManyBytes() async throws {
        try await Self.withClient { client in
            let placeholders = (0..<2).map { #"{"_placeholder":true,"num":\#($0)}"# }.joined(separator: ",")
            // 45,000 bytes, of 65,536.
            let attachment = "b" + String(repeating: "A", count: 60_000)
            let first = try await client.send(
                .post, #"452-["mark_read",\#(placeholders)]"# + Self.separator + attachment)
            #expect(first == "ok")
            let isOpen = try await client.session { _ -> Bool? in true }
            #expect(isOpen == true)
            let second = try await client.send(.post, attachment)
            #expect(second == "ok")
            let packets = try await client.send(.get).split(separator: Self.separator)
            #expect(packets == ["6", "1"], "\(packets)")
        }
    }
}
