// Carillon · FloorSockets.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Support

/// Jobs to sockets with proof, by Carillon or by `Yardsticks/Floor`, with the same load in C.
struct FloorSockets {
    private static let stream = "carillon:jobs"

    /// The folder of the compiled programs.
    let yardsticks: String
    let users: Int
    let warmUp: Int

    /// Measures the latency of paced jobs, and the rate and the costs of as many as possible.
    ///
    /// The rate counts until all proofs are recorded.
    func measure(
        _ contender: FloorContender,
        jobs: Int,
        paced: (jobs: Int, rate: Int),
        in stack: ScratchStack
    ) async throws -> [String: Double] {
        let run = try await self.start(contender, phases: ["\(paced.jobs)@\(paced.rate)", "\(jobs)"], in: stack)
        let latency = try await run.phase(2, total: self.warmUp + paced.jobs)
        var figures: [String: Double] = [:]
        figures["p50_ms"] = try Tool.figure("p50_ms", in: latency)
        figures["p99_ms"] = try Tool.figure("p99_ms", in: latency)
        guard contender != .loop else {
            try await run.end()
            return figures
        }
        let programs = run.programs.merging(["load": run.load]) { $1 }
        let before = try await FloorCounters.read(programs, in: stack)
        let start = ContinuousClock.now
        let rate = try await run.phase(3, total: self.warmUp + paced.jobs + jobs)
        let elapsed = (ContinuousClock.now - start).inSeconds
        let after = try await FloorCounters.read(programs, in: stack)
        figures.merge(after.perJob(since: before, jobs: jobs)) { $1 }
        figures["per_second"] = Double(jobs) / elapsed
        figures["frames_per_second"] = try Double(jobs) / Tool.figure("seconds", in: rate)
        try await self.check(contender, total: self.warmUp + paced.jobs + jobs, in: stack)
        try await run.end()
        return figures
    }

    /// Counts allocations and, where the machine can, instructions of a job.
    func count(_ contender: FloorContender, jobs: Int, in stack: ScratchStack) async throws -> [String: Double] {
        let work = FloorWork(names: ["dispatcher", "gateway"], yardsticks: self.yardsticks, folder: stack.folder)
        let run = try await self.start(contender, phases: ["\(jobs)"], counting: work, in: stack)
        let counters = try await work.watch(run.programs)
        let before = try await counters.values()
        _ = try await run.phase(2, total: self.warmUp + jobs)
        let after = try await counters.values()
        try await run.end()
        return after.reduce(into: [:]) { $0[$1.key] = ($1.value - (before[$1.key] ?? 0)) / Double(jobs) }
    }

    /// Starts the programs and the load, and runs the warm-up, which is phase 1.
    private func start(
        _ contender: FloorContender,
        phases: [String],
        counting work: FloorWork? = nil,
        in stack: ScratchStack
    ) async throws -> FloorRun {
        // A checkpoint during the measurement would add whole pages to the WAL.
        try await stack.database.pool.withScriptConnection { try $0.execute("CHECKPOINT") }
        let dispatcherSettings = work?.settings("dispatcher") ?? [:]
        let gatewaySettings = work?.settings("gateway") ?? [:]
        let dispatcher: ChildProcess
        let gateway: (program: ChildProcess, port: Int)
        let names = (0..<self.users).map { "floor-\($0)" }
        let clients: [LoadUser]
        if contender == .carillon {
            gateway = try await stack.gateway(settings: gatewaySettings)
            dispatcher = try await stack.dispatcher(settings: dispatcherSettings)
            clients = try LoadUser.named(names)
        } else {
            let arguments = (contender == .loop ? ["-b"] : []) + [stack.redis.url, stack.database.url]
            dispatcher = try await self.program(
                "dispatcher", arguments + [Self.stream], settings: dispatcherSettings, in: stack)
            // It creates the tables.
            _ = try await dispatcher.waitForLine("ready")
            let program = try await self.program("gateway", arguments, settings: gatewaySettings, in: stack)
            gateway = (program, try await ScratchStack.port(of: program))
            clients = LoadUser.bare(names)
        }
        _ = try await dispatcher.waitForLine("ready")
        let file = "\(stack.folder)/users"
        try clients.map { "\($0.name) \($0.token)\n" }.joined().write(toFile: file, atomically: true, encoding: .utf8)
        let load = try await self.program(
            "load", [stack.redis.url, Self.stream, "\(gateway.port)", file, "\(self.warmUp)@2000"] + phases, in: stack)
        _ = try await load.waitForLine("ready")
        let run = FloorRun(
            contender: contender, dispatcher: dispatcher, gateway: gateway.program, load: load,
            redis: stack.redis.connection)
        _ = try await run.phase(1, total: self.warmUp)
        return run
    }

    private func program(
        _ name: String,
        _ arguments: [String],
        settings: [String: String] = [:],
        in stack: ScratchStack
    ) async throws -> ChildProcess {
        try await ChildProcess.spawn(
            "\(self.yardsticks)/floor-\(name)", arguments, environment: settings, directory: stack.folder)
    }

    /// Checks that all jobs are stored and proven.
    private func check(_ contender: FloorContender, total: Int, in stack: ScratchStack) async throws {
        let statement =
            contender == .carillon
            ? "SELECT count(*)::int8 FROM carillon.notifications WHERE status = 'delivered'"
            : "SELECT sum(version)::int8 FROM (SELECT max(version) AS version FROM floor.receipts GROUP BY user_id) r"
        let proven = try await stack.database.pool.query(statement).first?.int8(0) ?? 0
        guard proven == Int64(total) else { throw ValidationError("\(proven) of \(total) jobs are proven on record") }
    }
}

/// Programs that run with a load.
struct FloorRun {
    let contender: FloorContender
    let dispatcher: ChildProcess
    let gateway: ChildProcess
    let load: ChildProcess
    let redis: RedisClient

    var programs: [String: ChildProcess] { ["dispatcher": self.dispatcher, "gateway": self.gateway] }

    /// Runs a phase of the load and waits until all frames have arrived and all proofs are
    /// recorded.
    ///
    /// - Parameter total: the number of jobs after this phase.
    /// - Returns: the load's JSON line.
    func phase(_ number: Int, total: Int) async throws -> String {
        self.load.send(SIGUSR1)
        let line = try await self.load.waitForLine(#"{"phase":\#(number),"#, within: .seconds(180))
        switch self.contender {
        case .carillon: try await ProofBoard(redis: self.redis).settle()
        case .floor: _ = try await self.gateway.waitForLine("proven \(total)")
        case .loop: break
        }
        return line
    }

    func end() async throws {
        for program in [self.load, self.dispatcher, self.gateway] { try await program.stop() }
    }
}
