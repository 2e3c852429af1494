// Carillon · SocketFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Support
import Testing

/// Misbehaving clients are closed with the right code and harm no other.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct SocketFaultTests {
    @Test("invalid, expired and unsigned tokens get 401 with the reason")
    func tokens() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let good = try await Stack.token(user: "ada")
            func part(_ text: String) -> String {
                Data(text.utf8).base64EncodedString().replacingOccurrences(of: "=", with: "")
            }
            let cases = [
                ("not-a-token", "is not a JSON Web Token"),
                (String(good.dropLast(4)) + "AAAA", "signature is not valid"),
                (try await Stack.token(user: "ada", lifetime: .seconds(-3_600)), "has expired"),
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
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
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
                    try await eventually("\(name) is closed", within: .seconds(30)) { socket.isClosed }
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
            let token = try await Stack.token(user: "rude")
            let join = #"40{"token":"\#(token)"}"#
            // An event, an answer to nothing, an unknown namespace, a namespace never joined, a
            // pong, and for the empty string a WebSocket pong.
            for packet in ["42[\"nonsense\"]", "439[]", "40/x,", "41/x,", "3", ""] {
                let socket = try await TestSocket.open(
                    port: gateway.port, token: nil, query: "?EIO=4&transport=websocket", path: "/socket.io/")
                try await eventually("the socket is up") { socket.status == 101 }
                try await socket.send(opcode: 1, payload: Array(join.utf8))
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
            #expect(nowhere.texts.count { $0.hasPrefix("44/x,") } <= 60)

            let engine = try await TestEngine.open(port: gateway.port, http: stack.http)
            try await engine.post(join)
            _ = try await engine.poll(until: #"42["sync""#)
            // All in one post, because the limit recovers over time.
            let body = [String](repeating: "6", count: 300).joined(separator: String(TestEngine.separator))
            try await engine.post(body)
            let answer = try await engine.poll()
            #expect(answer.body.contains(#""code":"policy_violation""#), "\(answer.body)")
            #expect(answer.packets.suffix(2) == ["41", "1"])

            let ping = TestSocket.frame(opcode: 1, payload: TestSignalR.record(#"{"type":6}"#))
            for frame in [ping, TestSocket.frame(opcode: 10, payload: [])] {
                let hub = try await TestSignalR.synced(gateway, user: "rude")
                try await hub.send(raw: (0..<300).flatMap { _ in frame })
                #expect(try await hub.waitForClose() == 1008)
                let close = try #require(hub.messages.close)
                #expect(close["error"]?.string?.contains("too many messages") == true)
                #expect(close["allowReconnect"]?.bool != true)
            }
        }
    }

    @Test("a client that breaks the framing and keeps its side open is dropped, in every protocol")
    func halfOpen() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let hub = "?access_token=\(try await Stack.token(user: "rude"))"
            for (path, query) in [
                ("/v1/socket", ""), ("/socket.io/", "?EIO=4&transport=websocket"), ("/hubs/notifications", hub),
            ] {
                let socket = try await TestSocket.open(
                    port: gateway.port, token: nil, query: query, path: path,
                    behaviour: TestSocket.Behaviour(keepsHalfOpen: true))
                try await eventually("\(path) is up") { socket.status == 101 }
                try await socket.send(opcode: 3, payload: [])
                #expect(try await socket.waitForClose() == 1002, "\(path)")
                // Only a client that keeps sending sees the end.
                try await eventually("\(path) is dropped", within: .seconds(40)) {
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

    @Test("a client that sends nothing and one that never authenticates are closed")
    func silence() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let mute = try await TestSocket.connect(port: gateway.port)
            let anonymous = try await TestSocket.open(port: gateway.port, token: nil)
            let late = try await TestSocket.open(port: gateway.port, token: nil)
            try await eventually("the upgrade is done") { late.status == 101 }
            try await late.send(json: #"{"type":"auth","token":"\#(try await Stack.token(user: "late"))","ref":1}"#)
            #expect(try await late.first("sync")["version"]?.integer == 0)
            #expect(try await anonymous.waitForClose() == 4401)
            try await eventually("the mute one is dropped") { mute.isClosed }
            #expect(late.closeCode == nil)
        }
    }

    @Test("a client that never reads is closed with 4408 when a megabyte waits for it")
    func slowReader() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let bystander = try await TestSocket.synced(port: gateway.port, user: "bystander")
            let slow = try await TestSocket.open(
                port: gateway.port,
                token: try await Stack.token(user: "slow"),
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
