// Carillon · SocketIOProtocolTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Testing

/// `/socket.io/` with a raw client that can do what libraries never do.
@Suite(.timeLimit(.minutes(10)))
struct SocketIOProtocolTests {
    private static func webSocket(_ gateway: Gateway, query: String = "") async throws -> TestSocket {
        try await TestSocket.open(
            port: gateway.port, token: nil, query: "?EIO=4&transport=websocket" + query, path: "/socket.io/")
    }

    private static func send(_ socket: TestSocket, _ packet: String) async throws {
        try await socket.send(opcode: 1, payload: Array(packet.utf8))
    }

    private static func first(_ socket: TestSocket, _ prefix: String) async throws -> String {
        try await eventualValue("a packet that begins with \(prefix)") {
            socket.texts.first { $0.hasPrefix(prefix) }
        }
    }

    /// The titles of notification events, in order.
    private static func titles(_ packets: [String]) -> [String] {
        packets.filter { $0.hasPrefix(#"42["notification","#) }.compactMap { packet in
            (try? JSONParser.parse(Array(packet.utf8.dropFirst(2))))?.array?[1]["title"]?.string
        }
    }

    @Test("a WebSocket client can be refused, join, get events and reads, resync, and is closed on nonsense and bytes")
    func webSocket() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let token = Stack.token(user: "ada")
            let socket = try await Self.webSocket(gateway)
            let open = try await Self.first(socket, "0{")
            #expect(open.contains(#""upgrades":[]"#))
            try await Self.send(socket, #"40{"token":"x.y.z"}"#)
            let refusal = try await Self.first(socket, "44{")
            #expect(refusal.hasPrefix(#"44{"message":"Not authorized","data":{"reason":""#))
            try await Self.send(socket, "40/admin,")
            #expect(try await Self.first(socket, "44/admin,") == #"44/admin,{"message":"Invalid namespace"}"#)
            try await Self.send(socket, #"40{"token":"\#(token)"}"#)
            _ = try await Self.first(socket, #"40{"sid":""#)
            #expect(try await Self.first(socket, #"42["sync""#) == #"42["sync",{"notifications":[]}]"#)
            for number in 0..<3 { try await stack.notify("ada", "n\(number)") }
            try await eventually("they come in order") { Self.titles(socket.texts) == ["n0", "n1", "n2"] }
            try await eventually("they are confirmed") {
                try await stack.statuses(user: "ada").values.allSatisfy { $0 == "delivered" }
            }
            try await Self.send(socket, #"421["resync",{"last_sync_at":"2026-01-01T00:00:00Z"}]"#)
            #expect(try await Self.first(socket, "431") == #"431[{"status":"ok"}]"#)
            try await eventually("the list comes") {
                socket.texts.contains { $0.hasPrefix(#"42["sync","#) && $0.contains(#""n2""#) && $0.contains(#""n0""#) }
            }
            try await Self.send(socket, #"422["mark_read",{"notification_id":3}]"#)
            #expect(try await Self.first(socket, "432").contains("notification_id must be"))
            let all = try await gateway.call(.post, "/v1/notifications/read", token: token, json: #"{"all":true}"#)
            #expect(all.status < 300)
            let told = try await Self.first(socket, #"42["notifications_bulk_read","#)
            let rows = try await stack.query("SELECT id::text FROM carillon.notifications WHERE user_id = 'ada'")
            #expect(rows.count == 3)
            for row in rows { #expect(told.contains(try row.text(0))) }
            // Only the first, empty sync: another one would clear the client's list.
            #expect(socket.texts.count { $0 == #"42["sync",{"notifications":[]}]"# } == 1)
            try await Self.send(socket, "42{}")
            try await eventually("nonsense ends it") { socket.isClosed || socket.closeCode != nil }
            let other = try await Self.webSocket(gateway)
            _ = try await Self.first(other, "0{")
            try await other.send(opcode: 2, payload: [1, 2, 3])
            let code = try await other.waitForClose()
            #expect(code == 1002)
        }
    }

    @Test("malformed polling requests are refused as the protocol says")
    func refusals() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["ALLOWED_ORIGINS": "https://app.example"])
            let cases = [
                ("?EIO=4", 0), ("?EIO=4&transport=abc", 0), ("?EIO=4&transport=polling&sid=abc", 1),
                ("?EIO=4&transport=websocket", 3), ("?EIO=3&transport=polling", 5),
            ]
            for (query, code) in cases {
                let answer = try await TestEngine.send(.get, query, port: gateway.port, http: stack.http)
                #expect(answer.status == 400)
                #expect(try JSONParser.parse(Array(answer.body.utf8))["code"]?.integer == Int64(code))
                #expect(answer.response.header("cache-control") == "no-store")
            }
            let post = try await TestEngine.send(
                .post, "?EIO=4&transport=polling", port: gateway.port, http: stack.http)
            #expect(post.body == #"{"code":2,"message":"Bad handshake method"}"#)
            let page = try await TestEngine.send(
                .get, "?EIO=4&transport=polling", headers: [(name: "origin", value: "https://app.example")],
                port: gateway.port, http: stack.http)
            #expect(page.response.header("access-control-allow-origin") == "https://app.example")
            let upgrade = try await TestSocket.open(
                port: gateway.port, token: nil, query: "?EIO=4&transport=websocket&sid=abc", path: "/socket.io/")
            try await eventually("it is refused") { upgrade.isClosed }
            #expect(upgrade.status == 400)
            #expect(upgrade.head.lowercased().contains("content-type: text/html"))
            #expect(upgrade.head.hasSuffix("Session ID unknown"))
        }
    }

    @Test("polling answers hold sixteen packets, the next poll confirms them, and a WebSocket takes over")
    func polling() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let engine = try await TestEngine.open(port: gateway.port, http: stack.http)
            try await engine.post(#"40{"token":"\#(Stack.token(user: "ada"))"}"#)
            let joined = try await engine.poll(until: #"42["sync""#)
            #expect(joined.first?.hasPrefix(#"40{"sid":""#) == true)
            for number in 0..<40 { try await stack.notify("ada", "n\(number)") }
            try await eventually("they are stored") { try await stack.statuses(user: "ada").count == 40 }
            var packets: [String] = []
            while Self.titles(packets).count < 40 {
                let answer = try await engine.poll()
                #expect(answer.packets.count <= 16)
                packets += answer.packets
                if answer.packets.contains("2") { try await engine.post("3") }
            }
            #expect(Self.titles(packets) == (0..<40).map { "n\($0)" })
            async let released = engine.poll()
            try await eventually("the poll proves them") {
                try await stack.statuses(user: "ada").values.allSatisfy { $0 == "delivered" }
            }
            let socket = try await Self.webSocket(gateway, query: "&sid=\(engine.sid)")
            try await eventually("it is up") { socket.status == 101 }
            try await Self.send(socket, "2probe")
            _ = try await Self.first(socket, "3probe")
            var answer = try await released
            // A heartbeat may have come first.
            while answer.body == "2" {
                try await engine.post("3")
                answer = try await engine.poll()
            }
            #expect(answer.body == "6")
            try await stack.notify("ada", "waits")
            try await Self.send(socket, "5")
            try await eventually("the waiting notification follows") { Self.titles(socket.texts) == ["waits"] }
            try await eventually("it is confirmed") { try await stack.statuses(user: "ada")["waits"] == "delivered" }
            #expect(try await engine.poll().body == #"{"code":3,"message":"Bad request"}"#)
            try await Self.send(socket, #"427["get_unread_count"]"#)
            #expect(try await Self.first(socket, "437") == #"437[{"count":41}]"#)
        }
    }

    @Test("with recovery a returning client gets what it missed, and another user does not")
    func recovery() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["SOCKETIO_RECOVERY": "on"])
            _ = try await stack.startDispatcher()
            let token = Stack.token(user: "ada")
            let socket = try await Self.webSocket(gateway)
            try await Self.send(socket, #"40{"token":"\#(token)"}"#)
            let granted = try await Self.first(socket, #"40{"sid":""#)
            let pid = try #require(try JSONParser.parse(Array(granted.utf8.dropFirst(2)))["pid"]?.string)
            _ = try await Self.first(socket, #"42["sync",{"notifications":[]},"0"]"#)
            try await stack.notify("ada", "has")
            let event = try await Self.first(socket, #"42["notification","#)
            #expect(event.hasSuffix(#","1"]"#))
            await socket.close()
            for title in ["missed", "too"] { try await stack.notify("ada", title) }
            try await eventually("they are stored") { try await stack.statuses(user: "ada").count == 3 }

            let back = try await Self.webSocket(gateway)
            try await Self.send(back, #"40{"token":"\#(token)","pid":"\#(pid)","offset":"1"}"#)
            #expect(try await Self.first(back, "40{") == granted)
            #expect(Self.titles(back.texts) == ["missed", "too"])
            #expect(back.texts.last == granted)
            #expect(back.texts.dropLast().last?.hasSuffix(#","3"]"#) == true)
            try await stack.notify("ada", "next")
            try await eventually("it goes on") { Self.titles(back.texts) == ["missed", "too", "next"] }

            let eve = try await Self.webSocket(gateway)
            let other = Stack.token(user: "eve")
            try await Self.send(eve, #"40{"token":"\#(other)","pid":"\#(pid)","offset":"1"}"#)
            #expect(try await Self.first(eve, "40{") != granted)
            #expect(try await Self.first(eve, #"42["sync""#) == #"42["sync",{"notifications":[]},"0"]"#)
        }
    }

    @Test("a polling client whose token is revoked gets the reason, but no notification that waited for its poll")
    func revocation() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let engine = try await TestEngine.open(port: gateway.port, http: stack.http)
            try await engine.post(#"40{"token":"\#(Stack.token(user: "ada"))"}"#)
            _ = try await engine.poll(until: #"42["sync""#)
            let witness = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.notify("ada", "private")
            _ = try await witness.first("notification")
            let service = Stack.token(user: "app", scope: .service)
            let answer = try await gateway.call(.post, "/v1/users/ada/revoke-tokens", token: service)
            #expect(answer.status == 200)
            try await eventually("both have ended") {
                try await stack.connection.send("HLEN", "carillon:presence:{ada}").integer() == 0
            }
            let packets = try await engine.poll(until: #"42["error""#)
            #expect(Self.titles(packets) == [])
            #expect(packets.contains { $0.contains("the token was revoked") })
        }
    }

    @Test("an expired token closes the transport only, so clients reconnect")
    func expiry() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await Stack.withExpiringToken(user: "ada") { token in
                let socket = try await Self.webSocket(gateway)
                try await Self.send(socket, #"40{"token":"\#(token)"}"#)
                try await eventually("it joins or is refused") {
                    socket.texts.contains { $0.hasPrefix(#"42["sync""#) || $0.hasPrefix("44") } || socket.isClosed
                }
                return socket.texts.contains { $0.hasPrefix(#"42["sync""#) } ? socket : nil
            }
            #expect(try await socket.waitForClose() == 4401)
            #expect(!socket.texts.contains { $0.hasPrefix("41") || $0.contains(#"["error""#) }, "\(socket.texts)")
        }
    }
}

/// The cases of the protocols' own test suites, run against the conformance program.
@Suite(
    .timeLimit(.minutes(10)),
    .enabled(if: PythonClient.has("requests") && PythonClient.has("websocket"))
)
struct SocketIOConformanceTests {
    @Test(
        "the conformance program passes every case of Engine.IO 4 and Socket.IO 5, with recovery if it is on",
        arguments: [false, true])
    func cases(_ recovery: Bool) async throws {
        let result = try await Self.run(
            interval: 15_000, timeout: 15_000, recovery ? ["--recovery"] : [], cases: recovery ? ["recovery"] : [])
        #expect(result.failures == [])
        #expect(result.passed == (recovery ? 1 : 42))
    }

    @Test("the conformance program passes the cases of Engine.IO's heartbeat and of unjoined clients")
    func heartbeat() async throws {
        let cases = [
            "polling_heartbeat", "polling_ping_timeout", "websocket_heartbeat", "websocket_ping_timeout",
            "connect_never",
        ]
        var result = try await Self.run(interval: 300, timeout: 2_000, cases: cases)
        // A busy machine may miss a heartbeat.
        for timeout in [4_000, 8_000] where !result.failures.isEmpty {
            result = try await Self.run(interval: 300, timeout: timeout, cases: cases)
        }
        #expect(result.failures == [])
        #expect(result.passed == cases.count)
    }

    /// Runs cases against a conformance program of their own.
    ///
    /// - Parameters:
    ///   - interval: the interval of pings in milliseconds.
    ///   - timeout: the time for the answer to a ping in milliseconds.
    /// - Returns: how many passed, and the lines about the others.
    private static func run(
        interval: Int,
        timeout: Int,
        _ options: [String] = [],
        cases: [String]
    ) async throws -> (passed: Int, failures: [String]) {
        let directory = try TemporaryDirectory("conformance")
        let program = try await ChildProcess.spawn(
            TestProducts.path("conformance"),
            ["--ping-interval", "\(interval)", "--ping-timeout", "\(timeout)", "--max-payload", "1000000"] + options,
            name: "conformance",
            directory: directory.path
        )
        let port = try #require(try await program.waitForLine("ready ").split(separator: ":").last)
        let client = try await PythonClient.start(
            "socketio_conformance.py", [String(port), "\(interval)", "\(timeout)"] + cases, in: directory.path)
        let exit = try await client.process.waitForExit()
        let failures = client.lines.filter { $0.hasPrefix("FAIL") }
        #expect(exit == .code(0) || !failures.isEmpty)
        try await program.stop()
        return (client.lines.count { $0.hasPrefix("ok ") }, failures)
    }
}
