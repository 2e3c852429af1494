// Carillon · SteadyCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import NIOPosix
import Support
import Synchronization

/// Measures whether anything grows or slows down over many jobs to sockets with proof.
struct SteadyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "steady",
        abstract: "Measures memory, dead tuples, WAL, processor time and latency over a long load."
    )

    private static let stream = "carillon:jobs"
    /// Jobs that are written at once.
    private static let batch = 8

    @Option(help: "Minutes of the load.")
    var minutes = 60.0
    @Option(help: "Equal parts of the time, each with a line of its own.")
    var parts = 12
    @Option(help: "Jobs a second.")
    var rate = 4_000.0
    @Option(help: "Online users.")
    var users = 1_000
    @OptionGroup var programs: ProgramOptions

    func validate() throws {
        guard self.minutes > 0, self.rate > 0, self.users > 0 else {
            throw ValidationError("every number must be positive")
        }
        guard self.parts >= 3 else { throw ValidationError("--parts: must be at least 3, as the first warms up") }
    }

    private var jobsOfPart: Int { max(1, Int(self.minutes * 60 / Double(self.parts) * self.rate)) }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let (gateway, port) = try await stack.gateway()
            let dispatcher = try await stack.dispatcher()
            let sockets = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            let names = (0..<self.users).map { "steady-\($0)" }
            try await sockets.connect(port: port, users: try LoadUser.named(names))
            let programs = ["dispatcher": dispatcher, "gateway": gateway]
            var parts: [[String: Double]] = []
            for part in 1...self.parts {
                let figures = try await self.measure(part, names, sockets, programs, stack)
                var report = Report("steady")
                report.add("part", part)
                report.add("stored", part * self.jobsOfPart)
                for (name, value) in figures { report.add(name, value) }
                try report.print()
                parts.append(figures)
            }
            await sockets.close()
            try await dispatcher.stop()
            try await gateway.stop()

            // The first part fills caches and streams.
            let (second, last) = (parts[1], parts[parts.count - 1])
            var report = Report("steady_ratios")
            for (name, value) in last { report.add(name, value / (second[name] ?? .nan)) }
            try report.print()
        }
    }

    /// Sends the jobs of a part, waits until all are proven on record, and returns its figures.
    private func measure(
        _ part: Int,
        _ users: [String],
        _ sockets: SocketLoad,
        _ programs: [String: ChildProcess],
        _ stack: ScratchStack
    ) async throws -> [String: Double] {
        let jobs = self.jobsOfPart
        sockets.seen.withLock { $0.latencies = [] }
        let before = try await FloorCounters.read(programs, in: stack)
        let load = JobLoad(redis: stack.redis.connection, stream: Self.stream, type: "payment_received")
        try await load.append(jobs, to: users, rate: self.rate, batch: Self.batch)
        try await sockets.frames.reach(part * jobs)
        try await ProofBoard(redis: stack.redis.connection).settle()
        let after = try await FloorCounters.read(programs, in: stack)

        let latencies = sockets.seen.withLock { $0.latencies }.sorted()
        var figures = after.perJob(since: before, jobs: jobs)
        figures["p50_ms"] = percentile(0.5, latencies) * 1_000
        figures["p99_ms"] = percentile(0.99, latencies) * 1_000
        for (name, bytes) in try await self.memory(of: programs, in: stack) {
            figures["\(name)_mb"] = Double(bytes) / 1_000_000
        }
        let tables = try await stack.database.pool.query(
            "SELECT sum(n_dead_tup)::int8 FROM pg_stat_user_tables WHERE schemaname = 'carillon'")
        figures["dead_tuples"] = Double(try tables.first?.int8(0) ?? 0)
        return figures
    }

    /// The memory of each program in bytes; PostgreSQL's without what its processes share.
    private func memory(of programs: [String: ChildProcess], in stack: ScratchStack) async throws -> [String: Int] {
        var memory = programs.mapValues { $0.residentMemory }
        let servers = try await stack.servers()
        memory["redis"] = ProcessTable.memory(of: servers.redis)?.resident
        let postgres = [servers.postmaster] + ProcessTable.children(of: servers.postmaster)
        memory["postgres"] = postgres.reduce(0) { $0 + (ProcessTable.memory(of: $1)?.anonymous ?? 0) }
        return memory
    }
}
