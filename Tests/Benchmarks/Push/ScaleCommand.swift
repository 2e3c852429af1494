// Carillon · ScaleCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Support

/// Measures the gain of a second dispatcher when the provider answers late.
struct ScaleCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "scale",
        abstract: "Measures pushes a second of two dispatchers and of one, to a provider that answers late."
    )

    @Option var users = 5_000
    @Option(help: "Provider calls in flight per dispatcher.")
    var calls = 100
    @Option(help: "Jobs per measurement.")
    var jobs = 40_000
    @Option(help: "The provider's response time in milliseconds.")
    var milliseconds = 100
    @Option(help: "Rounds of both, in turns.")
    var rounds = 2
    @Option(help: "Warm-up jobs before each measurement.")
    var warmUp = 500
    @OptionGroup var programs: ProgramOptions

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let sandbox = try await stack.sandbox(slow: self.milliseconds)
            let users = (0..<self.users).map { "scale-\($0)" }
            let devices = users.map { OfflineUsers.Device(user: $0, token: "slow-" + $0) }
            try await OfflineUsers.register(devices, platform: "android", provider: "fcm", in: stack.database.pool)
            var rates: [[Double]] = [[], []]
            for _ in 0..<self.rounds {
                for count in 1...2 { rates[count - 1].append(try await self.measure(count, users, sandbox, stack)) }
            }
            try await sandbox.program.stop()
            let (one, two) = (median(rates[0]), median(rates[1]))
            var report = Report("scale")
            report.add("jobs", self.jobs)
            report.add("answer_after_ms", self.milliseconds)
            report.add("calls", self.calls)
            report.add("one_per_second", one)
            report.add("two_per_second", two)
            report.add("ratio", two / one)
            try report.print()
        }
    }

    /// Returns pushes a second with `count` dispatchers.
    private func measure(
        _ count: Int,
        _ users: [String],
        _ sandbox: ScratchSandbox,
        _ stack: ScratchStack
    ) async throws -> Double {
        var settings = sandbox.settings
        settings["PROVIDER_CALLS"] = String(self.calls)
        var dispatchers: [ChildProcess] = []
        for number in 0..<count {
            dispatchers.append(try await stack.dispatcher(name: "scale-\(number)", settings: settings))
        }
        for dispatcher in dispatchers { _ = try await dispatcher.waitForLine("ready ") }
        let stream = "carillon:jobs:critical"
        let jobs = JobLoad(redis: stack.redis.connection, stream: stream, type: "payment_received")
        let first = try await sandbox.control.count("fcm").accepted
        try await jobs.append(self.warmUp, to: users)
        try await sandbox.control.await(first + self.warmUp)
        try await jobs.append(self.jobs, to: users)
        // Measure only sending, so wait until all jobs are routed.
        let deadline = ContinuousClock.now + .seconds(180)
        while true {
            let rest = try await stack.redis.connection.send("XLEN", .text(stream)).integer()
            if rest == 0 { break }
            guard dispatchers.allSatisfy({ $0.exit == nil }), ContinuousClock.now < deadline else {
                let logs = dispatchers.map { $0.tail() }.joined(separator: "\n")
                throw ValidationError("\(rest) jobs are not routed: \(logs)")
            }
            // Poll, because Redis does not signal an empty stream.
            try await Task.sleep(for: .milliseconds(20))
        }
        let start = ContinuousClock.now
        let sent = try await sandbox.control.count("fcm").accepted
        try await sandbox.control.await(first + self.warmUp + self.jobs)
        let elapsed = ContinuousClock.now - start
        for dispatcher in dispatchers { try await dispatcher.stop() }
        return Double(first + self.warmUp + self.jobs - sent) / elapsed.inSeconds
    }
}
