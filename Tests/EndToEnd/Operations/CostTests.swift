// Carillon · CostTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import Glibc
import Support
import Testing

/// The costs of an idle dispatcher and of a job, in counts that a slow machine does not change.
@Suite(.timeLimit(.minutes(20)))
struct CostTests {
    /// Longer than each interval at which a dispatcher without work asks Redis.
    private static let window: Duration = .seconds(6)

    @Test("an idle dispatcher sends Redis at most ten commands a second")
    func rate() async throws {
        try await Stack.with { stack in
            _ = try await stack.startDispatcher()
            var looks: [(at: ContinuousClock.Instant, commands: Int)] = []
            // Windows that include its start have more.
            try await eventually("six seconds pass with at most sixty commands") {
                let now = ContinuousClock.now
                let commands = try await Self.commands(stack)
                defer { looks.append((now, commands)) }
                let windowStart = looks.last { now - $0.at >= Self.window }
                return windowStart.map { commands - $0.commands <= 60 } ?? false
            }
        }
    }

    private static let users = 50
    /// Eight batches.
    private static let jobs = 2_048
    /// The most rounds of so many jobs that are counted.
    private static let rounds = 6

    /// The costs of a debug build, with a tenth more because chance shapes batches.
    ///
    /// Raise a limit only with a reason. `deploy/bench floor` has the costs of a release build,
    /// which allocates about nine times less: texts made from bytes cost more here and less there.
    private static let limits = JobCosts(dispatcher: 305, gateway: 198, commands: 2.7)

    @Test("a job to a socket with proof costs no more allocations and Redis commands than the limits")
    func job() async throws {
        try await Stack.with { stack in
            let counter = try await AllocationCounter.build(in: stack.directory.path)
            let gateway = try await stack.startGateway(environment: counter.settings("gateway"))
            let dispatcher = try await stack.startDispatcher(environment: counter.settings("dispatcher"))
            var sockets: [TestSocket] = []
            for user in 0..<Self.users {
                sockets.append(try await TestSocket.synced(port: gateway.port, user: "user-\(user)"))
            }
            func counts() async throws -> JobCosts {
                JobCosts(
                    dispatcher: try counter.count("dispatcher"), gateway: try counter.count("gateway"),
                    commands: Double(try await Self.commands(stack)))
            }
            // Caches fill and buffers grow before anything is counted.
            var total = Self.jobs
            try await Self.deliver(total: total, dispatcher, stack)
            var costs: [JobCosts] = []
            // A slow round also counts the work of the passing time, such as pings, and smaller
            // batches. Both only add.
            repeat {
                let before = try await counts()
                total += Self.jobs
                try await Self.deliver(total: total, dispatcher, stack)
                costs.append(try await counts().share(since: before, of: Self.jobs))
            } while !JobCosts.least(costs).isWithin(Self.limits) && costs.count < Self.rounds
            #expect(JobCosts.least(costs).isWithin(Self.limits), "\(costs)")
            #expect(sockets.reduce(0) { $0 + $1.titles.count } == total)
        }
    }

    /// Appends jobs and waits until all are delivered.
    ///
    /// - Parameter total: all jobs so far, with these.
    private static func deliver(total: Int, _ dispatcher: ChildProcess, _ stack: Stack) async throws {
        var batch = RedisBatch()
        for number in 0..<Self.jobs {
            batch.append(
                "XADD", "carillon:jobs", "*", "user", .text("user-\(number % Self.users)"), "type", "payment_received",
                "title", .text("job \(number)"))
        }
        // It then finds whole batches, whatever else the machine does.
        dispatcher.send(SIGSTOP)
        try await stack.connection.run(batch)
        dispatcher.send(SIGCONT)
        try await eventually("all are delivered") {
            let delivered = "SELECT count(*) FROM carillon.notifications WHERE status = 'delivered'"
            return try await stack.query(delivered).first?.int8(0) == Int64(total)
        }
    }

    /// The commands that Redis has run, those of scripts included.
    private static func commands(_ stack: Stack) async throws -> Int {
        let text = try await stack.connection.send("INFO", "commandstats").string() ?? ""
        var calls = 0
        for (_, name, count) in text.matches(of: #/cmdstat_([^:]+):calls=(\d+)/#).map(\.output) where name != "info" {
            calls += Int(count) ?? 0
        }
        return calls
    }
}

/// Heap allocations of both programs and commands of Redis.
private struct JobCosts {
    let dispatcher: Double
    let gateway: Double
    let commands: Double

    func share(since earlier: JobCosts, of jobs: Int) -> JobCosts {
        JobCosts(
            dispatcher: (self.dispatcher - earlier.dispatcher) / Double(jobs),
            gateway: (self.gateway - earlier.gateway) / Double(jobs),
            commands: (self.commands - earlier.commands) / Double(jobs))
    }

    /// Returns the least of each cost; infinite without rounds.
    static func least(_ rounds: [JobCosts]) -> JobCosts {
        JobCosts(
            dispatcher: rounds.map(\.dispatcher).min() ?? .infinity,
            gateway: rounds.map(\.gateway).min() ?? .infinity,
            commands: rounds.map(\.commands).min() ?? .infinity)
    }

    func isWithin(_ limits: JobCosts) -> Bool {
        self.dispatcher <= limits.dispatcher && self.gateway <= limits.gateway && self.commands <= limits.commands
    }
}

/// Counts the heap allocations of programs with the library of the benchmarks.
private struct AllocationCounter {
    private let folder: String

    /// Compiles the library.
    static func build(in folder: String) async throws -> AllocationCounter {
        let compiler = try #require(Commands.find("clang"), "Swift's toolchain has a C compiler")
        let source = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../Benchmarks/Yardsticks/Floor/allocations.c").path
        let build = try await ChildProcess.spawn(
            compiler, ["-O2", "-shared", "-fPIC", "-o", "\(folder)/allocations.so", source], name: "clang",
            directory: folder)
        let end = try await build.waitForExit()
        try #require(end == .code(0), "\(build.errors())")
        return AllocationCounter(folder: folder)
    }

    func settings(_ program: String) -> [String: String] {
        ["LD_PRELOAD": "\(self.folder)/allocations.so", "COUNT_ALLOCATIONS": self.file(program)]
    }

    /// Returns the allocations of a program so far.
    func count(_ program: String) throws -> Double {
        let bytes = try Data(contentsOf: URL(filePath: self.file(program)))
        try #require(bytes.count >= 8)
        return Double(bytes.withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) })
    }

    private func file(_ program: String) -> String { "\(self.folder)/\(program).allocations" }
}
