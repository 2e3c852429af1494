// Carillon · ClusterCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import NIOPosix
import Storage
import Support
import Synchronization

/// Measures how much more several masters of a Redis Cluster carry than one.
///
/// Each master is held to a small share of a core, so that Redis is the limit also on a machine
/// with few cores.
struct ClusterCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cluster",
        abstract: "Measures jobs to proof a second with 1 to 4 slowed masters, and what idle dispatchers ask."
    )

    @Option(help: "The most masters.")
    var masters = 4
    @Option(help: "Per cent of a core for each master.")
    var percent = 4.0
    @Option(help: "Parts; a multiple of each number of masters, so that none has more work.")
    var parts = 48
    @Option(help: "Online users of each part.")
    var users = 20
    @Option(help: "Jobs for each master.")
    var jobs = 20_000
    @Option(help: "Rounds; the median counts.")
    var rounds = 3
    @Option(help: "Dispatchers; each waits for one master at a time, so more than masters.")
    var dispatchers = 8
    @Option(help: "Seconds before commands are counted; dispatchers look after parts that they gave up for 300.")
    var settle = 315
    @Option(help: "Seconds in which the commands of idle dispatchers are counted.")
    var idle = 30
    @OptionGroup var programs: ProgramOptions

    func validate() throws {
        guard (1...8).contains(self.masters), (2...256).contains(self.parts) else {
            throw ValidationError("--masters must be 1 to 8, and --parts 2 to 256")
        }
        for (name, value) in [
            ("users", self.users), ("jobs", self.jobs), ("rounds", self.rounds), ("dispatchers", self.dispatchers),
            ("settle", self.settle), ("idle", self.idle),
        ] {
            guard value >= 1 else { throw ValidationError("--\(name): less than 1") }
        }
        guard self.percent > 0, self.percent <= 100 else { throw ValidationError("--percent: not above 0 and to 100") }
    }

    func run() async throws {
        var rates: [Int: [Double]] = [:]
        for round in 1...self.rounds {
            for count in 1...self.masters {
                let rate = try await self.rate(of: count)
                rates[count, default: []].append(rate)
                FileHandle.standardError.write(Data("round \(round), masters \(count): \(Int(rate)) jobs/s\n".utf8))
            }
        }
        let one = median(rates[1] ?? [])
        var report = Report("cluster")
        report.add("percent_of_a_core", self.percent)
        report.add("parts", self.parts)
        for (count, samples) in rates {
            report.add("masters_\(count)_per_second", median(samples))
            report.add("masters_\(count)_of_linear", median(samples) / one / Double(count))
        }
        try report.print()
        var idle = Report("cluster_idle")
        let (two, eight) = (try await self.commands(of: 2), try await self.commands(of: 8))
        idle.add("parts", self.parts)
        idle.add("two_commands_per_second", two)
        idle.add("eight_commands_per_second", eight)
        idle.add("ratio", eight / two)
        try idle.print()
    }

    /// Runs `body` with a cluster and with services that use it.
    private func withCluster(
        _ masters: Int,
        dispatchers: Int,
        _ body: (TestCluster, ScratchStack, _ gateway: Int) async throws -> Void
    ) async throws {
        try await ScratchStack.use(self.programs) { stack in
            let cluster = try await TestCluster.start(masters: masters, replicas: false)
            let settings = ["REDIS_URL": cluster.url, "REDIS_PARTS": "\(self.parts)"]
            let gateway = try await stack.gateway(settings: settings)
            var programs = [gateway.program]
            for number in 0..<dispatchers {
                let program = try await stack.dispatcher(name: "dispatcher-\(number)", settings: settings)
                _ = try await program.waitForLine("ready ")
                programs.append(program)
            }
            try await body(cluster, stack, gateway.port)
            for program in programs { try await program.stop() }
        }
    }

    // MARK: Rate

    /// Returns the jobs a second that are stored, shown and proven.
    private func rate(of masters: Int) async throws -> Double {
        var rate = 0.0
        try await self.withCluster(masters, dispatchers: self.dispatchers) { cluster, stack, port in
            let keys = Keyspace(parts: self.parts)
            let users = self.users(keys)
            let load = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            try await load.connect(port: port, users: try LoadUser.named(users))
            load.isTimed.store(false, ordering: .relaxed)
            let redis = try Environment.redis(url: cluster.url)
            let jobs = ClusterJobs(redis: redis, keys: keys)
            try await jobs.append(2_000, to: users)
            try await self.awaitProofs(of: 2_000, in: stack)

            let total = self.jobs * masters
            let gates = try await self.gates(of: cluster)
            let start = ContinuousClock.now
            try await jobs.append(total, to: users)
            try await self.awaitProofs(of: 2_000 + total, in: stack)
            rate = Double(total) / (ContinuousClock.now - start).inSeconds
            for gate in gates { gate.open() }
            await redis.close()
            await load.close()
        }
        return rate
    }

    /// Returns as many users for each part, in turns.
    private func users(_ keys: Keyspace) -> [String] {
        var users: [[String]] = Array(repeating: [], count: self.parts)
        var number = 0
        while users.contains(where: { $0.count < self.users }) {
            let name = "cluster-\(number)"
            if let part = keys.part(of: name).index, users[part].count < self.users { users[part].append(name) }
            number += 1
        }
        return (0..<self.users).flatMap { row in users.map { $0[row] } }
    }

    private func gates(of cluster: TestCluster) async throws -> [CoreGate] {
        var gates: [CoreGate] = []
        for server in cluster.servers {
            let pid = try await TestRedis.withPatience(server.url) { redis in
                try await Self.number("process_id", in: "server", redis)
            }
            gates.append(CoreGate(pid, share: self.percent / 100))
        }
        return gates
    }

    /// Waits until PostgreSQL has so many proofs.
    private func awaitProofs(of count: Int, in stack: ScratchStack) async throws {
        let statement = "SELECT count(*)::int8 FROM carillon.notifications WHERE status = 'delivered'"
        let deadline = ContinuousClock.now + .seconds(600)
        while try await stack.database.pool.query(statement).first?.int8(0) ?? 0 < Int64(count) {
            guard ContinuousClock.now < deadline else { throw ValidationError("not all jobs were proven in 600 s") }
            // Poll, because nothing signals that a proof is stored. Frames cannot be counted: a
            // socket that gets two dispatchers' frames out of order gets the rest in one sync.
            try await Task.sleep(for: .milliseconds(200))
        }
    }

    // MARK: Idle dispatchers

    /// Returns the commands a second that the masters get from idle dispatchers and a gateway.
    private func commands(of dispatchers: Int) async throws -> Double {
        var rate = 0.0
        try await self.withCluster(min(3, self.masters), dispatchers: dispatchers) { cluster, _, _ in
            // Nothing signals that they have forgotten former parts.
            try await Task.sleep(for: .seconds(self.settle))
            let before = try await self.commandsProcessed(cluster)
            let start = ContinuousClock.now
            // The time to measure.
            try await Task.sleep(for: .seconds(self.idle))
            rate = Double(try await self.commandsProcessed(cluster) - before) / (ContinuousClock.now - start).inSeconds
        }
        return rate
    }

    private func commandsProcessed(_ cluster: TestCluster) async throws -> Int {
        var count = 0
        for server in cluster.servers {
            count += try await TestRedis.withPatience(server.url) { redis in
                try await Self.number("total_commands_processed", in: "stats", redis)
            }
        }
        return count
    }

    private static func number(_ name: String, in section: String, _ redis: RedisClient) async throws -> Int {
        let text = try await redis.send("INFO", .text(section)).string() ?? ""
        let line = text.split(whereSeparator: \.isNewline).first { $0.hasPrefix(name + ":") }
        guard let number = line.flatMap({ Int($0.dropFirst(name.count + 1)) }) else {
            throw ValidationError("INFO \(section) has no \(name)")
        }
        return number
    }
}

/// Appends each job to its user's part, like an upstream app that knows the parts.
private struct ClusterJobs {
    private static let width = 8
    private static let batchSize = 240

    let redis: RedisClient
    let keys: Keyspace

    /// Appends `count` jobs to `users` in turn, as fast as the masters take them.
    func append(_ count: Int, to users: [String]) async throws {
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for first in 0..<Self.width {
                tasks.addTask {
                    for start in stride(from: first * Self.batchSize, to: count, by: Self.width * Self.batchSize) {
                        try await self.append(start..<min(count, start + Self.batchSize), to: users)
                    }
                }
            }
            try await tasks.waitForAll()
        }
    }

    private func append(_ numbers: Range<Int>, to users: [String]) async throws {
        var batch = RedisBatch()
        for number in numbers {
            let user = users[number % users.count]
            batch.append(
                "XADD", .text(self.keys.part(of: user).jobs(.normal)), "*", "user", .text(user), "type",
                "payment_received", "title", "Payment received", "body", "EUR 40 from Ada")
        }
        for reply in try await self.redis.send(batch, timeout: .seconds(60)) { _ = try reply.checked() }
    }
}
