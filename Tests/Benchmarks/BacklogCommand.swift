// Carillon · BacklogCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Support

/// Measures how fast a dispatcher drains a backlog, and its memory.
struct BacklogCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "backlog",
        abstract: "Measures the drain rate and memory of a long backlog."
    )

    private static let stream = "carillon:jobs"

    @Option var jobs = 500_000
    @Option var users = 10_000
    @OptionGroup var programs: ProgramOptions

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            // A first run of a dispatcher creates the tables, groups and scripts.
            try await Self.warmUp(stack)
            let emptyMemory = try await stack.redis.usedMemory()
            let load = JobLoad(redis: stack.redis.connection, stream: Self.stream, type: "invoice_created")
            try await load.append(self.jobs, to: (0..<self.users).map { "backlog-\($0)" })
            let fullMemory = try await stack.redis.usedMemory()

            let dispatcher = try await stack.dispatcher()
            let progress = try await self.drain(stack, dispatcher)
            try await dispatcher.stop()
            let endMemory = try await stack.redis.usedMemory()
            let stored = try await stack.stored()
            guard stored == self.jobs + 1_000 else {
                throw ValidationError("stored \(stored) notifications instead of \(self.jobs + 1_000)")
            }

            let tenth = Double(self.jobs) / 10
            let rates = zip(progress, progress.dropFirst()).map { tenth / ($1.time - $0.time) }
            let memory = progress.map { Double($0.memory) / 1_048_576 }
            var report = Report("backlog")
            report.add("jobs", self.jobs)
            report.add("per_second", Double(self.jobs) / (progress[10].time - progress[0].time))
            report.add("second_tenth_per_second", rates[1])
            report.add("last_tenth_per_second", rates[9])
            report.add("last_to_second", rates[9] / rates[1])
            report.add("dispatcher_at_one_tenth_mb", memory[1])
            report.add("dispatcher_at_end_mb", memory[10])
            report.add("dispatcher_growth_mb", memory[10] - memory[1])
            report.add("redis_before_mb", Double(emptyMemory) / 1_048_576)
            report.add("redis_full_mb", Double(fullMemory) / 1_048_576)
            report.add("redis_after_mb", Double(endMemory) / 1_048_576)
            try report.print()
        }
    }

    private static func warmUp(_ stack: ScratchStack) async throws {
        let dispatcher = try await stack.dispatcher()
        let load = JobLoad(redis: stack.redis.connection, stream: Self.stream, type: "invoice_created")
        try await load.append(1_000, to: (0..<1_000).map { "backlog-\($0)" })
        while try await stack.waiting(Self.stream) > 0 {
            guard dispatcher.exit == nil else { throw ValidationError("the dispatcher ended: \(dispatcher.tail())") }
            // Poll, because Redis does not signal an empty stream.
            try await Task.sleep(for: .milliseconds(20))
        }
        try await dispatcher.stop()
    }

    /// Returns the time in seconds and the dispatcher's memory at the start and after each tenth.
    private func drain(
        _ stack: ScratchStack,
        _ dispatcher: ChildProcess
    ) async throws -> [(time: Double, memory: Int)] {
        let start = ContinuousClock.now
        var progress: [(time: Double, memory: Int)] = []
        var last = (time: 0.0, done: 0)
        while progress.count <= 10 {
            let done = self.jobs - (try await stack.waiting(Self.stream))
            let time = (ContinuousClock.now - start).inSeconds
            let memory = dispatcher.residentMemory
            // Start-up does not count towards the first tenth.
            if progress.isEmpty, done > 0 { progress.append((last.time, memory)) }
            while !progress.isEmpty, progress.count <= 10, done >= self.jobs / 10 * progress.count {
                // Interpolate between two samples.
                let share = Double(self.jobs / 10 * progress.count - last.done) / Double(done - last.done)
                progress.append((last.time + (time - last.time) * share, memory))
            }
            last = (time, done)
            guard dispatcher.exit == nil else { throw ValidationError("the dispatcher ended: \(dispatcher.tail())") }
            guard time < 600 else { throw ValidationError("only \(done) of \(self.jobs) jobs done in 600 s") }
            // The interval of the samples.
            try await Task.sleep(for: .milliseconds(20))
        }
        return progress
    }
}

extension ScratchStack {
    /// Returns the number of jobs in a stream.
    fileprivate func waiting(_ stream: String) async throws -> Int {
        Int(try await self.redis.connection.send("XLEN", .text(stream)).integer())
    }

    /// Returns the number of stored notifications.
    fileprivate func stored() async throws -> Int {
        let result = try await self.database.pool.query("SELECT count(*) FROM carillon.notifications")
        return Int(try result.first?.int8(0) ?? 0)
    }
}
