// Carillon · ExcessSocketTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore
import NIOPosix
import Support
import Testing

@testable import Sockets

@Suite("Users with too many sockets", .timeLimit(.minutes(10)))
struct ExcessSocketTests {
    @Test("looks only at users with too many sockets, whatever loops these are on")
    func excess() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        try await withCleanUp {
            try await group.shutdownGracefully()
        } _: {
            var configuration = SocketConfiguration()
            configuration.connectionsPerUser = 1
            let hub = SocketHub(
                eventLoopGroup: group, configuration: configuration, backend: ScriptedBackend(),
                logger: TestLog.logger, now: { Timestamp(seconds: 1_795_000_000) })
            for number in 0..<10 {
                _ = try await LiveSocket.open("user-\(number)", of: hub, on: hub.loops.eventLoops[number % 2])
            }
            let first = try await LiveSocket.open("a", of: hub, on: hub.loops.eventLoops[0])
            try await first.on { session, _ in session.end() }
            _ = try await LiveSocket.open("a", of: hub, on: hub.loops.eventLoops[1])
            #expect(hub.excessSockets.count == 0)
            _ = try await LiveSocket.open("a", of: hub, on: hub.loops.eventLoops[0])
            #expect(hub.excessSockets.count == 1)
        }
    }

    @Test("closes the oldest sockets only for newer ones that are not closing")
    func leaving() async throws {
        try await RunningHub.with(ScriptedBackend(), { $0.connectionsPerUser = 2 }) { running in
            let oldest = try await running.open("a").synced()
            // Its client does not answer the close, so it stays for a while.
            let closing = try await running.open("a").synced()
            try await closing.on { session, _ in session.failed() }
            let newer = try await running.open("a").synced()
            // The hub looks at users in order, so it has looked at the first when it closes this.
            let other = try await running.open("b").synced()
            for _ in 0..<2 { _ = try await running.open("b").synced() }
            try await eventually("the other's oldest is closed") {
                try await Self.end(of: other) == .tooManyConnections
            }
            #expect(try await Self.end(of: oldest) == nil)
            _ = try await running.open("a").synced()
            try await eventually("the oldest is closed") { try await Self.end(of: oldest) == .tooManyConnections }
            #expect(try await Self.end(of: closing) == .tryAgainLater)
            #expect(try await Self.end(of: newer) == nil)
        }
    }

    private static func end(of socket: LiveSocket) async throws -> SocketEnd? {
        try await socket.on { _, wire in wire.end }
    }
}
