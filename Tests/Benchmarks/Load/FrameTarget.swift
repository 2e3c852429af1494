// Carillon · FrameTarget.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import NIOPosix
import Storage
import Synchronization

/// A server with sockets that get what is published on its channel: a gateway, or the bare server beside it.
struct FrameTarget: Sendable {
    let kind: SocketServer.Kind
    let load: SocketLoad
    let server: ChildProgram
    private let channel: String
    private let redis: RedisConnection

    /// Starts the server and opens a socket for each of `users`, who may occur more than once.
    static func start(
        _ kind: SocketServer.Kind,
        in stack: ScratchStack,
        core: Int?,
        users: [String]
    ) async throws -> FrameTarget {
        let load = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
        load.isTimed.store(false, ordering: .relaxed)
        let server: (program: ChildProgram, port: Int)
        let channel: String
        let known: [LoadUser]
        switch kind {
        case .gateway:
            // All sockets may be one user's.
            server = try await stack.gateway(core: core, settings: ["USER_CONNECTIONS": "100000"])
            channel = Keyspace().nodeChannel(try await stack.node())
            known = try LoadUser.named(users)
        case .bare:
            channel = "bare-\(UInt64.random(in: .min ... .max))"
            server = try await stack.bareServer(["bare-sockets", "--channel", channel], core: core)
            known = LoadUser.bare(users)
        }
        try await stack.awaitSubscriber(of: channel)
        try await load.connect(port: server.port, users: known)
        return FrameTarget(
            kind: kind,
            load: load,
            server: server.program,
            channel: channel,
            redis: stack.redis.connection
        )
    }

    /// An ephemeral event, of which the client gets the same text from either server.
    ///
    /// - Parameter arguments: a JSON array.
    func event(user: String, arguments: String) -> NodeFrame {
        let event = #"{"name":"tick","args":\#(arguments)}"#
        switch self.kind {
        case .gateway: return NodeFrame(kind: .event, user: user, body: Array(event.utf8))
        case .bare:
            return NodeFrame(kind: .event, user: user, body: Array(#"{"type":"event","event":\#(event)}"#.utf8))
        }
    }

    /// Publishes frames in one message.
    func publish(_ frames: some Sequence<NodeFrame>) async throws {
        var message = NodeFrameBatch()
        for frame in frames { message.append(frame) }
        let heard = try await self.redis.send("PUBLISH", .text(self.channel), .bytes(message.bytes)).integer()
        guard heard == 1, self.server.exit == nil else {
            throw ValidationError("\(self.server.name) does not listen any more: \(self.server.log.suffix(1_000))")
        }
    }

    /// Kills the server, and with it the sockets.
    func stop() async throws {
        let closed = self.load.seen.withLock { $0.closed }
        guard closed == 0 else { throw ValidationError("\(closed) sockets were closed") }
        try await self.server.end()
    }
}
