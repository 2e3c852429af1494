// Carillon · PushCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation

/// Jobs a second from XADD to FCM, for users who are offline.
struct PushCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "push",
        abstract: "Jobs a second to FCM for offline users."
    )

    @Option var users = 10_000
    @Option var jobs = 50_000
    @Option(help: "Jobs before the measurement.")
    var warmUp = 1_000

    func run() async throws {
        let tag = String(UInt32.random(in: .min ... .max), radix: 36)
        let users = (0..<self.users).map { "push-\(tag)-\($0)" }
        let database = try Environment.database()
        try await OfflineUsers.register(users, prefix: "token-", in: database)
        let elapsed = try await self.measure(users)
        try await OfflineUsers.remove(prefix: "token-push-\(tag)-", in: database)
        var report = Report("job_to_fcm_rate")
        report.add("jobs", self.jobs)
        report.add("users", self.users)
        report.add("per_second", Double(self.jobs) / elapsed.inSeconds)
        try report.print()
    }

    private func measure(_ users: [String]) async throws -> Duration {
        let sandbox = try SandboxControl()
        let jobs = JobLoad(redis: try Environment.redis(), stream: "carillon:jobs:critical", type: "payment_received")
        let first = try await sandbox.count().fcm + self.warmUp
        try await jobs.append(self.warmUp, to: users, rate: 1_000, batch: 8)
        try await sandbox.await(first)
        let start = ContinuousClock.now
        try await jobs.append(self.jobs, to: users)
        try await sandbox.await(first + self.jobs)
        return ContinuousClock.now - start
    }
}
