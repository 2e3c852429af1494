// Carillon · FrameTarget.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import NIOPosix
import Storage
import Support
import Synchronization

/// A server under a socket load: a gateway or the bare server.
struct SocketServer: Sendable {
    enum Kind: Sendable {
        case gateway, bare
    }

    let kind: Kind
    let program: ChildProcess
    let port: Int

    /// - Parameter port: 0 for any free port.
    static func start(_ kind: Kind, in stack: ScratchStack, port: Int = 0) async throws -> SocketServer {
        let server: (program: ChildProcess, port: Int)
        switch kind {
        case .gateway: server = try await stack.gateway(port: port)
        case .bare: server = try await stack.bareServer(["bare-sockets", "--port", "\(port)"])
        }
        return SocketServer(kind: kind, program: server.program, port: server.port)
    }

    /// Returns users with credentials that the server accepts.
    func users(_ names: [String]) throws -> [LoadUser] {
        switch self.kind {
        case .gateway: try LoadUser.named(names)
        case .bare: LoadUser.bare(names)
        }
    }

    /// Opens and closes `count` sockets, because the first ones pay for prepared statements, pools
    /// and code pages.
    func warmUp(_ load: SocketLoad, sockets count: Int) async throws {
        try await load.connect(port: self.port, users: try self.users((0..<count).map { "first-\($0)" }))
        await load.close()
    }

    /// Checks that no socket of a load was closed, and that a gateway shows `count` users with
    /// `prefix` as present.
    ///
    /// - Throws: `ValidationError` if a check fails.
    func check(_ load: SocketLoad, of prefix: String, count: Int, in stack: ScratchStack) async throws {
        let closed = load.seen.withLock { $0.closed }
        guard closed == 0 else { throw ValidationError("\(closed) sockets of \(self.program.name) were closed") }
        // The bare server has no presence.
        guard self.kind == .gateway else { return }
        let present = try await stack.presences(of: prefix)
        guard present == count else { throw ValidationError("\(present) of \(count) users are present") }
    }

    /// Kills the server and waits until all sockets of `load` are closed.
    func end(_ load: SocketLoad) async throws {
        try await self.program.stop(by: SIGKILL)
        await load.close()
    }
}

/// A server whose sockets get what is published on its channel: a gateway or the bare server.
struct FrameTarget: Sendable {
    let kind: SocketServer.Kind
    let load: SocketLoad
    let server: ChildProcess
    private let channel: String
    private let redis: RedisClient

    /// Starts the server and opens a socket for each of `users`, which may repeat.
    static func start(
        _ kind: SocketServer.Kind,
        in stack: ScratchStack,
        core: Int?,
        users: [String]
    ) async throws -> FrameTarget {
        let load = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
        load.isTimed.store(false, ordering: .relaxed)
        let server: (program: ChildProcess, port: Int)
        let channel: String
        let known: [LoadUser]
        switch kind {
        case .gateway:
            // One user may own all sockets, and opens them at once.
            let settings = ["USER_CONNECTIONS": "100000", "USER_MESSAGES_PER_SECOND": "0"]
            server = try await stack.gateway(core: core, settings: settings)
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

    /// Returns an ephemeral event that clients of both servers receive as the same text.
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
            throw ValidationError("\(self.server.name) has stopped listening: \(self.server.tail())")
        }
    }

    /// Kills the server, which closes the sockets.
    func stop() async throws {
        let closed = self.load.seen.withLock { $0.closed }
        guard closed == 0 else { throw ValidationError("\(closed) sockets were closed") }
        try await self.server.stop(by: SIGKILL)
    }
}
