// Carillon · DrainTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Synchronization
import Testing

/// How a gateway drains, and how its clients return.
@Suite(.timeLimit(.minutes(10)))
struct DrainTests {
    @Test("SIGTERM refuses new connections, finishes requests and closes sockets with a goodbye and 1012")
    func drain() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "u")
            var sockets: [TestSocket] = []
            for number in 0..<200 {
                sockets.append(try await TestSocket.synced(port: gateway.port, user: "user-\(number)"))
            }
            let body = #"{"zone":"Europe/Zurich"}"#
            let request = try await TestSocket.connect(port: gateway.port)
            let head = [
                "PUT /v1/settings HTTP/1.1", "host: x", "authorization: Bearer \(token)",
                "content-type: application/json", "content-length: \(body.utf8.count)",
            ]
            let bytes = Array((head.joined(separator: "\r\n") + "\r\n\r\n" + body).utf8)
            try await request.send(raw: Array(bytes.dropLast(5)))
            // Only a request that the gateway has read counts as in flight.
            try await eventually("the gateway has read it") { request.isRead }
            let idle = try await TestSocket.connect(port: gateway.port)

            gateway.process.send(SIGTERM)
            try await eventually("new connections are refused") {
                let client = try? await TestSocket.connect(port: gateway.port)
                await client?.close()
                return client == nil
            }
            try await eventually("the idle connection is closed") { idle.isClosed }
            #expect(request.status == nil && !request.isClosed)
            try await request.send(raw: Array(bytes.suffix(5)))
            try await eventually("the request is answered") { request.status == 200 }

            for socket in sockets {
                #expect(try await socket.waitForClose() == 1012)
                await socket.close()
            }
            let delays = sockets.compactMap { $0.all("goodbye").first?["reconnect_after"]?.integer }
            #expect(delays.count == sockets.count)
            // Reconnects are spread over ten seconds.
            #expect(Set(delays.map { $0 / 1_000 }).count > 5)
            #expect(try await gateway.process.waitForExit() == .code(0))
        }
    }

    @Test("a socket and a stream on connections that have served a call end with a goodbye, too")
    func reused() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "u")
            func request(_ path: String, _ fields: String...) -> [UInt8] {
                let head = ["GET \(path) HTTP/1.1", "host: x", "authorization: Bearer \(token)"] + fields
                return Array((head.joined(separator: "\r\n") + "\r\n\r\n").utf8)
            }
            func connect() async throws -> TestSocket {
                let connection = try await TestSocket.connect(port: gateway.port)
                try await connection.send(raw: request("/v1/settings"))
                try await eventually("the call is answered") { connection.status == 200 }
                return connection
            }
            let socket = try await connect()
            try await socket.send(
                raw: request(
                    "/v1/socket", "upgrade: websocket", "connection: Upgrade", "sec-websocket-version: 13",
                    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="))
            _ = try await socket.first("sync")
            let stream = try await connect()
            try await stream.send(raw: request("/v1/stream"))
            try await eventually("it streams") { stream.head.contains("text/event-stream") }

            gateway.process.send(SIGTERM)
            #expect(try await socket.waitForClose() == 1012)
            #expect(socket.all("goodbye").first?["reconnect_after"]?.integer != nil)
            await socket.close()
            try await eventually("the stream is closed") { stream.isClosed }
            // The last chunk has come, and everything before it.
            #expect(stream.head.contains("event: goodbye"))
            #expect(try await gateway.process.waitForExit() == .code(0))
        }
    }

    @Test("2,000 sockets that reconnect at once are all synced while calls are answered")
    func storm() async throws {
        try await Stack.with { stack in
            let port = try FreePort.next()
            let environment = ["GATEWAY_PORT": "\(port)"]
            let first = try await stack.startGateway(name: "first", environment: environment)
            let tokens = try await Self.tokens(2_000)
            let before = try await Self.connect(first, tokens) { _ in }
            try await eventually("all are synced") { before.allSatisfy { !$0.all("sync").isEmpty } }
            first.process.send(SIGKILL)
            try await eventually("all have lost it") { before.allSatisfy(\.isClosed) }
            let second = try await stack.startGateway(name: "second", environment: environment)
            let opened = Mutex<[TestSocket]>([])
            async let connected = Self.connect(second, tokens) { socket in opened.withLock { $0.append(socket) } }
            // A stalled event loop would answer calls only after it has synced all sockets.
            var calls = 0
            var isAnsweredMeanwhile = false
            try await eventually("all are synced") {
                let answer = try await second.call(.get, "/v1/settings", token: tokens[calls % tokens.count])
                #expect(answer.status == 200)
                calls += 1
                let synced = opened.withLock { $0 }.count { !$0.all("sync").isEmpty }
                if synced > 0, synced < tokens.count { isAnsweredMeanwhile = true }
                return synced == tokens.count
            }
            #expect(isAnsweredMeanwhile)
            let after = try await connected
            #expect(after.allSatisfy { $0.closeCode == nil })
        }
    }

    private static func tokens(_ count: Int) async throws -> [String] {
        var tokens: [String] = []
        for number in 0..<count { tokens.append(Stack.token(user: "user-\(number)")) }
        return tokens
    }

    /// - Parameter note: is called with each socket once it is open.
    private static func connect(
        _ gateway: Gateway,
        _ tokens: [String],
        note: @Sendable (TestSocket) -> Void
    ) async throws -> [TestSocket] {
        try await withThrowingTaskGroup(of: TestSocket.self) { group in
            for token in tokens { group.addTask { try await TestSocket.open(port: gateway.port, token: token) } }
            return try await group.reduce(into: []) { sockets, socket in
                note(socket)
                sockets.append(socket)
            }
        }
    }
}
