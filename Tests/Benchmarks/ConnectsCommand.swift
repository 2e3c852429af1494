// Carillon · ConnectsCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import NIOPosix
import Synchronization

/// Connects a second of a gateway of its own, each with a JWT, presence and the sync of an empty inbox.
struct ConnectsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connects",
        abstract: "Connects a second with a token, presence and the first sync."
    )

    @Option var sockets = 19_000
    @Option(help: "Connects that may be on their way.")
    var width = 200
    @Option(help: "Connects before the measurement.")
    var warmUp = 500
    @OptionGroup var programs: ProgramOptions

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let (gateway, port) = try await stack.gateway()
            let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
            let first = SocketLoad(group: group)
            try await first.connect(port: port, users: try LoadUser.named((0..<self.warmUp).map { "first-\($0)" }))
            await first.close()

            let load = SocketLoad(group: group)
            let users = try LoadUser.named((0..<self.sockets).map { "connect-\($0)" })
            let (gatewayShare, loadShare) = (CoreShare(of: gateway.pid), CoreShare())
            let start = ContinuousClock.now
            try await load.connect(port: port, users: users, width: self.width)
            let elapsed = (ContinuousClock.now - start).inSeconds
            let shares = (gateway: gatewayShare.value, load: loadShare.value)
            let closed = load.seen.withLock { $0.closed }
            let present = try await stack.presences(of: "connect-")
            guard closed == 0, present == self.sockets else {
                throw ValidationError("\(closed) sockets were closed, \(present) of \(self.sockets) users are present")
            }
            var report = Report("connects")
            report.add("sockets", self.sockets)
            report.add("width", self.width)
            report.add("per_second", Double(self.sockets) / elapsed)
            report.add("gateway_core_share", shares.gateway)
            report.add("load_core_share", shares.load)
            try report.print()
            try await gateway.end()
        }
    }
}
