// Carillon · SocketsCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import NIOPosix
import Synchronization

/// Jobs a second from XADD to proof on sockets, and how long one takes at a moderate rate.
struct SocketsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "sockets")

    @Option var users = 1_000
    @Option var jobs = 120_000
    @Option var paced = 5_000
    @Option var rate = 500.0

    func run() async throws {
        let gateway = URL(string: try Environment.require("GATEWAY_URL"))
        let load = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
        let names = (0..<self.users).map { "bench-\($0)" }
        try await load.connect(host: gateway?.host() ?? "127.0.0.1", port: gateway?.port ?? 8080, users: names)
        let jobs = JobLoad(redis: try Environment.redis(), stream: "carillon:jobs", type: "payment_received")

        // Warm-up.
        try await jobs.append(2_000, rate: 2_000, batch: 8, user: { names[$0 % names.count] })
        try await Self.await(load, frames: 2_000)

        load.seen.withLock { $0.latencies = [] }
        try await jobs.append(self.paced, rate: self.rate, batch: 1, user: { names[$0 % names.count] })
        try await Self.await(load, frames: 2_000 + self.paced)
        let paced = load.seen.withLock { $0.latencies }.sorted()
        var report = Report("job_to_socket_latency")
        report.add("rate", self.rate)
        report.add("p50_ms", percentile(0.5, paced) * 1_000)
        report.add("p90_ms", percentile(0.9, paced) * 1_000)
        report.add("p99_ms", percentile(0.99, paced) * 1_000)
        try report.print()

        let before = load.seen.withLock { $0.frames }
        let elapsed = try await seconds {
            try await jobs.append(self.jobs, batch: 256, user: { names[$0 % names.count] })
            try await Self.await(load, frames: before + self.jobs)
        }
        var throughput = Report("job_to_socket_rate")
        throughput.add("jobs", self.jobs)
        throughput.add("users", self.users)
        throughput.add("per_second", Double(self.jobs) / elapsed)
        try throughput.print()
        await load.close()
    }

    private static func await(_ load: SocketLoad, frames: Int) async throws {
        let deadline = ContinuousClock.now + .seconds(120)
        while load.seen.withLock({ $0.frames }) < frames {
            guard ContinuousClock.now < deadline else {
                throw ValidationError("only \(load.seen.withLock { $0.frames }) of \(frames) frames came")
            }
            try await Task.sleep(for: .milliseconds(5))
        }
    }
}
