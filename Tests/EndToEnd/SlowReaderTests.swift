// Carillon · SlowReaderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// Clients of the other dialects that read too slowly or ask for too much.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct SlowReaderTests {
    private static func metric(_ name: String, _ gateway: Gateway) async throws -> Double {
        let page = try await gateway.call(.get, "/metrics", token: nil).response.body
        return try MetricsText(String(decoding: page, as: UTF8.self)).samples[name] ?? 0
    }

    private static func connections(_ stack: Stack) async throws -> Int64 {
        try await stack.connection.send("HLEN", "carillon:presence:{slow}").integer()
    }

    /// Sends the user "slow" more than buffers and limits hold, and waits until its only connection
    /// counts as slow; another user is still served.
    private static func overwhelm(_ stack: Stack, _ gateway: Gateway) async throws {
        try await eventually("it is registered") { try await Self.connections(stack) == 1 }
        let bystander = try await TestSocket.synced(port: gateway.port, user: "bystander")
        #expect(try await Self.metric("carillon_sockets_slow", gateway) == 0)
        let data = #"{"fill":"\#(String(repeating: "x", count: 15_000))"}"#
        for _ in 0..<800 {
            try await stack.append([("user", "slow"), ("type", "invoice_created"), ("title", "t"), ("data", data)])
        }
        try await eventually("it is counted as slow") {
            try await Self.metric("carillon_sockets_slow", gateway) > 0
        }
        try await stack.append([("user", "bystander"), ("type", "invoice_created"), ("title", "unharmed")])
        try await eventually("the bystander is served") { bystander.titles == ["unharmed"] }
    }

    @Test("a Socket.IO client that never reads is closed with 1013")
    func socketIO() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let slow = try await TestSocket.open(
                port: gateway.port, token: nil, query: "?EIO=4&transport=websocket", path: "/socket.io/")
            try await eventually("the socket is up") { slow.status == 101 }
            try await slow.setReading(false)
            let token = try await Stack.token(user: "slow")
            try await slow.send(json: #"40{"token":"\#(token)"}"#)
            try await Self.overwhelm(stack, gateway)
            try await slow.setReading(true)
            // A client that does not read up to the close within five seconds is dropped without
            // one.
            let code = try await slow.waitForClose()
            #expect(code == nil || code == 1013, "\(code ?? 0)")
            try await eventually("it is offline") { try await Self.connections(stack) == 0 }
        }
    }

    @Test("a Socket.IO client that never polls loses its session")
    func polling() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let slow = try await TestEngine.open(port: gateway.port, http: stack.http)
            try await slow.post(#"40{"token":"\#(try await Stack.token(user: "slow"))"}"#)
            try await Self.overwhelm(stack, gateway)
            try await eventually("its session is over") {
                let answer = try await slow.poll()
                return answer.status != 200 || answer.packets.contains("1")
            }
            try await eventually("it is offline") { try await Self.connections(stack) == 0 }
        }
    }

    @Test("a SignalR client that never reads is closed with 4408 and may reconnect")
    func signalR() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startCompatible()
            let slow = try await TestSignalR.synced(gateway, user: "slow")
            try await slow.setReading(false)
            try await Self.overwhelm(stack, gateway)
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
            let gateway = try await stack.startCompatible()
            let token = try await Stack.token(user: "slow")
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
            if path == TestSignalR.path {
                let handshake = String(decoding: TestSignalR.handshake, as: UTF8.self)
                #expect(try await gateway.call(.post, target, token: token, json: handshake).status == 200)
            }
            try await Self.overwhelm(stack, gateway)
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
            // One runs and the others exceed half of the queue's limit; 60 messages are allowed at
            // once.
            let calls = (0..<55).flatMap { TestSignalR.call("GetUnreadCount", id: "c\($0)") }
            try await socket.send(opcode: 1, payload: calls)
            try await eventually("all are answered") {
                let messages = socket.messages
                return (0..<55).allSatisfy { messages.completion("c\($0)")?["result"]?.integer == 0 }
            }
            #expect(try await Self.metric("carillon_signalr_paused", gateway) == 1)
            // The gateway reads from it again.
            try await socket.send(opcode: 1, payload: TestSignalR.call("GetUnreadCount", id: "next"))
            try await eventually("the next is answered") { socket.messages.completion("next") != nil }
            #expect(socket.closeCode == nil)
        }
    }
}
