// Carillon · SignalRReconnectTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

/// Stateful reconnect: a connection resumes on another WebSocket without loss or repetition.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct SignalRReconnectTests {
    private static let ask = "?negotiateVersion=1&useStatefulReconnect=true"

    private static func open(_ gateway: Gateway, id: String, user: String = "ada") async throws -> TestSocket {
        let socket = try await TestSocket.open(
            port: gateway.port,
            token: try await Stack.token(user: user),
            query: "?id=\(id)",
            path: TestSignalR.path
        )
        try await eventually("an answer comes") { socket.status != nil }
        return socket
    }

    @Test("messages of an interrupted connection are resent when it resumes, on any event loop", arguments: 1...4)
    func returns(_ round: Int) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let id = try await TestSignalR.negotiate(gateway, user: "ada", query: Self.ask)
            let first = try await Self.open(gateway, id: id)
            try await first.send(opcode: 1, payload: TestSignalR.record(#"{"protocol":"json","version":2}"#))
            try await eventually("the count comes") { first.messages.counts == [0] }
            // Other connections, so that some rounds resume on another event loop.
            var others: [TestSocket] = []
            for _ in 0..<round { others.append(try await TestSocket.connect(port: gateway.port)) }
            await first.close()
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "n1")])
            try await eventually("it is stored") { try await stack.statuses(user: "ada").count == 1 }

            let second = try await Self.open(gateway, id: id)
            #expect(second.status == 101)
            try await second.send(opcode: 1, payload: TestSignalR.record(#"{"type":9,"sequenceId":1}"#))
            try await eventually("it comes") { second.messages.receivedTitles == ["n1"] }
            // Nothing was acknowledged, so everything is resent from the first message.
            let sequence = second.messages.first
            #expect(sequence?["type"]?.integer == 9)
            #expect(sequence?["sequenceId"]?.integer == 1)
            #expect(second.messages.counts == [0, 1])
            try await eventually("it is proven") { try await stack.statuses(user: "ada") == ["n1": "delivered"] }
            try await second.send(opcode: 1, payload: TestSignalR.call("GetUnreadCount", id: "1"))
            try await eventually("calls are answered") { second.messages.completion("1")?["result"]?.integer == 1 }

            // A client that returns before the loss was noticed replaces the old socket.
            try await second.send(opcode: 1, payload: TestSignalR.record(#"{"type":8,"sequenceId":4}"#))
            let third = try await Self.open(gateway, id: id)
            try await eventually("the old one is dropped") { second.isClosed }
            try await third.send(opcode: 1, payload: TestSignalR.record(#"{"type":9,"sequenceId":2}"#))
            try await third.send(opcode: 1, payload: TestSignalR.call("GetUnreadCount", id: "2"))
            try await eventually("it goes on") { third.messages.completion("2")?["result"]?.integer == 1 }
            #expect(third.messages.first?["sequenceId"]?.integer == 5)
            #expect(third.messages.receivedTitles.isEmpty)
            // Another user cannot resume it.
            let thief = try await Self.open(gateway, id: id, user: "bob")
            #expect(thief.status == 101, "a foreign id starts a new connection")
            #expect(!third.isClosed)
            for other in others { await other.close() }
        }
    }
}
