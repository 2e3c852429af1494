// Carillon · FloodCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import NIOPosix
import Support
import Synchronization

/// Measures how long the jobs and a broadcast of others take while one organisation floods their
/// lane; the yardstick is the same without the flood.
struct FloodCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "flood",
        abstract: "Measures the latency of others' jobs while one organisation floods their lane."
    )

    private static let stream = "carillon:jobs"
    /// The longest wait for the last frames.
    private static let patience: Duration = .seconds(300)

    @Option(help: "Seconds of the flood.")
    var seconds = 600
    @Option(help: "Seconds of the measurement before the flood.")
    var before = 30
    @Option(help: "Jobs a second of the flood.")
    var rate = 25_000.0
    @Option(help: "Jobs a second of the others.")
    var paced = 50.0
    @Option(help: "Users of the others' broadcast.")
    var audience = 20_000
    @OptionGroup var programs: ProgramOptions

    /// The first seconds of a flood, until it is noticed and its first jobs are moved; the settled
    /// figures leave them out.
    private static let onset = 5

    private struct Course {
        /// Seconds, in the order of the frames.
        var latencies: [Double] = []
        /// Seconds until the broadcast was done; nil if it was not.
        var broadcast: Double?
    }

    func validate() throws {
        guard self.seconds > 0, self.before > 0, self.rate > 0, self.paced > 0, self.audience > 0 else {
            throw ValidationError("every number must be positive")
        }
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let (gateway, port) = try await stack.gateway()
            let dispatcher = try await stack.dispatcher(settings: ["BROADCAST_CONFIRM_ABOVE": "0"])
            try await stack.database.pool.query(
                "INSERT INTO carillon.users (user_id) SELECT 'user-' || n FROM generate_series(0, $1::int4 - 1) n",
                .int4(Int32(self.audience)))
            let sockets = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            let names = (0..<100).map { "calm-\($0)" }
            try await sockets.connect(port: port, users: try LoadUser.named(names))
            _ = try await self.measure(5, "warm-up", names, sockets, stack)

            let alone = try await self.measure(self.before, "alone", names, sockets, stack)
            let flood = Task { try await self.flood(stack) }
            let during = try await self.measure(self.seconds, "flooded", names, sockets, stack)
            let sent = try await flood.value
            let waiting = try await stack.redis.connection.send("XLEN", .text(Self.stream)).integer()
            await sockets.close()
            try await dispatcher.stop()
            try await gateway.stop()

            var report = Report("flood")
            report.add("seconds", self.seconds)
            report.add("flood_per_second", Double(sent) / Double(self.seconds))
            report.add("waiting_in_lane", Int(waiting))
            let yardstick = Self.add(alone.latencies, as: "yardstick_", to: &report)
            let flooded = Self.add(during.latencies, as: "", to: &report)
            report.add("p99_ratio", flooded / yardstick)
            let settled = during.latencies.dropFirst(Int(Double(Self.onset) * self.paced))
            if !settled.isEmpty { _ = Self.add(Array(settled), as: "settled_", to: &report) }
            // Left out if it was not done in time.
            if let seconds = alone.broadcast { report.add("yardstick_broadcast_seconds", seconds) }
            if let seconds = during.broadcast { report.add("broadcast_seconds", seconds) }
            try report.print()
        }
    }

    /// Adds the percentiles of latencies to a report, and returns the 99th.
    private static func add(_ latencies: [Double], as prefix: String, to report: inout Report) -> Double {
        let sorted = latencies.sorted()
        let p99 = percentile(0.99, sorted)
        report.add("\(prefix)p50_ms", percentile(0.5, sorted) * 1_000)
        report.add("\(prefix)p99_ms", p99 * 1_000)
        return p99
    }

    /// Sends jobs of the others, and a broadcast, and waits for their frames.
    private func measure(
        _ seconds: Int,
        _ name: String,
        _ users: [String],
        _ sockets: SocketLoad,
        _ stack: ScratchStack
    ) async throws -> Course {
        sockets.seen.withLock { $0.latencies = [] }
        let count = Int(Double(seconds) * self.paced)
        let broadcast = Task { try await self.broadcast(name, within: seconds, stack) }
        let load = JobLoad(
            redis: stack.redis.connection, stream: Self.stream, type: "payment_received", org: "calm")
        try await load.append(count, to: users, rate: self.paced, batch: 1)
        let deadline = ContinuousClock.now + Self.patience
        var latencies: [Double] = []
        while latencies.count < count {
            guard ContinuousClock.now < deadline else {
                throw ValidationError("only \(latencies.count) of \(count) of the others' jobs arrived")
            }
            // Poll, because the broadcast makes frames too, so their number says nothing.
            try await Task.sleep(for: .milliseconds(50))
            latencies = sockets.seen.withLock { $0.latencies }
        }
        return Course(latencies: latencies, broadcast: try await broadcast.value)
    }

    /// Sends a broadcast, and returns the seconds until all its pages are stored.
    private func broadcast(_ name: String, within seconds: Int, _ stack: ScratchStack) async throws -> Double? {
        let start = ContinuousClock.now
        try await stack.redis.connection.send(
            "XADD", "carillon:jobs:bulk", "*", "all", "true", "id", .text(name), "org", "calm", "type",
            "breaking_news", "title", "BREAKING", "body", "Something has happened")
        while ContinuousClock.now - start < .seconds(seconds) {
            let done = try await stack.database.pool.query(
                "SELECT 1 FROM carillon.broadcasts WHERE job_id = $1 AND state = 'done'", .text(name))
            if !done.isEmpty { return (ContinuousClock.now - start).inSeconds }
            // Poll, because the state of a broadcast has no signal.
            try await Task.sleep(for: .milliseconds(50))
        }
        return nil
    }

    /// Floods the lane with one organisation's jobs, for users without socket or device.
    private func flood(_ stack: ScratchStack) async throws -> Int {
        let connection = try Environment.redis(url: stack.redis.url)
        let load = JobLoad(redis: connection, stream: Self.stream, type: "payment_received", org: "loud")
        let users = (0..<10_000).map { "loud-\($0)" }
        let count = Int(self.rate) * self.seconds
        let start = ContinuousClock.now
        var sent = 0
        while sent < count, ContinuousClock.now - start < .seconds(self.seconds) {
            try await load.append(Int(self.rate), to: users, rate: self.rate)
            sent += Int(self.rate)
        }
        await connection.close()
        return sent
    }
}
