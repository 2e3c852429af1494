// Carillon · PushLoad.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation

/// Jobs for offline users, from XADD to a provider's answer and to the record of it.
struct PushLoad: ParsableArguments {
    @Option var users = 10_000
    @Option var jobs = 50_000
    @Option(help: "Jobs before the measurement.")
    var warmUp = 1_000
    @Option(help: "The program made of Yardsticks/transfer.c.")
    var yardstick: String

    /// What was measured.
    struct Figures {
        /// Until the provider had them all.
        var accepted: Duration
        /// Until all of them were on record.
        var settled: Duration

        func print(_ name: String, _ load: PushLoad) async throws {
            // In the same run, as machines differ and change.
            let plain = try await LibcurlYardstick.rate(program: load.yardstick)
            let settled = Double(load.jobs) / self.settled.inSeconds
            var report = Report(name)
            report.add("jobs", load.jobs)
            report.add("users", load.users)
            report.add("per_second", Double(load.jobs) / self.accepted.inSeconds)
            report.add("settled_per_second", settled)
            report.add("yardstick_libcurl_per_second", plain)
            report.add("ratio", settled / plain)
            try report.print()
        }
    }

    /// What tells the users of a run from those of another.
    static func tag() -> String { String(UInt32.random(in: .min ... .max), radix: 36) }

    /// The names of as many users as asked for.
    func users(_ tag: String) -> [String] { (0..<self.users).map { "push-\(tag)-\($0)" } }

    /// Registers the devices, measures, and removes them.
    func measure(_ devices: [OfflineUsers.Device], platform: String, provider: String) async throws -> Figures {
        let database = try Environment.database()
        let ids = try await OfflineUsers.register(devices, platform: platform, provider: provider, in: database)
        let figures = try await self.figures(devices.map(\.user), provider: provider, database)
        try await OfflineUsers.remove(ids, in: database)
        return figures
    }

    private func figures(_ users: [String], provider: String, _ database: PostgresPool) async throws -> Figures {
        let sandbox = try SandboxControl()
        let jobs = JobLoad(redis: try Environment.redis(), stream: "carillon:jobs:critical", type: "payment_received")
        let accepted = { try await sandbox.count(provider).accepted }
        let first = try await accepted() + self.warmUp
        try await jobs.append(self.warmUp, to: users, rate: 1_000, batch: 8)
        try await Self.await(first, "pushes", accepted)
        let settled = { try await Self.settled(provider, database) }
        let settledFirst = try await settled()
        let start = ContinuousClock.now
        try await jobs.append(self.jobs, to: users)
        try await Self.await(first + self.jobs, "pushes", accepted)
        let atProvider = ContinuousClock.now - start
        // What of the warm-up was not on record yet only makes the wait longer.
        try await Self.await(settledFirst + self.jobs, "records", settled)
        return Figures(accepted: atProvider, settled: ContinuousClock.now - start)
    }

    private static func settled(_ provider: String, _ database: PostgresPool) async throws -> Int {
        let rows = try await database.query(
            "SELECT count(*) FROM carillon.delivery_attempts WHERE provider = $1 AND outcome = 'accepted'",
            .text(provider)
        )
        return Int(try rows.first?.int8(0) ?? 0)
    }

    private static func await(_ count: Int, _ what: String, _ current: () async throws -> Int) async throws {
        let deadline = ContinuousClock.now + .seconds(180)
        while true {
            let seen = try await current()
            if seen >= count { return }
            guard ContinuousClock.now < deadline else {
                throw ValidationError("\(count - seen) \(what) are missing")
            }
            // Neither the sandbox nor the table tells when it is there, so they are asked.
            try await Task.sleep(for: .milliseconds(20))
        }
    }
}
