// Carillon · SignalRTransportTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Support
import Testing

/// The notification hub over Server-Sent Events and long polling.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct SignalRTransportTests {
    @Test("Server-Sent Events carry messages to the client, POST carries its own")
    func events() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let id = try await TestSignalR.negotiate(gateway, user: "ada", query: "")
            let path = "\(TestSignalR.path)?id=\(id)"
            let stream = try await TestStream.open(port: gateway.port, user: "ada", path: path)
            try await eventually("it begins") { stream.status == 200 && stream.text.hasPrefix(":") }
            try await gateway.say(TestSignalR.handshake, path, user: "ada")
            try await eventually("the count comes") { stream.signalR.counts == [0] }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "n1")])
            try await eventually("it comes") { stream.signalR.receivedTitles == ["n1"] }
            try await gateway.say(TestSignalR.call("MarkAllAsRead", id: "1"), path, user: "ada")
            try await eventually("it is answered") { stream.signalR.completion("1")?["result"]?.integer == 0 }
            try await gateway.say(TestSignalR.record(#"{"type":7}"#), path, user: "ada")
            try await eventually("it ends") { stream.isOver }
            let token = try await Stack.token(user: "ada")
            #expect(try await gateway.call(.post, path, token: token).status == 404)
        }
    }

    @Test("long polling brings messages, and the next poll confirms them")
    func polling() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let id = try await TestSignalR.negotiate(gateway, user: "ada")
            let path = "\(TestSignalR.path)?id=\(id)"
            let token = try await Stack.token(user: "ada")
            let first = try await gateway.call(.get, path, token: token)
            #expect(first.status == 200)
            #expect(first.response.body.isEmpty)
            try await gateway.say(TestSignalR.handshake, path, user: "ada")
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
            try await gateway.say(TestSignalR.call("GetUnreadCount", id: "1"), path, user: "ada")
            let answered = try await parked
            #expect(answered.completion("1")?["result"]?.integer == 1)

            // Another user cannot use the connection.
            let other = try await Stack.token(user: "bob")
            #expect(try await gateway.call(.get, path, token: other).status == 404)
            #expect(try await gateway.call(.delete, path, token: token).status == 202)
            #expect(try await gateway.call(.get, path, token: token).status == 404)
        }
    }

    @Test("unused negotiations and abandoned connections end after fifteen seconds")
    func limits() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = try await Stack.token(user: "ada")
            let unused = "\(TestSignalR.path)?id=\(try await TestSignalR.negotiate(gateway, user: "ada"))"
            let polled = "\(TestSignalR.path)?id=\(try await TestSignalR.negotiate(gateway, user: "ada"))"
            // Measured from before the fifteen seconds begin, so a slow machine only makes it
            // longer.
            let began = ContinuousClock.now
            #expect(try await gateway.call(.get, polled, token: token).status == 200)
            try await gateway.say(TestSignalR.handshake, polled, user: "ada")
            // The hub opens once the handshake's answer has been fetched.
            #expect(try await gateway.call(.get, polled, token: token).status == 200)
            let service = try await Stack.token(user: "backend", scope: .admin)
            func isOnline() async throws -> Bool? {
                try await gateway.call(.get, "/v1/admin/presence/ada", token: service).body["online"]?.bool
            }
            try await eventually("its user is online") { try await isOnline() == true }
            try await eventually("its user is offline") { try await isOnline() == false }
            #expect(ContinuousClock.now - began > .seconds(14))
            for path in [unused, polled] {
                #expect(try await gateway.call(.get, path, token: token).status == 404, "\(path)")
            }
        }
    }

    @Test("requests that fit no connection are refused with their status")
    func refusals() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: ["ALLOWED_ORIGINS": "https://a.example"])
            let token = try await Stack.token(user: "ada")
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
    fileprivate func say(_ records: [UInt8], _ path: String, user: String) async throws {
        let text = String(decoding: records, as: UTF8.self)
        let answer = try await self.call(.post, path, token: try await Stack.token(user: user), json: text)
        guard answer.status == 200 else { throw FixtureError("POST was answered with \(answer.status)") }
    }

    /// Polls once.
    fileprivate func poll(_ path: String, user: String) async throws -> [JSONValue] {
        let answer = try await self.call(.get, path, token: try await Stack.token(user: user))
        guard answer.status == 200 else { throw FixtureError("GET was answered with \(answer.status)") }
        return TestSignalR.messages(answer.response.body)
    }
}
