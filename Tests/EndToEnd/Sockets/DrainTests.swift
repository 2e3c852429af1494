// Carillon · DrainTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

/// How a gateway drains, and how its clients return.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct DrainTests {
    @Test("SIGTERM refuses new connections, finishes requests and closes sockets with a goodbye and 1012")
    func drain() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = try await Stack.token(user: "u")
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

            for socket in sockets { #expect(try await socket.waitForClose() == 1012) }
            let delays = sockets.compactMap { $0.all("goodbye").first?["reconnect_after"]?.integer }
            #expect(delays.count == sockets.count)
            // Reconnects are spread over ten seconds.
            #expect(Set(delays.map { $0 / 1_000 }).count > 5)
            #expect(try await gateway.process.waitForExit() == .code(0))
        }
    }

    @Test("a request that never ends does not stop a gateway from ending")
    func bounded() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = try await Stack.token(user: "u")
            let request = try await TestSocket.connect(port: gateway.port)
            let head = [
                "PUT /v1/settings HTTP/1.1", "host: x", "authorization: Bearer \(token)", "content-length: 100",
            ]
            try await request.send(raw: Array((head.joined(separator: "\r\n") + "\r\n\r\n{").utf8))
            _ = try await gateway.call(.get, "/healthz", token: nil)
            gateway.process.send(SIGTERM)
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
            let before = try await Self.connect(first, tokens)
            try await Self.waitUntilSynced(before)
            first.process.send(SIGKILL)
            try await eventually("all have lost it") { before.allSatisfy(\.isClosed) }
            let second = try await stack.startGateway(name: "second", environment: environment)
            let after = try await Self.connect(second, tokens)
            // The best of five, because a busy machine can delay any single call; a stalled event
            // loop delays all.
            var best = Duration.seconds(3_600)
            for _ in 0..<5 {
                let start = ContinuousClock.now
                let answer = try await second.call(.get, "/v1/settings", token: tokens[0])
                best = min(best, ContinuousClock.now - start)
                #expect(answer.status == 200)
            }
            #expect(best < .seconds(5))
            try await Self.waitUntilSynced(after)
        }
    }

    private static func tokens(_ count: Int) async throws -> [String] {
        var tokens: [String] = []
        for number in 0..<count { tokens.append(try await Stack.token(user: "user-\(number)")) }
        return tokens
    }

    private static func connect(_ gateway: Gateway, _ tokens: [String]) async throws -> [TestSocket] {
        try await withThrowingTaskGroup(of: TestSocket.self) { group in
            for token in tokens { group.addTask { try await TestSocket.open(port: gateway.port, token: token) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
    }

    private static func waitUntilSynced(_ sockets: [TestSocket]) async throws {
        try await eventually("all are synced") {
            sockets.allSatisfy { !$0.all("sync").isEmpty }
        }
        #expect(sockets.allSatisfy { $0.closeCode == nil })
    }
}
