// Carillon · FanoutCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Storage
import Support

/// Measures frames a second from one event to many sockets of a node; the yardstick is plain NIO
/// channels.
struct FanoutCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fanout",
        abstract: "Measures frames a second of one event to all sockets of a node."
    )

    @Option var sockets = 10_000
    @Option var rounds = 200
    @Option(help: "Warm-up rounds.")
    var warmUp = 10
    @Option(help: "Frames per socket and round, sent in one write; repeat to measure several.")
    var waiting = [1, 5]
    @Option(help: "Size of an event's text in bytes.")
    var size = 150
    @OptionGroup var cores: CoreOptions
    @OptionGroup var programs: ProgramOptions

    private struct Figure {
        var perSecond = 0.0
        var medianRound = 0.0
        var serverShare = 0.0
        var loadShare = 0.0
    }

    func run() async throws {
        try self.cores.bindLoad()
        try await ScratchStack.use(self.programs) { stack in
            let gateways = try await self.measure(.gateway, stack)
            let bares = try await self.measure(.bare, stack)
            for (waiting, (gateway, bare)) in zip(self.waiting, zip(gateways, bares)) {
                var report = Report("fanout")
                report.add("sockets", self.sockets)
                report.add("waiting", waiting)
                report.add("rounds", self.rounds)
                report.add("frames_per_second", gateway.perSecond)
                report.add("median_round_ms", gateway.medianRound * 1_000)
                report.add("gateway_core_share", gateway.serverShare)
                report.add("load_core_share", gateway.loadShare)
                report.add("yardstick_nio_frames_per_second", bare.perSecond)
                report.add("yardstick_median_round_ms", bare.medianRound * 1_000)
                report.add("yardstick_core_share", bare.serverShare)
                report.add("yardstick_load_core_share", bare.loadShare)
                report.add("ratio", gateway.perSecond / bare.perSecond)
                try report.print()
            }
        }
    }

    /// Returns a figure for each number of waiting frames.
    private func measure(_ kind: SocketServer.Kind, _ stack: ScratchStack) async throws -> [Figure] {
        let target = try await FrameTarget.start(
            kind,
            in: stack,
            core: self.cores.server,
            users: Array(repeating: "fanout", count: self.sockets)
        )
        let text = String(repeating: "x", count: self.size)
        let event = target.event(user: "fanout", arguments: #"["\#(text)"]"#)
        var figures: [Figure] = []
        for waiting in self.waiting {
            figures.append(try await self.measure(target, Array(repeating: event, count: waiting)))
        }
        try await target.stop()
        return figures
    }

    private func measure(_ target: FrameTarget, _ frames: [NodeFrame]) async throws -> Figure {
        for _ in 0..<self.warmUp { _ = try await self.round(target, frames) }
        let (server, load) = (CoreShare(of: target.server.identifier), CoreShare())
        var times: [Double] = []
        for _ in 0..<self.rounds { times.append(try await self.round(target, frames)) }
        return Figure(
            perSecond: Double(self.rounds * self.sockets * frames.count) / times.reduce(0, +),
            medianRound: median(times),
            serverShare: server.value,
            loadShare: load.value
        )
    }

    /// Returns the seconds from the publication until the last socket has received.
    private func round(_ target: FrameTarget, _ frames: [NodeFrame]) async throws -> Double {
        let count = target.load.frames.count + self.sockets * frames.count
        let start = ContinuousClock.now
        try await target.publish(frames)
        return (try await target.load.frames.reach(count) - start).inSeconds
    }
}
