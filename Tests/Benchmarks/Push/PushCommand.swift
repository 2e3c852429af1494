// Carillon · PushCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Crypto
import Foundation

/// Measures jobs a second from XADD to FCM, for offline users.
struct PushCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "push",
        abstract: "Measures jobs a second to FCM for offline users."
    )

    @OptionGroup var load: PushLoad

    func run() async throws {
        let tag = PushLoad.tag()
        let devices = self.load.users(tag).map { OfflineUsers.Device(user: $0, token: "token-\($0)") }
        try await self.load.measure(devices, platform: "android", provider: "fcm").print("job_to_fcm_rate", self.load)
    }
}

/// Measures encrypted messages a second, and jobs a second from XADD to a browser's push service,
/// for offline users.
struct WebPushCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "webpush",
        abstract: "Measures encrypted messages a second (yardstick: OpenSSL's ECDH) and jobs a second to Web Push."
    )

    @OptionGroup var load: PushLoad
    @Option(help: "Messages to encrypt in each round.")
    var messages = 20_000
    @Option(help: "Rounds; the median counts.")
    var rounds = 3

    func run() async throws {
        try self.measureEncryption()
        let tag = PushLoad.tag()
        let key = try VAPIDKey(file: Array(try Data(contentsOf: URL(filePath: Environment.require("VAPID_KEY")))))
        let sandbox = try SandboxControl()
        var devices: [OfflineUsers.Device] = []
        for user in self.load.users(tag) {
            devices.append(.init(user: user, token: try await sandbox.subscription(user, key: key.publicKey)))
        }
        try await self.load.measure(devices, platform: "web", provider: "webpush")
            .print("job_to_webpush_rate", self.load)
    }

    private func measureEncryption() throws {
        let encryption = try WebPushEncryption()
        let message = Array(String(repeating: "m", count: 400).utf8)
        let browsers = (0..<100).map { _ in Array(P256.KeyAgreement.PrivateKey().publicKey.x963Representation) }
        let secret = [UInt8](repeating: 7, count: 16)
        var yardsticks: [Double] = []
        var ours: [Double] = []
        for _ in 0..<self.rounds {
            yardsticks.append(try Self.yardstick())
            let start = ContinuousClock.now
            for number in 0..<self.messages {
                _ = try encryption.encrypt(message, publicKey: browsers[number % browsers.count], secret: secret)
            }
            ours.append(Double(self.messages) / (ContinuousClock.now - start).inSeconds)
        }
        var report = Report("webpush_encryption")
        report.add("messages", self.messages)
        report.add("per_second", median(ours))
        report.add("yardstick_openssl_ecdhp256_per_second", median(yardsticks))
        report.add("ratio", median(ours) / median(yardsticks))
        try report.print()
    }

    /// Returns ECDH operations a second: each multiplies a point other than the generator, as each
    /// message does once, besides one multiplication of the generator.
    private static func yardstick() throws -> Double {
        // `openssl speed` ends with SIGALRM, which Swift's threads and their children block.
        let output = try Tool.run(
            "env", ["--default-signal=ALRM", "openssl", "speed", "-seconds", "1", "ecdhp256"], isQuiet: true)
        let line = output.split(separator: "\n").last { $0.contains("nistp256") }
        guard let figure = line?.split(separator: " ").last.flatMap({ Double($0) }) else {
            throw ValidationError("openssl speed printed no figure")
        }
        return figure
    }
}

/// Jobs for offline users, from XADD to a provider's answer and its record.
struct PushLoad: ParsableArguments {
    @Option var users = 10_000
    @Option var jobs = 50_000
    @Option(help: "Warm-up jobs.")
    var warmUp = 1_000
    @Option(help: "Path of the compiled Yardsticks/transfer.c.")
    var yardstick: String

    /// The measured times.
    struct Figures {
        /// Until the provider had accepted all.
        var accepted: Duration
        /// Until all were recorded.
        var settled: Duration

        func print(_ name: String, _ load: PushLoad) async throws {
            // Measured in the same run, because machines differ and change.
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

    /// Returns a random tag for the users of a run.
    static func tag() -> String { String(UInt32.random(in: .min ... .max), radix: 36) }

    /// Returns the names of the users.
    func users(_ tag: String) -> [String] { (0..<self.users).map { "push-\(tag)-\($0)" } }

    /// Registers the devices, measures, and removes the devices.
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
        // Unrecorded pushes of the warm-up only make this wait longer.
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
            // Poll, because neither the sandbox nor the table signals completion.
            try await Task.sleep(for: .milliseconds(20))
        }
    }
}
