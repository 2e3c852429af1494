// Carillon · SocketFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Support
import Testing

/// Misbehaving clients are closed with the right code and harm no other.
@Suite(.timeLimit(.minutes(10)))
struct SocketFaultTests {
    @Test("invalid, expired and unsigned tokens get 401 with the reason")
    func tokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let good = Stack.token(user: "ada")
            func part(_ text: String) -> String {
                Data(text.utf8).base64EncodedString().replacingOccurrences(of: "=", with: "")
            }
            let cases = [
                ("not-a-token", "is not a JSON Web Token"),
                (String(good.dropLast(4)) + "AAAA", "signature is not valid"),
                (Stack.token(user: "ada", lifetime: .seconds(-3_600)), "has expired"),
                (part(#"{"alg":"none"}"#) + "." + part(#"{"sub":"ada"}"#) + ".", "algorithm is not accepted"),
                (String(repeating: "x", count: 9_000), "too long"),
            ]
            for (token, reason) in cases {
                let answer = try await gateway.call(.get, "/v1/notifications", token: token)
                #expect(answer.status == 401)
                #expect(answer.type == "application/problem+json")
                #expect(answer.body["detail"]?.string?.contains(reason) == true, "\(reason)")
                let socket = try await TestSocket.open(port: gateway.port, token: token)
                try await eventually("the upgrade is refused") { socket.status == 401 }
                try await eventually("the reason is given") { socket.head.contains(reason) }
            }
            let none = try await gateway.call(.get, "/v1/notifications", token: nil)
            #expect(none.status == 401)
            #expect(!gateway.process.errors().contains(good))
        }
    }

