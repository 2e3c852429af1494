// Carillon · IdleTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

/// The commands of a dispatcher that has nothing to do.
@Suite(.timeLimit(.minutes(10)))
struct IdleTests {
    /// Longer than each interval at which a dispatcher without work asks Redis.
    private static let window: Duration = .seconds(6)

    /// The commands that Redis has run, those of scripts included.
    private static func commands(_ stack: Stack) async throws -> Int {
        let text = try await stack.connection.send("INFO", "commandstats").string() ?? ""
        var calls = 0
        for (_, name, count) in text.matches(of: #/cmdstat_([^:]+):calls=(\d+)/#).map(\.output) where name != "info" {
            calls += Int(count) ?? 0
        }
        return calls
    }

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
}
