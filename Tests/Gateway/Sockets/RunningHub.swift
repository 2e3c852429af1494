// Carillon · RunningHub.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import NIOCore
import NIOPosix
import Support

@testable import Sockets

/// A hub of one loop whose tasks run, over a backend that a test gives it.
final class RunningHub: Sendable {
    let hub: SocketHub
    let eventLoop: any EventLoop

    private init(
        _ backend: ScriptedBackend, _ configuration: SocketConfiguration, now: @escaping @Sendable () -> Timestamp
    ) {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        self.eventLoop = eventLoop
        self.hub = SocketHub(
            eventLoopGroup: eventLoop,
            configuration: configuration,
            backend: backend,
            logger: Logger(label: "test"),
            now: now
        )
    }

    /// Runs `body` with it, then opens the gate, at which the backend may still wait, and ends the sockets and the hub.
    static func with(
        _ backend: ScriptedBackend,
        gate: Gate = Gate(),
        now: @escaping @Sendable () -> Timestamp = { Timestamp(seconds: 1_795_000_000) },
        _ change: (inout SocketConfiguration) -> Void = { _ in },
        _ body: (RunningHub) async throws -> Void
    ) async throws {
        var configuration = SocketConfiguration()
        change(&configuration)
        let running = RunningHub(backend, configuration, now: now)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await running.hub.run() }
            do {
                try await body(running)
            } catch {
                await gate.open()
                await running.end()
                throw error
            }
            await gate.open()
            await running.end()
            group.cancelAll()
        }
    }

    /// Opens a socket: of a client that has authenticated already if a user is given.
    func open(_ user: String?, connection: String = "c", client: String? = nil) async throws -> LiveSocket {
        let (eventLoop, hub) = (self.eventLoop, self.hub)
        return try await eventLoop.submit {
            guard let shard = hub.shard(on: eventLoop) else { throw ChannelError.operationUnsupported }
            let session = SocketSession(
                connection: connection,
                identity: user.map { SocketIdentity(user: $0, expiresAt: nil) },
                since: nil,
                client: client,
                shard: shard
            )
            let wire = NotingWire(.native)
            wire.onDrop = { [weak session] in session?.end() }
            session.begin(wire)
            return LiveSocket(session, wire, eventLoop: eventLoop)
        }.get()
    }

    /// The hub would wait for sockets that stay.
    private func end() async {
        let (eventLoop, hub) = (self.eventLoop, self.hub)
        try? await eventLoop.submit {
            guard let shard = hub.shard(on: eventLoop) else { return }
            shard.dropAll()
        }.get()
    }
}

/// A socket of a hub that runs, and what it said.
struct LiveSocket: Sendable {
    private let bound: NIOLoopBound<(session: SocketSession, wire: NotingWire)>

    /// Called on the loop.
    init(_ session: SocketSession, _ wire: NotingWire, eventLoop: any EventLoop) {
        self.bound = NIOLoopBound((session: session, wire: wire), eventLoop: eventLoop)
    }

    /// Calls `body` on the loop.
    func on<Answer: Sendable>(
        _ body: @escaping @Sendable (SocketSession, NotingWire) -> Answer
    ) async throws -> Answer {
        let bound = self.bound
        return try await bound.eventLoop.submit { body(bound.value.session, bound.value.wire) }.get()
    }

    /// Has its client say something.
    func say(_ message: ClientMessage, reference: String? = nil) async throws {
        let reference = reference.map { Array($0.utf8) }
        try await self.on { session, _ in session.obey(message, reference: reference) }
    }

    /// Waits until the first sync was said.
    func synced() async throws -> LiveSocket {
        try await eventually("it is synced") { try await self.on { _, wire in !wire.syncs.isEmpty } }
        return self
    }
}
