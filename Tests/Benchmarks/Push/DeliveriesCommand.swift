// Carillon · DeliveriesCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Foundation

/// Pushes a second from the deliveries stream to a provider's answer and the record of it.
struct DeliveriesCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "deliveries",
        abstract: "Pushes a second from the deliveries stream to the record of the provider's answer."
    )

    private static let providers: [Provider] = [.fcm, .apns, .webpush]

    @Option(help: "Pushes to each provider.")
    var pushes = 50_000
    @Option var users = 10_000
    @Option(help: "Pushes before each measurement.")
    var warmUp = 2_000
    @Option(help: "Measure this provider alone.")
    var provider: String?
    @Option(help: "The program made of Yardsticks/transfer.c.")
    var yardstick: String
    @OptionGroup var programs: ProgramOptions

    func validate() throws {
        let known = Self.providers.map(\.rawValue)
        if let provider, !known.contains(provider) {
            throw ValidationError("--provider is one of \(known.joined(separator: ", "))")
        }
    }

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            // The tables are the dispatcher's to make.
            let dispatcher = try await stack.dispatcher()
            _ = try await dispatcher.line("ready ")
            for provider in Self.providers where self.provider ?? provider.rawValue == provider.rawValue {
                try await self.measure(provider, dispatcher, stack)
            }
            try await dispatcher.end(by: SIGTERM)
        }
    }

    private func measure(_ provider: Provider, _ dispatcher: ChildProgram, _ stack: ScratchStack) async throws {
        let count = self.warmUp + self.pushes
        let sandbox = try SandboxControl()
        let key = try provider == .webpush ? Self.applicationKey() : ""
        var load = try await DeliveryLoad(
            provider.rawValue, provider: provider, users: self.users, count: count, in: stack
        ) { number in
            let name = "deliveries-\(number)"
            if provider == .webpush { return try await sandbox.subscription(name, key: key) }
            guard provider == .apns else { return name }
            let digits = String(number, radix: 16)
            return String(repeating: "0", count: 64 - digits.count) + digits
        }
        let first = try await sandbox.count(provider.rawValue).accepted
        try await load.append(self.warmUp)
        try await load.drain(by: dispatcher)
        let used = CoreShare.seconds(of: dispatcher.pid)
        let start = ContinuousClock.now
        try await load.append(self.pushes)
        try await load.drain(by: dispatcher)
        let elapsed = (ContinuousClock.now - start).inSeconds
        let spent = CoreShare.seconds(of: dispatcher.pid) - used
        let seen = (try await sandbox.count(provider.rawValue).accepted - first, try await load.accepted())
        guard seen == (count, count) else {
            throw ValidationError("\(seen.0) pushes arrived and \(seen.1) are on record, not \(count)")
        }
        // In the same run, as machines differ and change.
        let plain = try await LibcurlYardstick.rate(program: self.yardstick)
        let rate = Double(self.pushes) / elapsed
        var report = Report("deliveries")
        report.add("provider", provider.rawValue)
        report.add("pushes", self.pushes)
        report.add("settled_per_second", rate)
        report.add("yardstick_libcurl_per_second", plain)
        report.add("ratio", rate / plain)
        report.add("dispatcher_cpu_us", spent * 1_000_000 / Double(self.pushes))
        try report.print()
    }

    /// The key that subscriptions are made with.
    private static func applicationKey() throws -> String {
        try VAPIDKey(file: Array(try Data(contentsOf: URL(filePath: Environment.require("VAPID_KEY"))))).publicKey
    }
}
