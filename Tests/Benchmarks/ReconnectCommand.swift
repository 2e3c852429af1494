// Carillon · ReconnectCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import Model
import NIOPosix
import Redis
import Streams
import Synchronization

/// How long all sockets of a gateway take to come back when it is killed and started again.
struct ReconnectCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reconnect",
        abstract: "Seconds until all sockets of a killed gateway are back."
    )

    @Option var sockets = 19_000
    @Option(help: "At most how long a client waits before each attempt, in milliseconds.")
    var jitter = 1_000
    @OptionGroup var programs: ProgramOptions

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let (gateway, port) = try await stack.gateway()
            let node = try await stack.node()
            let names = (0..<self.sockets).map { "return-\($0)" }
            let load = SocketLoad(
                group: MultiThreadedEventLoopGroup(numberOfThreads: 1),
                returningWithin: .milliseconds(self.jitter)
            )
            try await load.connect(port: port, users: try LoadUser.named(names))
            guard load.seen.withLock({ $0.closed }) == 0 else { throw ValidationError("sockets were closed early") }

            let start = ContinuousClock.now
            try await gateway.end(by: SIGKILL)
            let (second, _) = try await stack.gateway(log: "gateway-2", port: port)
            let ready = ContinuousClock.now
            // Each socket was up once before.
            let back = try await load.opened.reach(2 * self.sockets, within: .seconds(120))
            let closed = load.seen.withLock { $0.closed }
            try await self.check(names, stack, node: try await stack.node(besides: [node]))

            var report = Report("reconnect")
            report.add("sockets", self.sockets)
            report.add("jitter_ms", self.jitter)
            report.add("seconds_until_ready", (ready - start).inSeconds)
            report.add("seconds_until_all_back", (back - start).inSeconds)
            report.add("connections_lost_on_the_way", closed - self.sockets)
            try report.print()
            try await second.end()
        }
    }

    /// All users are present on the gateway that came back.
    private func check(_ names: [String], _ stack: ScratchStack, node: String) async throws {
        let registry = PresenceRegistry(connection: stack.redis.connection, keys: Keyspace())
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
