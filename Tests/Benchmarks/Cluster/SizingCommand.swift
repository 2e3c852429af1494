// Carillon · SizingCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import NIOPosix
import Support

/// Measures what a socket and a job take, and prints how many machines a load needs.
struct SizingCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sizing",
        abstract: "Measures what a socket and a job take, and prints what a load needs of each program."
    )

    @Option(help: "Folder of the compiled Yardsticks/Floor.")
    var yardsticks: String
    @Option(help: "Connections to plan for.")
    var connections = 10_000_000
    @Option(help: "Notifications a second to plan for, at the peak.")
    var rate = 1_000_000
    @Option(help: "The share of notifications whose user is online.")
    var online = 0.5
    @Option(help: "The share of its cores that each program may use.")
    var utilisation = 0.6
    @Option(help: "Idle sockets to measure.")
    var sockets = 19_000
    @Option(help: "Jobs to measure.")
    var jobs = 60_000
    @OptionGroup var programs: ProgramOptions

    func validate() throws {
        for (name, value) in [
            ("connections", self.connections), ("rate", self.rate), ("sockets", self.sockets), ("jobs", self.jobs),
        ] {
            guard value >= 1 else { throw ValidationError("--\(name): less than 1") }
        }
        guard (0...1).contains(self.online) else { throw ValidationError("--online must be 0 to 1") }
        guard self.utilisation > 0, self.utilisation <= 1 else {
            throw ValidationError("--utilisation must be above 0 and at most 1")
        }
    }

    func run() async throws {
        let socket = try await self.measureSockets()
        let job = try await self.measureJobs()
        var constants = Report("sizing_constants")
        constants.add("gateway_bytes_per_socket", Int(socket.gateway))
        constants.add("kernel_bytes_per_socket", Int(socket.kernel))
        constants.add("redis_bytes_per_user", Int(socket.redis))
        constants.add("connects_per_second_per_core", socket.connects)
        for (name, value) in job { constants.add(name, value) }
        try constants.print()

        var plan = Report("sizing_plan")
        plan.add("connections", self.connections)
        plan.add("rate", self.rate)
        let gatewayCores = self.cores(job["gateway_us_per_job"], share: self.online)
        plan.add("gateway_cores", gatewayCores)
        plan.add(
            "gateway_and_kernel_gigabytes", Double(self.connections) * (socket.gateway + socket.kernel) / 1e9)
        plan.add(
            "seconds_until_all_are_back", Double(self.connections) / (socket.connects * max(1, gatewayCores)))
        plan.add("dispatcher_cores", self.cores(job["dispatcher_us_per_job"]))
        plan.add("redis_masters", self.cores(job["redis_us_per_job"]))
        plan.add("redis_gigabytes", Double(self.connections) * socket.redis / 1e9)
        plan.add("postgres_cores", self.cores(job["postgres_us_per_job"]))
        plan.add(
            "postgres_terabytes_per_billion", (job["postgres_bytes_per_notification"] ?? .nan) / 1_000)
        try plan.print()
    }

    /// Returns the cores for the planned rate.
    private func cores(_ microseconds: Double?, share: Double = 1) -> Double {
        (Double(self.rate) * share * (microseconds ?? .nan) / 1e6 / self.utilisation).rounded(.up)
    }

    // MARK: Measurements

    /// The costs of an idle native socket.
    private struct Socket {
        var gateway = 0.0
        var kernel = 0.0
        var redis = 0.0
        var connects = 0.0
    }

    private func measureSockets() async throws -> Socket {
        var socket = Socket()
        try await ScratchStack.use(self.programs) { stack in
            let gateway = try await stack.gateway()
            let load = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            let users = try LoadUser.named((0..<self.sockets).map { "sizing-\($0)" })
            let before = (
                resident: gateway.program.residentMemory, kernel: try Self.kernelMemory(),
                redis: try await stack.redis.usedMemory(), used: CoreShare.seconds(of: gateway.program.identifier)
            )
            try await load.connect(port: gateway.port, users: users)
            let used = CoreShare.seconds(of: gateway.program.identifier) - before.used
            // Until buffers of the handshakes are free again.
            try await Task.sleep(for: .seconds(10))
            let count = Double(self.sockets)
            socket.gateway = Double(gateway.program.residentMemory - before.resident) / count
            // Both ends of each connection are on this machine.
            socket.kernel = Double(try Self.kernelMemory() - before.kernel) / count / 2
            socket.redis = Double(try await stack.redis.usedMemory() - before.redis) / count
            socket.connects = count / used
            await load.close()
            try await gateway.program.stop()
        }
        return socket
    }

    /// Returns the kernel's memory for its objects in bytes (proc(5), `meminfo`).
    private static func kernelMemory() throws -> Int {
        let text = try String(contentsOfFile: "/proc/meminfo", encoding: .utf8)
        let line = text.split(separator: "\n").first { $0.hasPrefix("Slab:") } ?? ""
        guard let kilobytes = line.split(separator: " ").dropFirst().first.flatMap({ Int($0) }) else {
            throw ValidationError("/proc/meminfo has no Slab")
        }
        return kilobytes * 1_024
    }

    /// Returns what a job of an online user takes, until its proof is stored.
    private func measureJobs() async throws -> [String: Double] {
        var figures: [String: Double] = [:]
        try await ScratchStack.use(self.programs) { stack in
            let sockets = FloorSockets(yardsticks: self.yardsticks, users: 1_000, warmUp: 2_000)
            let measured = try await sockets.measure(.carillon, jobs: self.jobs, paced: (1_000, 500), in: stack)
            for name in ["gateway", "dispatcher", "redis", "postgres"] {
                figures["\(name)_us_per_job"] = measured["\(name)_us"]
            }
            let size = try await stack.database.pool.query(
                """
                SELECT pg_total_relation_size('carillon.notifications')::int8,
                    (SELECT count(*) FROM carillon.notifications)::int8
                """)
            guard let row = size.first, try row.int8(1) > 0 else { throw ValidationError("nothing was stored") }
            figures["postgres_bytes_per_notification"] = Double(try row.int8(0)) / Double(try row.int8(1))
        }
        return figures
    }
}
