// Carillon · StagesCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import NIOPosix
import Synchronization

/// Where a dispatcher's processor time goes, job by job, and what the rules alone take.
struct StagesCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stages",
        abstract: "Processor time of a job by stage with every rule in use, and of a decision, beside a hash."
    )

    private static let metric = "carillon_stage_cpu_seconds"

    @Option(help: "Users who are online.")
    var users = 1_000
    @Option var jobs = 100_000
    @Option(help: "Jobs before the measurement.")
    var warmUp = 5_000
    @Option(help: "Decisions of each kind.")
    var decisions = 1_000_000
    @Flag(help: "Without templates, preferences, quiet hours and caps.")
    var plain = false
    @OptionGroup var programs: ProgramOptions

    func validate() throws {
        for (name, value) in [("users", self.users), ("jobs", self.jobs), ("decisions", self.decisions)] {
            guard value >= 1 else { throw ValidationError("--\(name) must be 1 or more") }
        }
        guard self.warmUp >= 0 else { throw ValidationError("--warm-up must be 0 or more") }
    }

    func run() async throws {
        try self.measureDecisions()
        try await ScratchStack.use(self.programs) { stack in
            let settings = self.plain ? [:] : try EveryRule.settings(in: stack.folder)
            let (gateway, port) = try await stack.gateway(settings: settings)
            let dispatcher = try await stack.dispatcher(settings: settings)
            let metrics = try await MetricsPage(of: dispatcher)
            let sockets = SocketLoad(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            sockets.isTimed.store(false, ordering: .relaxed)
            let names = (0..<self.users).map { "stages-\($0)" }
            try await sockets.connect(port: port, users: try LoadUser.named(names))
            if !self.plain { try await EveryRule.prepare(names, in: stack.database.pool) }
            let jobs = JobLoad(
                redis: stack.redis.connection,
                stream: "carillon:jobs",
                type: self.plain ? "payment_received" : EveryRule.type,
                variables: self.plain ? nil : EveryRule.variables
            )
            try await jobs.append(self.warmUp, to: names, rate: 5_000, batch: 8)
            try await sockets.frames.reach(self.warmUp)

            let before = try await metrics.values(Self.metric, by: "stage")
            let used = CoreShare.seconds(of: dispatcher.pid)
            let start = ContinuousClock.now
            try await jobs.append(self.jobs, to: names)
            let elapsed = try await sockets.frames.reach(self.warmUp + self.jobs) - start
            // Its last batch may still be acknowledged, which no stage counts.
            let after = try await metrics.values(Self.metric, by: "stage")
            let process = CoreShare.seconds(of: dispatcher.pid) - used
            await sockets.close()
            try await dispatcher.end(by: SIGTERM)
            try await gateway.end(by: SIGTERM)

            var report = Report("stages")
            report.add("jobs", self.jobs)
            report.add("users", self.users)
            report.add("rules", self.plain ? "plain" : "every")
            report.add("per_second", Double(self.jobs) / elapsed.inSeconds)
            var total = 0.0
            for (stage, seconds) in after {
                let each = (seconds - (before[stage] ?? 0)) * 1_000_000 / Double(self.jobs)
                report.add("\(stage)_us", each)
                total += each
            }
            report.add("stages_us", total)
            report.add("process_us", process * 1_000_000 / Double(self.jobs))
            report.add("yardstick_hash_us", DecisionLoad(count: self.decisions).hashMicroseconds())
            try report.print()
        }
    }

    private func measureDecisions() throws {
        let load = DecisionLoad(count: self.decisions)
        var report = Report("decisions")
        report.add("count", self.decisions)
        for kind in DecisionLoad.Kind.allCases { report.add("\(kind.rawValue)_us", try load.microseconds(kind)) }
        report.add("yardstick_hash_us", load.hashMicroseconds())
        try report.print()
    }
}
