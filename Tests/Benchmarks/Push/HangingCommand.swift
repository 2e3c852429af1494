// Carillon · HangingCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Foundation

/// What one provider that hangs takes from another.
struct HangingCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "hanging",
        abstract: "Pushes a second to FCM alone, and while APNs answers everything after 30 s."
    )

    @Option(help: "Pushes to FCM in each round.")
    var pushes = 30_000
    @Option(help: "Pushes to APNs, which hangs.")
    var hanging = 20_000
    @Option(help: "Rounds of each kind.")
    var rounds = 3
    @Option var users = 5_000
    @OptionGroup var programs: ProgramOptions

    func run() async throws {
        try await ScratchStack.use(self.programs) { stack in
            let sandbox = try await stack.sandbox(slow: 30_000)
            let dispatcher = try await stack.dispatcher(settings: sandbox.settings)
            _ = try await dispatcher.line("ready ")
            let total = self.pushes * (1 + 2 * self.rounds)
            var fcm = try await DeliveryLoad("fcm", provider: .fcm, users: self.users, count: total, in: stack) {
                "deliveries-\($0)"
            }
            // Tokens that the sandbox answers late.
            var apns = try await DeliveryLoad(
                "apns", provider: .apns, users: self.users, count: self.hanging, in: stack
            ) { number in
                let digits = String(number, radix: 16)
                return "deade100" + String(repeating: "0", count: 56 - digits.count) + digits
            }
            // The first round fills caches and connections.
            _ = try await self.rate(&fcm, dispatcher)
            var alone: [Double] = []
            for _ in 0..<self.rounds { alone.append(try await self.rate(&fcm, dispatcher)) }
            let before = Environment.residentMemory(pid: dispatcher.pid)
            try await apns.append(self.hanging)
            var beside: [Double] = []
            var memory = before
            for _ in 0..<self.rounds {
                beside.append(try await self.rate(&fcm, dispatcher))
                memory = max(memory, Environment.residentMemory(pid: dispatcher.pid))
            }
            try await dispatcher.end(by: SIGKILL)
            try await sandbox.program.end(by: SIGTERM)
            var report = Report("hanging")
            report.add("pushes", self.pushes)
            report.add("alone_per_second", median(alone))
            report.add("beside_per_second", median(beside))
            report.add("ratio", median(beside) / median(alone))
            report.add("dispatcher_growth_mb", Double(memory - before) / 1_048_576)
            try report.print()
        }
    }

    private func rate(_ load: inout DeliveryLoad, _ dispatcher: ChildProgram) async throws -> Double {
        let start = ContinuousClock.now
        try await load.append(self.pushes)
        try await load.drain(by: dispatcher)
        return Double(self.pushes) / (ContinuousClock.now - start).inSeconds
    }
}
