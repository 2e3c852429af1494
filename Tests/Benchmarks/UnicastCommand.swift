// Carillon · UnicastCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

/// Frames a second through Redis to sockets of as many users, with and without proof, and how long one takes at a moderate
/// rate, beside plain NIO channels that get the same messages.
struct UnicastCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "unicast",
        abstract: "Frames a second, and their time, from PUBLISH to sockets of as many users."
    )

    @Option var sockets = 10_000
    @Option var frames = 300_000
    @Option(help: "Frames before the measurement.")
    var warmUp = 10_000
    @Option(help: "Frames in one message while the server is saturated.")
    var batch = 64
    @Option(help: "Frames that may be on their way while the server is saturated.")
    var window = 4_096
    @Option(help: "Frames for the latency.")
    var paced = 20_000
    @Option(help: "Frames a second for the latency, one in a message.")
    var rate = 2_000.0
    @Option(help: "Bytes of a frame's text.")
    var size = 150
    @OptionGroup var cores: CoreOptions
    @OptionGroup var programs: ProgramOptions

    private struct Figure {
        var rate = UnicastLoad.Rate()
        var latencies: [Double] = []
    }

    func run() async throws {
        try self.cores.bindLoad()
        try await ScratchStack.use(self.programs) { stack in
            let users = (0..<self.sockets).map { "unicast-\($0)" }
            let gateway = try await FrameTarget.start(.gateway, in: stack, core: self.cores.server, users: users)
            let events = try await self.measure(gateway, stack, .events, users)
            let notifications = try await self.measure(gateway, stack, .notifications, users)
            try await gateway.stop()
            let server = try await FrameTarget.start(.bare, in: stack, core: self.cores.server, users: users)
            let bare = try await self.measure(server, stack, .events, users)
            try await server.stop()

            var report = Report("unicast")
            self.add(events, to: &report)
            self.add(bare, to: &report, prefix: "yardstick_nio_")
            report.add("ratio", events.rate.perSecond / bare.rate.perSecond)
            try report.print()

            report = Report("unicast_with_proof")
            self.add(notifications, to: &report)
            report.add("proven_per_second", notifications.rate.provenPerSecond ?? .nan)
            try report.print()
        }
    }

    private func measure(
        _ target: FrameTarget,
        _ stack: ScratchStack,
        _ content: UnicastLoad.Content,
        _ users: [String]
    ) async throws -> Figure {
        let proofs = ProofBoard(redis: stack.redis.connection)
        var load = UnicastLoad(target: target, users: users, content: content, size: self.size)
        _ = try await load.saturate(self.warmUp, batch: self.batch, window: self.window, proofs: proofs)
        let rate = try await load.saturate(self.frames, batch: self.batch, window: self.window, proofs: proofs)
        return Figure(rate: rate, latencies: try await load.pace(self.paced, rate: self.rate))
    }

    private func add(_ figure: Figure, to report: inout Report, prefix: String = "") {
        report.add("sockets", self.sockets)
        report.add("frames", self.frames)
        report.add("rate", self.rate)
        report.add("\(prefix)frames_per_second", figure.rate.perSecond)
        report.add("\(prefix)server_core_share", figure.rate.serverShare)
        report.add("\(prefix)load_core_share", figure.rate.loadShare)
        report.add("\(prefix)p50_ms", percentile(0.5, figure.latencies) * 1_000)
        report.add("\(prefix)p99_ms", percentile(0.99, figure.latencies) * 1_000)
    }
}
