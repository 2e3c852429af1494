// Carillon · ReconnectCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import NIOPosix
import Storage
import Support
import Synchronization

/// Measures how long all sockets of a gateway take to reconnect after a kill and restart; the
/// yardstick is plain NIO channels.
struct ReconnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reconnect",
        abstract: "Measures the seconds until all sockets of a killed gateway are back; yardstick: plain NIO channels."
    )

    @Option var sockets = 19_000
    @Option(help: "Longest wait of a client before each attempt, in milliseconds.")
    var jitter = 1_000
    @OptionGroup var programs: ProgramOptions

    /// The times after the kill.
    private struct Course {
        /// Seconds until the server was ready again, and until all sockets were connected.
        var ready = 0.0
        var back = 0.0
        /// Further connections that were lost after those of the kill.
        var lost = 0
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let gateway = try await self.measure(.gateway, stack)
            let bare = try await self.measure(.bare, stack)
            var report = Report("reconnect")
            report.add("sockets", self.sockets)
            report.add("jitter_ms", self.jitter)
            report.add("seconds_until_ready", gateway.ready)
            report.add("seconds_until_all_back", gateway.back)
            report.add("connections_lost_on_the_way", gateway.lost)
            report.add("yardstick_nio_seconds_until_ready", bare.ready)
            report.add("yardstick_nio_seconds_until_all_back", bare.back)
            report.add("yardstick_connections_lost_on_the_way", bare.lost)
            report.add("ratio", gateway.back / bare.back)
            try report.print()
        }
    }

    private func measure(_ kind: SocketServer.Kind, _ stack: ScratchStack) async throws -> Course {
        let first = try await SocketServer.start(kind, in: stack)
        // The restarted gateway is another node; the bare server is not a node.
        var nodes: Set<String> = []
        if kind == .gateway { nodes = [try await stack.node()] }
        let names = (0..<self.sockets).map { "return-\($0)" }
        let load = SocketLoad(
            group: MultiThreadedEventLoopGroup(numberOfThreads: 1),
            returningWithin: .milliseconds(self.jitter)
        )
        try await load.connect(port: first.port, users: try first.users(names))
        guard load.seen.withLock({ $0.closed }) == 0 else { throw ValidationError("sockets closed too early") }

        let start = ContinuousClock.now
        try await first.program.stop(by: SIGKILL)
        let second = try await SocketServer.start(kind, in: stack, port: first.port)
        let ready = ContinuousClock.now
        // Each socket had already opened once.
        let back = try await load.opened.reach(2 * self.sockets, within: .seconds(120))
        let closed = load.seen.withLock { $0.closed }
        if kind == .gateway { try await self.check(names, stack, node: try await stack.node(besides: nodes)) }
        try await second.end(load)
        return Course(
            ready: (ready - start).inSeconds,
            back: (back - start).inSeconds,
            lost: closed - self.sockets
        )
    }

    /// Checks that all users are present on the restarted gateway.
    private func check(_ names: [String], _ stack: ScratchStack, node: String) async throws {
        let registry = PresenceRegistry(Live(stack.redis.connection))
        var rest = names[...]
        var present = 0
        while !rest.isEmpty {
            for presence in try await registry.lookUp(Array(rest.prefix(512))) {
                guard case .online(let connections) = presence else { continue }
                if connections.contains(where: { $0.node == node }) { present += 1 }
            }
            rest = rest.dropFirst(512)
        }
        guard present == names.count else {
            throw ValidationError("\(present) of \(names.count) users are present again")
        }
    }
}
