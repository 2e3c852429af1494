// Carillon · ConnectsCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import NIOPosix
import Support

/// Measures connects a second to a gateway, with a JWT, presence and the sync of an empty inbox;
/// the yardstick is plain NIO channels.
struct ConnectsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connects",
        abstract: "Measures connects a second with a token, presence and the first sync; yardstick: plain NIO channels."
    )

    @Option var sockets = 19_000
    @Option(help: "Connects in flight.")
    var width = 200
    @Option(help: "Warm-up connects.")
    var warmUp = 500
    @OptionGroup var programs: ProgramOptions

    private struct Figure {
        var perSecond = 0.0
        var serverShare = 0.0
        var loadShare = 0.0
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let gateway = try await self.measure(.gateway, stack)
            let bare = try await self.measure(.bare, stack)
            var report = Report("connects")
            report.add("sockets", self.sockets)
            report.add("width", self.width)
            report.add("per_second", gateway.perSecond)
            report.add("gateway_core_share", gateway.serverShare)
            report.add("load_core_share", gateway.loadShare)
            report.add("yardstick_nio_per_second", bare.perSecond)
            report.add("yardstick_core_share", bare.serverShare)
            report.add("yardstick_load_core_share", bare.loadShare)
            report.add("ratio", gateway.perSecond / bare.perSecond)
            try report.print()
        }
    }

    private func measure(_ kind: SocketServer.Kind, _ stack: ScratchStack) async throws -> Figure {
        let server = try await SocketServer.start(kind, in: stack)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        try await server.warmUp(SocketLoad(group: group), sockets: self.warmUp)

        let load = SocketLoad(group: group)
        let users = try server.users((0..<self.sockets).map { "connect-\($0)" })
        let (serverShare, loadShare) = (CoreShare(of: server.program.identifier), CoreShare())
        let start = ContinuousClock.now
        try await load.connect(port: server.port, users: users, width: self.width)
        let elapsed = (ContinuousClock.now - start).inSeconds
        let figure = Figure(
            perSecond: Double(self.sockets) / elapsed,
            serverShare: serverShare.value,
            loadShare: loadShare.value
        )
        try await server.check(load, of: "connect-", count: self.sockets, in: stack)
        try await server.end(load)
        return figure
    }
}
