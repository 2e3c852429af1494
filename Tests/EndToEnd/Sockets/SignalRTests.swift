// Carillon · SignalRTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import HTTP
import Support
import Testing

@testable import Clients

/// The notification hub over WebSockets.
@Suite(.timeLimit(.minutes(10)))
struct SignalRTests {
    @Test("notifications, reads and events arrive as calls of client methods, and the pong confirms them")
    func live() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let id = try await TestSignalR.negotiate(gateway, user: "ada")
            let socket = try await TestSignalR.synced(gateway, user: "ada", query: "?id=\(id)")
            #expect(socket.messages.first == .object([]))
            #expect(socket.messages.counts == [0])

            for number in 1...3 {
                try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "n\(number)")])
            }
            try await eventually("they come") { socket.messages.receivedTitles == ["n1", "n2", "n3"] }
            // A gateway that stalled sends only the latest.
            let counts = socket.messages.counts
            #expect(counts.last == 3 && counts == counts.sorted())
            let dto = try #require(socket.messages.arguments("ReceiveNotification").first)
            #expect(dto["isRead"]?.bool == false)
            #expect(dto["type"]?.integer != nil)
            try await eventually("they are confirmed") {
                try await stack.statuses(user: "ada").values.allSatisfy { $0 == "delivered" }
            }

            let first = try #require(dto["id"]?.string)
            try await socket.send(opcode: 1, payload: TestSignalR.call("markasread", "\"\(first)\"", id: "a"))
            try await eventually("it is answered") { socket.messages.completion("a") != nil }
            #expect(socket.messages.completion("a")?["result"]?.integer == 2)
            try await eventually("the read arrives") {
                socket.messages.arguments("NotificationRead") == [.string(first)]
            }
            try await eventually("the count arrives") { socket.messages.counts.last == 2 }

            try await socket.send(opcode: 2, payload: TestSignalR.call("GetUnreadCount", id: "b"))
            try await eventually("it is answered") { socket.messages.completion("b")?["result"]?.integer == 2 }
            let token = Stack.token(user: "ada")
            _ = try await gateway.call(.delete, "/v1/notifications/\(first)", token: token)
            try await eventually("the deletion arrives") {
                socket.messages.arguments("NotificationDeleted") == [.string(first)]
            }
            try await socket.send(opcode: 1, payload: TestSignalR.call("MarkAllAsRead", id: "c"))
            try await eventually("all are read") { socket.messages.completion("c")?["result"]?.integer == 0 }
            try await eventually("each read arrives") { socket.messages.arguments("NotificationRead").count == 3 }
            try await eventually("the count arrives") { socket.messages.counts.last == 0 }

            try await stack.append([("user", "ada"), ("event", "BalanceUpdated"), ("args", #"["c1",12.50]"#)])
            try await eventually("the event comes") { !socket.messages.arguments("BalanceUpdated").isEmpty }
            let event = socket.messages.first { $0["target"]?.string == "BalanceUpdated" }
            #expect(event?["arguments"]?.array == [.string("c1"), .number("12.50")])
        }
    }

    @Test("missed notifications arrive once at the next start")
    func missed() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            for number in 1...2 {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "m\(number)")])
            }
            try await eventually("they are stored") { try await stack.statuses(user: "ada").count == 2 }
            #expect(try await dispatcher.stop() == .code(0))
            // As if nothing had settled them yet.
            try await stack.query("UPDATE carillon.notifications SET status = 'pending', status_reason = NULL")
            let socket = try await TestSignalR.synced(gateway, user: "ada")
            #expect(socket.messages.counts == [2])
            #expect(socket.messages.receivedTitles == ["m1", "m2"])
            try await eventually("they are confirmed") {
                try await stack.statuses(user: "ada") == ["m1": "delivered", "m2": "delivered"]
            }
            try await eventually("the bookmark follows") {
                try await stack.bookmarks(user: "ada").contains { $0.hasSuffix(" 2 0") }
            }
            let again = try await TestSignalR.synced(gateway, user: "ada")
            #expect(again.messages.receivedTitles.isEmpty)
        }
    }

    @Test("a faulty call gets an error that names it, and the connection continues")
    func faults() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await TestSignalR.synced(gateway, user: "ada")
            let calls: [(bytes: [UInt8], id: String, error: String)] = [
                (TestSignalR.call("Nonsense", id: "1"), "1", "Failed to invoke 'Nonsense'"),
                (TestSignalR.call("MarkAsRead", id: "2"), "2", "notification id"),
                (TestSignalR.call("MarkAsRead", #""x""#, id: "3"), "3", "notification id"),
                (
                    TestSignalR.record(#"{"arguments":[],"target":"GetUnreadCount","invocationId":"4","type":4}"#), "4",
                    "non-streaming"
                ),
                (
                    TestSignalR.record(#"{"arguments":[],"target":"Nonsense","invocationId":"6","type":4}"#), "6",
                    "Failed to invoke 'Nonsense'"
                ),
            ]
            for call in calls { try await socket.send(opcode: 1, payload: call.bytes) }
            for call in calls {
                try await eventually("\(call.id) is answered") {
                    socket.messages.completion(call.id)?["error"]?.string?.contains(call.error) == true
                }
            }
            try await socket.send(opcode: 1, payload: TestSignalR.call("Subscribe", #""topic""#, id: "5"))
            try await eventually("it goes on") { socket.messages.completion("5") != nil }
            #expect(socket.messages.completion("5")?["error"] == nil)
            // A malformed record closes the connection with the reason.
            try await socket.send(opcode: 1, payload: TestSignalR.record("nonsense"))
            #expect(try await socket.waitForClose() == 1008)
            #expect(socket.messages.close?["error"]?.string != nil)
            #expect(socket.messages.close?["allowReconnect"] == nil)
        }
    }

    @Test("negotiation and socket both need a valid token")
    func tokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let negotiate = "\(TestSignalR.path)/negotiate?negotiateVersion=1"
            #expect(try await gateway.call(.post, negotiate, token: nil).status == 401)
            #expect(try await gateway.call(.post, negotiate, token: "x.y.z").status == 401)
            #expect(try await gateway.call(.get, negotiate, token: Stack.token(user: "ada")).status == 405)
            let id = try await TestSignalR.negotiate(gateway, user: "ada")
            let refused = try await TestSocket.open(
                port: gateway.port, token: nil, query: "?id=\(id)", path: TestSignalR.path)
            try await eventually("it is refused") { refused.status == 401 }
            // A token in the query is as good as one in the header.
            let token = Stack.token(user: "ada")
            let socket = try await TestSocket.open(
                port: gateway.port, token: nil, query: "?id=\(id)&access_token=\(token)", path: TestSignalR.path)
            try await eventually("it is accepted") { socket.status == 101 }
            // A second socket with the same id replaces the first, whose loss may be unnoticed.
            try await socket.send(opcode: 1, payload: TestSignalR.handshake)
            try await eventually("the count comes") { socket.messages.counts == [0] }
            let second = try await TestSignalR.synced(gateway, user: "ada", query: "?id=\(id)")
            #expect(second.messages.counts == [0])
            try await eventually("the first is dropped") { socket.isClosed }
            // An id that another gateway may have issued starts a new connection.
            let foreign = try await TestSignalR.synced(gateway, user: "ada", query: "?id=elsewhere")
            #expect(foreign.messages.counts == [0])
        }
    }

    @Test("an expired token and a stopping gateway close the connection with permission to reconnect")
    func ends() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let short = try await Stack.withExpiringToken(user: "ada") { token in
                let socket = try await TestSocket.open(port: gateway.port, token: token, path: TestSignalR.path)
                try await eventually("it is answered") { socket.status != nil }
                guard socket.status == 101 else { return TestSocket?.none }
                try await socket.send(opcode: 1, payload: TestSignalR.handshake)
                try await eventually("it shakes hands") { !socket.messages.isEmpty || socket.isClosed }
                return socket.messages.first == .object([]) ? socket : nil
            }
            #expect(try await short.waitForClose() == 4401)
            // pysignalr stops for good on an error.
            #expect(short.messages.close?["error"] == nil)
            #expect(short.messages.close?["allowReconnect"]?.bool == true)

            let socket = try await TestSignalR.synced(gateway, user: "ada")
            gateway.process.send(SIGTERM)
            #expect(try await socket.waitForClose() == 1001)
            #expect(socket.messages.close?["error"] == nil)
            #expect(socket.messages.close?["allowReconnect"]?.bool == true)
            await socket.close()
            #expect(try await gateway.process.waitForExit() == .code(0))
        }
    }

    @Test("two gateways act as one: messages and reads on one reach the other")
    func twoGateways() async throws {
        try await Stack.with { stack in
            let gateways = [try await stack.startGateway(name: "one"), try await stack.startGateway(name: "two")]
            _ = try await stack.startDispatcher()
            // Negotiated on one gateway and opened on the other: it starts over with its own token.
            let id = try await TestSignalR.negotiate(gateways[0], user: "ada")
            let here = try await TestSignalR.synced(gateways[0], user: "ada")
            let there = try await TestSignalR.synced(gateways[1], user: "ada", query: "?id=\(id)")
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "n1")])
            for socket in [here, there] {
                try await eventually("it comes") { socket.messages.receivedTitles == ["n1"] }
            }
            let first = try #require(here.messages.arguments("ReceiveNotification").first?["id"]?.string)
            try await here.send(opcode: 1, payload: TestSignalR.call("MarkAsRead", "\"\(first)\"", id: "a"))
            for socket in [here, there] {
                try await eventually("the read arrives") {
                    socket.messages.arguments("NotificationRead") == [.string(first)]
                }
            }
            // A client whose gateway dies continues on the other one.
            gateways[1].process.send(SIGKILL)
            try await eventually("it is cut off") { there.isClosed }
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "n2")])
            let back = try await TestSignalR.synced(gateways[0], user: "ada")
            try await eventually("it comes") {
                here.messages.receivedTitles == ["n1", "n2"] && back.messages.counts.last == 1
            }
        }
    }
}

