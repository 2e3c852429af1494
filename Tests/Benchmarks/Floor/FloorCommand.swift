// Carillon · FloorCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation

/// Measures Carillon next to plain C programs that do the least that any implementation must do.
struct FloorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "floor",
        abstract: "Measures jobs to sockets and to FCM, and their cost, compared with plain C that does the least."
    )

    @Option(help: "Folder of the compiled Yardsticks/Floor.")
    var yardsticks: String
    @Option(help: "Measure only this: sockets or push.")
    var only: String?
    @Option(help: "Online users.")
    var users = 1_000
    @Option(help: "Jobs to sockets in each round.")
    var jobs = 60_000
    @Option(help: "Jobs of the latency in each round.")
    var paced = 5_000
    @Option(help: "Jobs a second of the latency.")
    var rate = 500
    @Option(help: "Jobs to FCM in each round.")
    var pushes = 20_000
    @Option(help: "Offline users.")
    var offline = 5_000
    @Option(help: "Warm-up jobs before each measurement.")
    var warmUp = 2_000
    @Option(help: "Jobs whose allocations and instructions are counted.")
    var counted = 20_000
    @Option(help: "Rounds; the median counts.")
    var rounds = 3
    @OptionGroup var programs: ProgramOptions

    func validate() throws {
        guard self.only.map({ ["sockets", "push"].contains($0) }) ?? true else {
            throw ValidationError("--only: neither sockets nor push")
        }
        for (name, value) in [
            ("users", self.users), ("jobs", self.jobs), ("paced", self.paced), ("rate", self.rate),
            ("pushes", self.pushes), ("offline", self.offline), ("warm-up", self.warmUp), ("counted", self.counted),
            ("rounds", self.rounds),
        ] {
            guard value >= 1 else { throw ValidationError("--\(name): less than 1") }
        }
    }

    func run() async throws {
        if self.only != "push" { try await self.measureSockets() }
        if self.only != "sockets" { try await self.measurePushes() }
    }

    private func measureSockets() async throws {
        let sockets = FloorSockets(yardsticks: self.yardsticks, users: self.users, warmUp: self.warmUp)
        var samples = FloorSamples()
        for _ in 0..<self.rounds {
            for contender in FloorContender.allCases {
                let figures = try await self.inStack { stack in
                    try await sockets.measure(contender, jobs: self.jobs, paced: (self.paced, self.rate), in: stack)
                }
                samples.add(figures, of: contender)
            }
        }
        for contender in [FloorContender.carillon, .floor] {
            let figures = try await self.inStack { try await sockets.count(contender, jobs: self.counted, in: $0) }
            samples.add(figures, of: contender)
        }
        var latency = Report("floor_latency")
        latency.add("rate", self.rate)
        samples.report(["p50_ms", "p99_ms"], in: &latency)
        try latency.print()
        var report = Report("floor_sockets")
        report.add("jobs", self.jobs)
        report.add("users", self.users)
        samples.reportRest(in: &report)
        try report.print()
    }

    private func measurePushes() async throws {
        let push = FloorPush(yardsticks: self.yardsticks, users: self.offline, warmUp: self.warmUp)
        var samples = FloorSamples()
        for _ in 0..<self.rounds {
            for contender in [FloorContender.carillon, .floor] {
                let figures = try await self.inStack { try await push.measure(contender, jobs: self.pushes, in: $0) }
                samples.add(figures, of: contender)
            }
        }
        for contender in [FloorContender.carillon, .floor] {
            let figures = try await self.inStack { try await push.count(contender, jobs: self.counted, in: $0) }
            samples.add(figures, of: contender)
        }
        var report = Report("floor_push")
        report.add("jobs", self.pushes)
        report.add("users", self.offline)
        samples.reportRest(in: &report)
        try report.print()
    }

    /// Runs a measurement on fresh data.
    private func inStack(
        _ measure: (ScratchStack) async throws -> [String: Double]
    ) async throws -> [String: Double] {
        var figures: [String: Double] = [:]
        try await ScratchStack.use(self.programs) { figures = try await measure($0) }
        return figures
    }
}

/// The measured programs.
enum FloorContender: String, CaseIterable {
    case carillon, floor
    /// The floor without PostgreSQL and proofs: XADD, XREADGROUP, PUBLISH, socket.
    case loop
}

/// The figures of all rounds, by contender and name.
struct FloorSamples {
    private var values: [FloorContender: [String: [Double]]] = [:]

    mutating func add(_ figures: [String: Double], of contender: FloorContender) {
        for (name, value) in figures { self.values[contender, default: [:]][name, default: []].append(value) }
    }

    /// Adds the medians of the named figures.
    func report(_ names: [String], in report: inout Report) {
        for (contender, figures) in self.values {
            for (name, samples) in figures where names.contains(name) {
                report.add("\(contender.rawValue)_\(name)", median(samples))
            }
        }
    }

    /// Adds the medians of all figures but latencies, and the ratios of rate and processor time.
    func reportRest(in report: inout Report) {
        let names = Set(self.values.values.flatMap(\.keys)).filter { !$0.hasSuffix("_ms") }
        self.report(Array(names), in: &report)
        for (ratio, name) in [("ratio", "per_second"), ("cpu_ratio", "cpu_us")] {
            guard let ours = self.values[.carillon]?[name], let least = self.values[.floor]?[name] else { continue }
            report.add(ratio, median(ours) / median(least))
        }
        if !names.contains(where: { $0.hasSuffix("_instructions") }) {
            report.add("instructions", "not counted: no perf, or no such counter on this machine")
        }
    }
}