    @Test("broken frames get their close codes, and other sockets stay open")
    func frames() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let bystander = try await TestSocket.synced(port: gateway.port, user: "bystander")
            let text = Array("x".utf8)
            let cases: [(String, [UInt8], UInt16)] = [
                ("over 64 KB", TestSocket.frame(opcode: 1, payload: [UInt8](repeating: 0x61, count: 65_537)), 1009),
                ("broken UTF-8", TestSocket.frame(opcode: 1, payload: [0xC3, 0x28]), 1007),
                (
                    "broken UTF-8 in a fragment",
                    TestSocket.frame(opcode: 1, isFinal: false, payload: [0xC3])
                        + TestSocket.frame(opcode: 0, isFinal: false, payload: [0x28]),
                    1007
                ),
                ("not masked", [0x81, 0x01, 0x61], 1002),
                ("reserved bits", [0xC1, 0x80, 0, 0, 0, 0], 1002),
                ("unknown opcode", TestSocket.frame(opcode: 3, payload: text), 1002),
                ("long ping", TestSocket.frame(opcode: 9, payload: [UInt8](repeating: 0, count: 126)), 1002),
                ("stray continuation", TestSocket.frame(opcode: 0, payload: text), 1002),
                ("bad close code", TestSocket.frame(opcode: 8, payload: [0x03, 0xEC]), 1002),
                ("binary", TestSocket.frame(opcode: 2, payload: text), 1003),
                (
                    "a flood of fragments",
                    TestSocket.frame(opcode: 1, isFinal: false, payload: [])
                        + (0..<300).flatMap { _ in TestSocket.frame(opcode: 0, isFinal: false, payload: []) },
                    1008
                ),
                ("too many messages", (0..<200).flatMap { _ in TestSocket.frame(opcode: 1, payload: text) }, 1008),
                ("pongs without a ping", (0..<200).flatMap { _ in TestSocket.frame(opcode: 10, payload: []) }, 1008),
            ]
            for (name, bytes, code) in cases {
                let socket = try await TestSocket.synced(port: gateway.port, user: "rude")
                try await socket.send(raw: bytes)
                #expect(try await socket.waitForClose() == code, "\(name)")
                // After broken framing the server stops reading and ends the connection.
                if [1002, 1007, 1009].contains(code) {
                    try await eventually("\(name) is closed") { socket.isClosed }
                }
            }
            // Registered and application close codes are echoed.
            for code in [1000, 1001, 1010, 3000, 4999] as [UInt16] {
                let polite = try await TestSocket.synced(port: gateway.port, user: "polite")
                try await polite.send(opcode: 8, payload: [UInt8(code >> 8), UInt8(code & 0xFF)])
                #expect(try await polite.waitForClose() == code)
            }
            try await stack.append([("user", "bystander"), ("type", "invoice_created"), ("title", "unharmed")])
            try await eventually("the bystander is served") { bystander.titles == ["unharmed"] }
        }
    }

    @Test("a Socket.IO or SignalR client that sends too much is closed, whatever it sends")
    func tooManyMessages() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            // Each client has a user of its own, because the messages of one would use up the rate
            // of the next.
            func join(_ user: String) async throws -> String {
                #"40{"token":"\#(Stack.token(user: user))"}"#
            }
            // An event, an answer to nothing, an unknown namespace, a namespace never joined, a
            // pong, and for the empty string a WebSocket pong.
            for (number, packet) in ["42[\"nonsense\"]", "439[]", "40/x,", "41/x,", "3", ""].enumerated() {
                let socket = try await TestSocket.open(
                    port: gateway.port, token: nil, query: "?EIO=4&transport=websocket", path: "/socket.io/")
                try await eventually("the socket is up") { socket.status == 101 }
                try await socket.send(opcode: 1, payload: Array(join("rude\(number)").utf8))
                try await eventually("it has joined") { socket.texts.contains { $0.hasPrefix(#"42["sync""#) } }
                let frame = TestSocket.frame(opcode: packet.isEmpty ? 10 : 1, payload: Array(packet.utf8))
                try await socket.send(raw: (0..<300).flatMap { _ in frame })
                #expect(try await socket.waitForClose() == 1000, "\(packet)")
                #expect(socket.texts.contains { $0.contains(#""code":"policy_violation""#) }, "\(packet)")
                #expect(socket.texts.last == "41", "\(packet)")
            }
            let nowhere = try await TestSocket.open(
                port: gateway.port, token: nil, query: "?EIO=4&transport=websocket", path: "/socket.io/")
            try await eventually("the socket is up") { nowhere.status == 101 }
            let frame = TestSocket.frame(opcode: 1, payload: Array("40/x,".utf8))
            try await nowhere.send(raw: (0..<300).flatMap { _ in frame })
            #expect(try await nowhere.waitForClose() == 1000)
            #expect(nowhere.texts.count { $0.hasPrefix("44/x,") } <= 120)

            let engine = try await TestEngine.open(port: gateway.port, http: stack.http)
            try await engine.post(join("poller"))
            _ = try await engine.poll(until: #"42["sync""#)
            // All in one post, because the limit recovers over time.
            let body = [String](repeating: "6", count: 300).joined(separator: String(TestEngine.separator))
            try await engine.post(body)
            let answer = try await engine.poll()
            #expect(answer.body.contains(#""code":"policy_violation""#), "\(answer.body)")
            #expect(answer.packets.suffix(2) == ["41", "1"])

            let ping = TestSocket.frame(opcode: 1, payload: TestSignalR.record(#"{"type":6}"#))
            for (user, frame) in [("pinger", ping), ("ponger", TestSocket.frame(opcode: 10, payload: []))] {
                let hub = try await TestSignalR.synced(gateway, user: user)
                try await hub.send(raw: (0..<300).flatMap { _ in frame })
                #expect(try await hub.waitForClose() == 1008)
                let close = try #require(hub.messages.close)
                #expect(close["error"]?.string?.contains("too many messages") == true)
                #expect(close["allowReconnect"]?.bool != true)
            }
        }
    }

    @Test("a client may send a message about each notification of a full sync at once")
    func fullSync() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let socket = try await TestSocket.open(
                port: gateway.port, token: nil, query: "?EIO=4&transport=websocket", path: "/socket.io/")
            try await eventually("the socket is up") { socket.status == 101 }
            try await socket.send(opcode: 1, payload: Array(#"40{"token":"\#(token)"}"#.utf8))
            try await eventually("it has joined") { socket.texts.contains { $0.hasPrefix(#"42["sync""#) } }
            let calls = (0..<100).flatMap { number in
                TestSocket.frame(opcode: 1, payload: Array(#"42\#(number)["get_unread_count",{}]"#.utf8))
            }
            try await socket.send(raw: calls)
            try await eventually("all are answered") {
                let texts = socket.texts
                return (0..<100).allSatisfy { number in texts.contains { $0.hasPrefix("43\(number)[") } }
            }
            #expect(socket.closeCode == nil)
        }
    }

    @Test("a client that breaks the framing and keeps its side open is dropped, in every protocol")
    func halfOpen() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let hub = "?access_token=\(Stack.token(user: "rude"))"
            // They are dropped after seconds, all at the same time.
            var sockets: [(path: String, socket: TestSocket)] = []
            for (path, query) in [
                ("/v1/socket", ""), ("/socket.io/", "?EIO=4&transport=websocket"), ("/hubs/notifications", hub),
            ] {
                let socket = try await TestSocket.open(
                    port: gateway.port, token: nil, query: query, path: path,
                    behaviour: TestSocket.Behaviour(keepsHalfOpen: true))
                try await eventually("\(path) is up") { socket.status == 101 }
                try await socket.send(opcode: 3, payload: [])
                sockets.append((path, socket))
            }
            for (path, socket) in sockets {
                #expect(try await socket.waitForClose() == 1002, "\(path)")
                // Only a client that keeps sending sees the end.
                try await eventually("\(path) is dropped") {
                    do {
                        try await socket.send(raw: [0])
                        return socket.isClosed
                    } catch {
                        return true
                    }
                }
            }
        }
    }

    @Test("a client that never reads is closed with 4408 when a megabyte waits for it")
    func slowReader() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let bystander = try await TestSocket.synced(port: gateway.port, user: "bystander")
            let slow = try await TestSocket.open(
                port: gateway.port,
                token: Stack.token(user: "slow"),
                behaviour: TestSocket.Behaviour(isReading: false)
            )
            try await eventually("it is registered") {
                try await stack.connection.send("HLEN", "carillon:presence:{slow}").integer() == 1
            }
            let data = #"{"fill":"\#(String(repeating: "x", count: 15_000))"}"#
            for _ in 0..<800 {
                try await stack.append([("user", "slow"), ("type", "invoice_created"), ("title", "t"), ("data", data)])
            }
            try await eventually("it is closed as too slow") {
                let metrics = await stack.http.perform(.init(.get, url: "http://127.0.0.1:\(gateway.port)/metrics"))
                guard case .answered(let response) = metrics else { return false }
                return String(decoding: response.body, as: UTF8.self).contains("carillon_sockets_slow 1\n")
            }
            try await stack.append([("user", "bystander"), ("type", "invoice_created"), ("title", "unharmed")])
            try await eventually("the bystander is served") { bystander.titles == ["unharmed"] }
            await slow.close()
        }
    }
}

/// Clients of the other dialects that read too slowly or ask for too much.
@Suite(.timeLimit(.minutes(10)))
struct SlowReaderTests {
    private static func metric(_ name: String, _ gateway: Gateway) async throws -> Double {
        let page = try await gateway.call(.get, "/metrics", token: nil).response.body
        return try MetricsText(String(decoding: page, as: UTF8.self)).samples[name] ?? 0
    }

    private static func connections(_ stack: Stack) async throws -> Int64 {
        try await stack.connection.send("HLEN", "carillon:presence:{slow}").integer()
    }

    /// Sends the user "slow" more than buffers and limits hold, until its only connection counts as
    /// slow; another user is still served.
    ///
    /// - Parameter heartbeat: keeps the gateway from closing the client as silent.
    private static func overwhelm(
        _ stack: Stack, _ gateway: Gateway, heartbeat: () async throws -> Void
    ) async throws {
        try await eventually("it is registered") { try await Self.connections(stack) == 1 }
        let bystander = try await TestSocket.synced(port: gateway.port, user: "bystander")
        #expect(try await Self.metric("carillon_sockets_slow", gateway) == 0)
        let data = #"{"fill":"\#(String(repeating: "x", count: 15_000))"}"#
        var heard = ContinuousClock.now
        // A gateway that falls behind skips changes, so send until enough has come through; but
        // only what the dispatcher keeps up with, or the bystander would wait long.
        try await eventually("it is counted as slow") {
            let waiting = try await stack.connection.send("XLEN", "carillon:jobs").integer()
            for _ in waiting..<max(waiting, 200) {
                try await stack.append([("user", "slow"), ("type", "invoice_created"), ("title", "t"), ("data", data)])
            }
            // More often would exceed the limit of messages.
            if ContinuousClock.now - heard > .seconds(5) {
                heard = .now
                try await heartbeat()
            }
            return try await Self.metric("carillon_sockets_slow", gateway) > 0
        }
        try await stack.append([("user", "bystander"), ("type", "invoice_created"), ("title", "unharmed")])
        try await eventually("the bystander is served") { bystander.titles == ["unharmed"] }
    }

    @Test("a Socket.IO client that never reads is closed with 4408")
    func socketIO() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let slow = try await TestSocket.open(
                port: gateway.port, token: nil, query: "?EIO=4&transport=websocket", path: "/socket.io/")
            try await eventually("the socket is up") { slow.status == 101 }
            try await slow.setReading(false)
            let token = Stack.token(user: "slow")
            try await slow.send(json: #"40{"token":"\#(token)"}"#)
            try await Self.overwhelm(stack, gateway) { try await slow.send(json: "3") }
            try await slow.setReading(true)
            // A client that does not read up to the close within five seconds is dropped without
            // one.
            let code = try await slow.waitForClose()
            #expect(code == nil || code == 4408, "\(code ?? 0)")
            try await eventually("it is offline") { try await Self.connections(stack) == 0 }
            #expect(try await Self.metric("carillon_sockets_slow", gateway) == 1)
        }
    }

    @Test("a Socket.IO client that never polls loses its session")
    func polling() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let slow = try await TestEngine.open(port: gateway.port, http: stack.http)
            try await slow.post(#"40{"token":"\#(Stack.token(user: "slow"))"}"#)
            try await Self.overwhelm(stack, gateway) { try await slow.post("3") }
            try await eventually("its session is over") {
                let answer = try await slow.poll()
                return answer.status != 200 || answer.packets.contains("1")
            }
            try await eventually("it is offline") { try await Self.connections(stack) == 0 }
            #expect(try await Self.metric("carillon_sockets_slow", gateway) == 1)
        }
    }

    @Test("a SignalR client that never reads is closed with 4408 and may reconnect")
    func signalR() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let slow = try await TestSignalR.synced(gateway, user: "slow")
            try await slow.setReading(false)
            try await Self.overwhelm(stack, gateway) {
                try await slow.send(opcode: 1, payload: TestSignalR.record(#"{"type":6}"#))
            }
            try await slow.setReading(true)
            // A client that does not read up to the close within five seconds is dropped without
            // one.
            let code = try await slow.waitForClose()
            #expect(code == nil || code == 4408, "\(code ?? 0)")
            if code != nil { #expect(slow.messages.close?["allowReconnect"]?.bool == true) }
            try await eventually("it is offline") { try await Self.connections(stack) == 0 }
        }
    }

    @Test("an event stream that is never read is ended", arguments: ["/v1/stream", TestSignalR.path])
    func eventStream(_ path: String) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let token = Stack.token(user: "slow")
            var target = path
            if path == TestSignalR.path {
                target += "?id=\(try await TestSignalR.negotiate(gateway, user: "slow"))"
            }
            let slow = try await TestSocket.connect(port: gateway.port)
            let head = [
                "GET \(target) HTTP/1.1", "host: x", "authorization: Bearer \(token)", "accept: text/event-stream",
            ]
            try await slow.send(raw: Array((head.joined(separator: "\r\n") + "\r\n\r\n").utf8))
            try await eventually("it begins") { slow.status == 200 }
            try await slow.setReading(false)
            let address = target
            func post(_ record: [UInt8]) async throws -> Int {
                let text = String(decoding: record, as: UTF8.self)
                return try await gateway.call(.post, address, token: token, json: text).status
            }
            let isHub = path == TestSignalR.path
            if isHub { #expect(try await post(TestSignalR.handshake) == 200) }
            try await Self.overwhelm(stack, gateway) {
                if isHub { _ = try await post(TestSignalR.record(#"{"type":6}"#)) }
            }
            try await eventually("it is offline") { try await Self.connections(stack) == 0 }
            await slow.close()
        }
    }

    @Test("a SignalR client with too many waiting calls is paused, and all calls are answered")
    func paused() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await TestSignalR.synced(gateway, user: "ada")
            #expect(try await Self.metric("carillon_signalr_paused", gateway) == 0)
            // One runs and the others exceed half of the queue's limit; 120 messages are allowed at
            // once.
            let calls = (0..<55).flatMap { TestSignalR.call("GetUnreadCount", id: "c\($0)") }
            try await socket.send(opcode: 1, payload: calls)
            try await eventually("all are answered") {
                let messages = socket.messages
                return (0..<55).allSatisfy { messages.completion("c\($0)")?["result"]?.integer == 0 }
            }
            #expect(try await Self.metric("carillon_signalr_paused", gateway) >= 1)
            // The gateway reads from it again.
            try await socket.send(opcode: 1, payload: TestSignalR.call("GetUnreadCount", id: "next"))
            try await eventually("the next is answered") { socket.messages.completion("next") != nil }
            #expect(socket.closeCode == nil)
        }
    }
}

/// Clients that flood a gateway; `deploy/bench soak --attack` is the long version.
@Suite(.timeLimit(.minutes(10)))
struct FloodTests {
    private static let bound = 64 * 1024 * 1024
    /// Memory that the gateway may keep after a flood, in bytes.
    private static let kept = 12 * 1024 * 1024

    @Test("a flood costs the gateway at most 64 MB, which it returns, and other clients lose nothing")
    func memory() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startBoth()
            let bystander = try await TestSocket.synced(port: gateway.port, user: "bystander")
            let token = Stack.token(user: "attacker")
            try await stack.append([("user", "bystander"), ("type", "invoice_created"), ("title", "n0")])
            try await eventually("the bystander is served") { bystander.titles == ["n0"] }
            // A process's first requests cost memory too, so they come before the measurement.
            let few = ConnectionAttack.Kind.allCases.map { (kind: $0, count: 2) }
            _ = await ConnectionAttack(port: gateway.port, token: token, connections: few).run(for: .seconds(1))
            let before = try #require(ProcessTable.memory(of: gateway.process.identifier))
            async let attack = ConnectionAttack(port: gateway.port, token: token).run(for: .seconds(5))
            let titles = (0...40).map { "n\($0)" }
            for title in titles.dropFirst() {
                try await stack.append([("user", "bystander"), ("type", "invoice_created"), ("title", title)])
            }
            var summary = await attack
            let connections = ConnectionAttack.usual.reduce(0) { $0 + $1.count }
            // A busy machine needs longer to open all connections.
            for seconds in [10, 20, 40] where summary.connects < connections {
                summary = await ConnectionAttack(port: gateway.port, token: token).run(for: .seconds(seconds))
            }
            try await eventually("the bystander has all") { bystander.titles == titles }
            let after = try #require(ProcessTable.memory(of: gateway.process.identifier))
            #expect(after.peak - before.resident <= Self.bound, "\(before) \(after) \(summary)")
            #expect(summary.connects >= connections)
            var attacked = ContinuousClock.now
            try await eventually("the gateway returns the memory") {
                let now = try #require(ProcessTable.memory(of: gateway.process.identifier))
                if now.resident - before.resident <= Self.kept { return true }
                // A busy machine may slow an attack so much that it is no flood, so attack again.
                if ContinuousClock.now - attacked > .seconds(90) {
                    _ = await ConnectionAttack(port: gateway.port, token: token).run(for: .seconds(5))
                    attacked = .now
                }
                return false
            }
            // On a busy machine a short attack may not reach every limit, so each one is longer.
            var duration = Duration.seconds(5)
            try await eventually("refusals are counted") {
                let page = try await gateway.call(.get, "/metrics", token: nil).response.body
                let samples = try MetricsText(String(decoding: page, as: UTF8.self)).samples
                let refused = ["pipeline", "memory"].map { #"carillon_connections_refused{reason="\#($0)"}"# }
                // REST refuses jobs without a valid token.
                let names = refused + [#"carillon_calls_answered{class="4xx"}"#]
                let isCounted = names.allSatisfy { (samples[$0] ?? 0) > 0 }
                if !isCounted { _ = await ConnectionAttack(port: gateway.port, token: token).run(for: duration) }
                duration *= 2
                return isCounted
            }
        }
    }

    @Test("pipelined requests are answered in order, whichever endpoint they are for")
    func pipelined() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let client = try await TestSocket.connect(port: gateway.port)
            func get(_ path: String, _ fields: String = "") -> String {
                "GET \(path) HTTP/1.1\r\nhost: x\r\n\(fields)\r\n"
            }
            // Java's client asks for HTTP/2 with every request.
            let upgrade = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAQBAAAA\r\n"
            // Endpoints answer the first and the fourth after they have checked the token.
            let requests = [
                get("/v1/stream", upgrade), get("/healthz", upgrade),
                get("/v1/notifications", "authorization: Bearer \(token)\r\n"),
                get("/hubs/notifications"), get("/openapi.json/nowhere"),
            ]
            try await client.send(raw: Array(requests.joined().utf8))
            func statuses() -> [Int] {
                client.head.split(separator: "HTTP/1.1 ").compactMap { Int($0.prefix(3)) }
            }
            try await eventually("all are answered") { statuses().count == requests.count }
            #expect(statuses() == [401, 200, 200, 401, 404])
            // The connection stays open.
            try await client.send(raw: Array(get("/healthz").utf8))
            try await eventually("the next is answered") { statuses().count == requests.count + 1 }
            #expect(statuses().last == 200)
            // The server answers the first before its body has come, and the rest is not read.
            let length = 3_000_000
            let post = "POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: \(length)\r\n\r\n"
            try await client.send(raw: Array(post.utf8) + [UInt8](repeating: 0x78, count: length))
            try await client.send(raw: Array(get("/healthz").utf8))
            try await eventually("both are answered") { statuses().count == requests.count + 3 }
            #expect(statuses().suffix(2) == [401, 200])
            for fields in ["", "host: a\r\nhost: b\r\n"] {
                let hostless = try await TestSocket.connect(port: gateway.port)
                try await hostless.send(raw: Array("GET /healthz HTTP/1.1\r\n\(fields)\r\n".utf8))
                try await eventually("it is refused") { hostless.status == 400 }
            }
        }
    }
}