/// The notification hub over Server-Sent Events and long polling.
@Suite(.timeLimit(.minutes(10)))
struct SignalRTransportTests {
    @Test("Server-Sent Events carry messages to the client, POST carries its own")
    func events() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let id = try await TestSignalR.negotiate(gateway, user: "ada", query: "")
            let path = "\(TestSignalR.path)?id=\(id)"
            let stream = try await TestStream.open(port: gateway.port, user: "ada", path: path)
            try await eventually("it begins") { stream.status == 200 && stream.text.hasPrefix(":") }
            try await gateway.post(TestSignalR.handshake, path, user: "ada")
            try await eventually("the count comes") { stream.signalR.counts == [0] }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "n1")])
            try await eventually("it comes") { stream.signalR.receivedTitles == ["n1"] }
            try await gateway.post(TestSignalR.call("MarkAllAsRead", id: "1"), path, user: "ada")
            try await eventually("it is answered") { stream.signalR.completion("1")?["result"]?.integer == 0 }
            try await gateway.post(TestSignalR.record(#"{"type":7}"#), path, user: "ada")
            try await eventually("it ends") { stream.isOver }
            let token = Stack.token(user: "ada")
            #expect(try await gateway.call(.post, path, token: token).status == 404)
        }
    }

    @Test("long polling brings messages, and the next poll confirms them")
    func polling() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let id = try await TestSignalR.negotiate(gateway, user: "ada")
            let path = "\(TestSignalR.path)?id=\(id)"
            let token = Stack.token(user: "ada")
            let first = try await gateway.call(.get, path, token: token)
            #expect(first.status == 200)
            #expect(first.response.body.isEmpty)
            try await gateway.post(TestSignalR.handshake, path, user: "ada")
            var messages: [JSONValue] = []
            while messages.counts.isEmpty { messages += try await gateway.poll(path, user: "ada") }
            #expect(messages.first == .object([]))
            #expect(messages.counts == [0])

            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "n1")])
            while messages.receivedTitles.isEmpty { messages += try await gateway.poll(path, user: "ada") }
            #expect(messages.receivedTitles == ["n1"])
            #expect(try await stack.statuses(user: "ada") != ["n1": "delivered"])
            async let parked = gateway.poll(path, user: "ada")
            try await eventually("the next poll proves it") {
                try await stack.statuses(user: "ada") == ["n1": "delivered"]
            }
            try await gateway.post(TestSignalR.call("GetUnreadCount", id: "1"), path, user: "ada")
            messages += try await parked
            while messages.completion("1") == nil { messages += try await gateway.poll(path, user: "ada") }
            #expect(messages.completion("1")?["result"]?.integer == 1)

            // Another user cannot use the connection.
            let other = Stack.token(user: "bob")
            #expect(try await gateway.call(.get, path, token: other).status == 404)
            #expect(try await gateway.call(.delete, path, token: token).status == 202)
            #expect(try await gateway.call(.get, path, token: token).status == 404)
        }
    }

    @Test("requests that fit no connection are refused with their status")
    func refusals() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["ALLOWED_ORIGINS": "https://a.example"])
            let token = Stack.token(user: "ada")
            let path = TestSignalR.path
            #expect(try await gateway.call(.get, path, token: token).status == 400)
            #expect(try await gateway.call(.get, "\(path)?id=none", token: token).status == 404)
            #expect(try await gateway.call(.delete, "\(path)?id=none", token: token).status == 404)
            #expect(try await gateway.call(.put, path, token: token).status == 405)
            let socket = try await TestSignalR.synced(gateway, user: "ada", query: "?id=mine")
            #expect(try await gateway.call(.post, "\(path)?id=mine", token: token).status == 405)
            #expect(try await gateway.call(.get, "\(path)?id=mine", token: token).status == 400)
            await socket.close()

            let origin = [(name: "origin", value: "https://a.example")]
            let allowed = try await gateway.call(.post, "\(path)/negotiate", token: token, headers: origin)
            #expect(allowed.header("access-control-allow-origin") == "https://a.example")
            #expect(allowed.header("access-control-allow-credentials") == "true")
            let foreign = [(name: "origin", value: "https://b.example")]
            let refused = try await gateway.call(.post, "\(path)/negotiate", token: token, headers: foreign)
            #expect(refused.header("access-control-allow-origin") == nil)
        }
    }
}

extension TestStream {
    /// The received SignalR messages.
    fileprivate var signalR: [JSONValue] {
        let lines = self.text.utf8.split { $0 == 0x0A || $0 == 0x0D }
        return TestSignalR.messages(lines.filter { $0.starts(with: "data: ".utf8) }.flatMap { $0.dropFirst(6) })
    }
}

extension Gateway {
    /// Posts records.
    fileprivate func post(_ records: [UInt8], _ path: String, user: String) async throws {
        let text = String(decoding: records, as: UTF8.self)
        let answer = try await self.call(.post, path, token: Stack.token(user: user), json: text)
        guard answer.status == 200 else { throw FixtureError("POST was answered with \(answer.status)") }
    }

    /// Polls once.
    fileprivate func poll(_ path: String, user: String) async throws -> [JSONValue] {
        let answer = try await self.call(.get, path, token: Stack.token(user: user))
        guard answer.status == 200 else { throw FixtureError("GET was answered with \(answer.status)") }
        return TestSignalR.messages(answer.response.body)
    }
}
