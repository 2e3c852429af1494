// Carillon · SocketServer.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Synchronization

/// A server that a load opens sockets to: a gateway, or the bare server that it is compared with.
struct SocketServer: Sendable {
    enum Kind: Sendable {
        case gateway, bare
    }

    let kind: Kind
    let program: ChildProgram
    let port: Int

    /// - Parameter port: 0 takes any.
    static func start(_ kind: Kind, in stack: ScratchStack, port: Int = 0) async throws -> SocketServer {
        let server: (program: ChildProgram, port: Int)
        switch kind {
        case .gateway: server = try await stack.gateway(port: port)
        case .bare: server = try await stack.bareServer(["bare-sockets", "--port", "\(port)"])
        }
        return SocketServer(kind: kind, program: server.program, port: server.port)
    }

    /// Users with the credentials that it takes.
    func users(_ names: [String]) throws -> [LoadUser] {
        switch self.kind {
        case .gateway: try LoadUser.named(names)
        case .bare: LoadUser.bare(names)
        }
    }

    /// Opens `count` sockets and closes them again: the first ones pay for what all share, such as prepared statements,
    /// pools and code pages.
    func warmUp(_ load: SocketLoad, sockets count: Int) async throws {
        try await load.connect(port: self.port, users: try self.users((0..<count).map { "first-\($0)" }))
        await load.close()
    }

    /// Makes sure that none of the `count` sockets of a load was closed, and that a gateway has registered as many users
    /// as present whose names begin with `prefix`.
    ///
    /// - Throws: `ValidationError` if it is not so.
    func check(_ load: SocketLoad, of prefix: String, count: Int, in stack: ScratchStack) async throws {
        let closed = load.seen.withLock { $0.closed }
        guard closed == 0 else { throw ValidationError("\(closed) sockets of \(self.program.name) were closed") }
        // The bare server keeps no presence.
        guard self.kind == .gateway else { return }
        let present = try await stack.presences(of: prefix)
        guard present == count else { throw ValidationError("\(present) of \(count) users are present") }
    }

    /// Kills it, and waits until `load`, whose sockets it had, has none left open.
    func end(_ load: SocketLoad) async throws {
        try await self.program.end()
        await load.close()
    }
}
