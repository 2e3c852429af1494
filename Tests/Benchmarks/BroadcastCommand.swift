// Carillon · BroadcastCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import NIOPosix
import Storage
import Support
import Synchronization

/// Measures a broadcast to all users while a critical job arrives every second; the yardstick is a
/// plain insert of the same rows.
struct BroadcastCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "broadcast",
        abstract: "Measures notifications stored a second for all users, and the latency of critical jobs."
    )

    /// The interval of the critical jobs.
    private static let interval: Duration = .seconds(1)

    @Option var users = 1_000_000
    @Option(help: "Sockets, one per user.")
    var online = 10_000
    @Option(help: "Rows of the plain insert.")
    var plainRows = 200_000
    @OptionGroup var programs: ProgramOptions

    private struct Course {
        var stored = 0
        var elapsed = 0.0
        /// The dispatcher's memory at each sample, in bytes.
        var memory: [Int] = []
        var urgent = 0
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let (gateway, port) = try await stack.gateway()
            let dispatcher = try await stack.dispatcher(settings: ["BROADCAST_CONFIRM_ABOVE": "0"])
            try await self.makeUsers(in: stack)
            let sockets = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            let step = max(1, self.users / max(1, self.online))
            let names = (0..<self.online).map { "user-\($0 * step)" }
            try await sockets.connect(port: port, users: try LoadUser.named(names))
            sockets.isTimed.store(false, ordering: .relaxed)
            let urgent = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            try await urgent.connect(port: port, users: try LoadUser.named(["urgent"]))
            let critical = JobLoad(
                redis: stack.redis.connection,
                stream: "carillon:jobs:critical",
                type: "payment_received"
            )
            try await critical.append(200, to: ["urgent"], rate: 100, batch: 1)
            try await urgent.frames.reach(200)
            urgent.seen.withLock { $0.latencies = [] }

            let course = try await self.broadcast(stack, dispatcher, critical)
            try await urgent.frames.reach(200 + course.urgent)
            try await sockets.frames.reach(self.online)
            let latencies = urgent.seen.withLock { $0.latencies }.sorted()
            await sockets.close()
            await urgent.close()
            try await dispatcher.stop()
            try await gateway.stop()
            let plain = try await self.plainInsert(in: stack)

            // The first tenth fills caches and pools.
            let start = course.memory.prefix(max(1, course.memory.count / 10)).max() ?? 0
            var report = Report("broadcast")
            report.add("users", self.users)
            report.add("online", self.online)
            report.add("stored", course.stored)
            report.add("per_second", Double(course.stored) / course.elapsed)
            report.add("yardstick_plain_insert_per_second", plain)
            report.add("ratio_plain_insert", Double(course.stored) / course.elapsed / plain)
            report.add("dispatcher_at_one_tenth_mb", Double(start) / 1_048_576)
            report.add("dispatcher_growth_mb", Double((course.memory.max() ?? 0) - start) / 1_048_576)
            report.add("critical_jobs", course.urgent)
            report.add("critical_p50_ms", percentile(0.5, latencies) * 1_000)
            report.add("critical_p99_ms", percentile(0.99, latencies) * 1_000)
            report.add("critical_longest_ms", (latencies.last ?? .nan) * 1_000)
            try report.print()
        }
    }

    private func makeUsers(in stack: ScratchStack) async throws {
        try await stack.database.pool.query(
            "INSERT INTO carillon.users (user_id) SELECT 'user-' || n FROM generate_series(0, $1::int4 - 1) n",
            .int4(Int32(self.users))
        )
        try await stack.database.pool.withScriptConnection { try $0.execute("VACUUM ANALYZE carillon.users") }
    }

    /// Sends the broadcast, and a critical job every second until it is done.
    private func broadcast(
        _ stack: ScratchStack,
        _ dispatcher: ChildProcess,
        _ critical: JobLoad
    ) async throws -> Course {
        var course = Course()
        let start = ContinuousClock.now
        try await stack.redis.connection.send(
            "XADD", "carillon:jobs:bulk", "*", "all", "true", "id", "extra", "type", "breaking_news", "title",
            "BREAKING", "body", "Something has happened"
        )
        while true {
            try await critical.append(1, to: ["urgent"], batch: 1)
            course.urgent += 1
            // The interval of the critical jobs.
            try await Task.sleep(for: Self.interval)
            course.memory.append(dispatcher.residentMemory)
            guard dispatcher.exit == nil else { throw ValidationError("the dispatcher ended: \(dispatcher.tail())") }
            let result = try await stack.database.pool.query(
                """
                SELECT b.state, (SELECT coalesce(sum(stored), 0)::int8 FROM carillon.broadcast_pages),
                    (SELECT (extract(epoch FROM max(at) - min(at)) * 1000000)::int8 FROM carillon.broadcast_pages)
                FROM carillon.broadcasts b
                """
            )
            if let row = result.first, try row.text(0) == "done" {
                course.stored = Int(try row.int8(1))
                course.elapsed = Double(try row.int8(2)) / 1_000_000
                return course
            }
            guard ContinuousClock.now - start < .seconds(600) else { throw ValidationError("took over 600 s") }
        }
    }

    /// Returns the rows a second of a plain insert on one connection, in batches of a page (1,000
    /// rows).
    private func plainInsert(in stack: ScratchStack) async throws -> Double {
        let work = PersistWork(rows: self.plainRows, users: self.users, batchSize: 1_000)
        let pool = stack.database.pool
        let elapsed = try await seconds {
            for statement in work.plainInserts { try await pool.run([statement]) }
        }
        return Double(self.plainRows) / elapsed
    }
}
