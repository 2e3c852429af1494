// Carillon · RedisCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation

/// Measures the Redis client; the yardstick is `redis-benchmark -P 64 -c 1` with the same commands.
struct RedisCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "redis",
        abstract: "Measures commands a second of the Redis client; yardstick: redis-benchmark."
    )

    @Option var operations = 300_000

    private struct Case {
        let name: String
        let arguments: [RedisArgument]
        let yardstick: [String]
    }

    func run() async throws {
        let redis = try Environment.redis()
        try await redis.send("HSET", "bench:hash", "a", "1", "b", "2", "c", "3", "d", "4")
        let cases = [
            Case(
                name: "XADD",
                arguments: ["XADD", "bench:stream", "MAXLEN", "~", "1000", "*", "field", "value-of-sixteen"],
                yardstick: ["XADD", "bench:stream", "MAXLEN", "~", "1000", "*", "field", "value-of-sixteen"]
            ),
            Case(name: "HGETALL", arguments: ["HGETALL", "bench:hash"], yardstick: ["HGETALL", "bench:hash"]),
            Case(
                name: "PUBLISH",
                arguments: ["PUBLISH", "bench:channel", "value-of-sixteen"],
                yardstick: ["PUBLISH", "bench:channel", "value-of-sixteen"]
            ),
        ]
        for item in cases {
            let yardstick = try self.yardstick(item)
            let batches = try await self.batches(redis, item)
            let tasks = try await self.tasks(redis, item)
            var report = Report("redis_\(item.name.lowercased())")
            report.add("yardstick_redis_benchmark_per_second", yardstick)
            report.add("batch_of_64_per_second", batches)
            report.add("batch_ratio", batches / yardstick)
            report.add("tasks_64_per_second", tasks)
            report.add("tasks_ratio", tasks / yardstick)
            try report.print()
        }
        let rounds = 5_000
        let elapsed = try await seconds {
            for _ in 0..<rounds { try await redis.send("HGETALL", "bench:hash") }
        }
        var report = Report("redis_round_trip")
        report.add("microseconds", elapsed / Double(rounds) * 1_000_000)
        try report.print()
        try await redis.send("DEL", "bench:stream", "bench:hash")
    }

    private func batches(_ redis: RedisClient, _ item: Case) async throws -> Double {
        let rounds = self.operations / 64
        return Double(rounds * 64)
            / (try await seconds {
                for _ in 0..<rounds {
                    var batch = RedisBatch()
                    for _ in 0..<64 { batch.append(item.arguments) }
                    try await redis.run(batch)
                }
            })
    }

    private func tasks(_ redis: RedisClient, _ item: Case) async throws -> Double {
        let rounds = self.operations / 64
        return Double(rounds * 64)
            / (try await seconds {
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for _ in 0..<64 {
                        group.addTask {
                            for _ in 0..<rounds { try await redis.send(item.arguments) }
                        }
                    }
                    try await group.waitForAll()
                }
            })
    }

    /// Returns the rate of `redis-benchmark` for the same command on one connection, 64 in flight.
    private func yardstick(_ item: Case) throws -> Double {
        guard let url = URL(string: try Environment.require("REDIS_URL")) else { return .nan }
        let output = try Tool.run(
            "redis-benchmark",
            [
                "-h", url.host() ?? "127.0.0.1", "-p", String(url.port ?? 6_379), "-P", "64", "-c", "1",
                "-n", String(self.operations), "--csv",
            ] + item.yardstick,
            isQuiet: true)
        let line = output.split(separator: "\n").last ?? ""
        // "COMMAND","requests per second",…
        let fields = line.components(separatedBy: "\",\"")
        guard fields.count > 1, let rate = Double(fields[1]) else {
            throw ValidationError("redis-benchmark printed no figure")
        }
        return rate
    }
}
