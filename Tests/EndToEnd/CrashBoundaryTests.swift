// Carillon · CrashBoundaryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Fixtures
import Foundation
import Glibc
import JSON
import Model
import Redis
import Testing

/// A dispatcher is killed at each boundary between two stages: nothing is lost, and only what a boundary cannot know is sent twice.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct CrashBoundaryTests {
    /// Where the dispatcher dies, and how often the phone may ring.
    struct Boundary: Sendable, CustomTestStringConvertible {
        enum Server: Sendable { case redis, postgres }

        let name: String
        let server: Server
        let words: String
        let side: TripwireProxy.Side
        /// Whether the user holds a socket; a phone otherwise.
        var isOnline = false
        var leastPushes: Int?
        /// A provider that has a push and whose answer is not on record is asked again.
        var mostPushes = 1

        var testDescription: String { self.name }
    }

    static let boundaries: [Boundary] = [
        Boundary(name: "taken, not stored", server: .postgres, words: Self.title, side: .before),
        Boundary(name: "stored, the answer lost", server: .postgres, words: Self.title, side: .after),
        Boundary(
            name: "stored, no deadline, not published", server: .redis, words: "ZADD", side: .before, isOnline: true),
        Boundary(
            name: "deadline set, not published", server: .redis, words: "PUBLISH", side: .before, isOnline: true,
            // The deadline passes before anybody takes over.
            leastPushes: 1),
        Boundary(
            name: "published, not acknowledged", server: .redis, words: "PUBLISH", side: .after, isOnline: true),
        Boundary(name: "stored, not queued", server: .redis, words: ":deliveries:critical\r\n$1\r\n*", side: .before),
        Boundary(name: "queued, not said so", server: .redis, words: ":deliveries:critical\r\n$1\r\n*", side: .after),
        Boundary(name: "queued, not marked", server: .postgres, words: "queued", side: .before),
        Boundary(
            name: "accepted by the provider, not on record", server: .postgres, words: "/messages/", side: .before,
            mostPushes: 2),
        Boundary(
            name: "on record, the answer lost", server: .postgres, words: "/messages/", side: .after),
    ]

    private static let title = "boundary-title"

    @Test("nothing is lost, and nothing comes twice that need not", arguments: Self.boundaries)
    func kill(at boundary: Boundary) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let socket = boundary.isOnline ? try await TestSocket.synced(port: gateway.port, user: "ada") : nil
            let doomed = try await Self.startDoomed(stack, boundary)
            try await stack.append(
                [("user", "ada"), ("type", "payment_received"), ("title", Self.title)],
                stream: "carillon:jobs:critical")
            try await eventually("the wire is tripped") { doomed.proxy.isTripped }
            doomed.process.send(SIGKILL)
            _ = try await stack.startDispatcher(name: "heir")
            let expected = boundary.isOnline ? "delivered" : "sent"
            try await eventually("it reaches its user", within: .seconds(60)) {
                try await stack.statuses(user: "ada") == [Self.title: expected]
            }
            try await eventually("nothing is left to do", within: .seconds(60)) { try await Self.isIdle(stack) }
            let count = stack.pushed()["ada-phone"]?.count ?? 0
            if let socket {
                #expect(socket.titles == [Self.title])
                #expect(count == boundary.leastPushes ?? 0)
            } else {
                #expect((1...boundary.mostPushes).contains(count))
            }
            await doomed.proxy.close()
        }
    }

    private static func startDoomed(
        _ stack: Stack,
        _ boundary: Boundary
    ) async throws -> (process: ChildProcess, proxy: TripwireProxy) {
        let environment: [String: String]
        let proxy: TripwireProxy
        switch boundary.server {
        case .redis:
            proxy = try await TripwireProxy.start(port: stack.redis.port)
            environment = ["REDIS_URL": "redis://127.0.0.1:\(proxy.port)/0"]
        case .postgres:
            let url = try #require(stack.database.flatMap { URLComponents(string: $0.url) })
            proxy = try await TripwireProxy.start(port: url.port ?? 5432)
            var through = url
            through.port = proxy.port
            environment = ["DATABASE_URL": try #require(through.string)]
        }
        let process = try await stack.startDispatcher(name: "doomed", environment: environment)
        proxy.arm(boundary.words, boundary.side)
        return (process, proxy)
    }

    /// Whether no stream and no set holds anything that somebody has yet to do.
    private static func isIdle(_ stack: Stack) async throws -> Bool {
        for stream in ["carillon:jobs:critical", "carillon:{fcm}:deliveries:critical"] {
            if try await stack.connection.send("XLEN", .text(stream)).integer() > 0 { return false }
        }
        for shard in 0..<16 {
            let count = try await stack.connection.send("ZCARD", .text("carillon:unconfirmed:{\(shard)}"))
            if try count.integer() > 0 { return false }
        }
        return try await stack.connection.send("ZCARD", "carillon:{fcm}:retry:critical").integer() == 0
    }
}
