// Carillon · SocketsCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import NIOPosix
import Synchronization

/// Measures jobs a second from XADD to sockets, and the latency at a moderate rate.
struct SocketsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sockets",
        abstract: "Measures jobs a second to sockets, and the latency from XADD to the client."
    )

    @Option var users = 1_000
    @Option var jobs = 120_000
    @Option var paced = 5_000
    @Option var rate = 500.0

    func run() async throws {
        let gateway = URL(string: try Environment.require("GATEWAY_URL"))
        let load = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
        let names = (0..<self.users).map { "bench-\($0)" }
        try await load.connect(
            host: gateway?.host() ?? "127.0.0.1",
            port: gateway?.port ?? 8080,
            users: try LoadUser.named(names)
        )
        let jobs = JobLoad(redis: try Environment.redis(), stream: "carillon:jobs", type: "payment_received")
        // Warm-up.
        try await jobs.append(2_000, to: names, rate: 2_000, batch: 8)
        try await load.frames.reach(2_000)
        try await self.measureLatency(load, jobs, names)
        try await self.measureRate(load, jobs, names)
        await load.close()
    }

    private func measureLatency(_ load: SocketLoad, _ jobs: JobLoad, _ names: [String]) async throws {
        load.seen.withLock { $0.latencies = [] }
        try await jobs.append(self.paced, to: names, rate: self.rate, batch: 1)
        try await load.frames.reach(2_000 + self.paced)
        let paced = load.seen.withLock { $0.latencies }.sorted()
        var report = Report("job_to_socket_latency")
        report.add("rate", self.rate)
        report.add("p50_ms", percentile(0.5, paced) * 1_000)
        report.add("p90_ms", percentile(0.9, paced) * 1_000)
        report.add("p99_ms", percentile(0.99, paced) * 1_000)
        try report.print()
    }

    private func measureRate(_ load: SocketLoad, _ jobs: JobLoad, _ names: [String]) async throws {
        let before = load.frames.count
        let start = ContinuousClock.now
        try await jobs.append(self.jobs, to: names)
        let elapsed = try await load.frames.reach(before + self.jobs) - start
        var report = Report("job_to_socket_rate")
        report.add("jobs", self.jobs)
        report.add("users", self.users)
        report.add("per_second", Double(self.jobs) / elapsed.inSeconds)
        try report.print()
    }
}
