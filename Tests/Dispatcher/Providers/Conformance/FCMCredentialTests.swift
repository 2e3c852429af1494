// Carillon · FCMCredentialTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import Providers
import Sandbox
import Support
import Synchronization
import Testing

/// FCM's access tokens come from another endpoint than the one for messages.
@Suite("FCM's access tokens", .timeLimit(.minutes(10)))
struct FCMCredentialTests {
    /// A running clock that tests can advance, for both sides.
    private final class SteppedClock: Sendable {
        private let ahead = Mutex<Int64>(0)

        var now: Timestamp { ProviderBench.now + .seconds(self.ahead.withLock { $0 }) }
        var date: Date { Date(timeIntervalSince1970: Double(self.now.microseconds) / 1_000_000) }

        func pass(_ seconds: Int64) {
            self.ahead.withLock { $0 += seconds }
        }
    }

    private static func with(_ body: (ProviderBench, SteppedClock) async throws -> Void) async throws {
        let clock = SteppedClock()
        try await ProviderBench.with(.fcm, change: { $0.clock = { clock.date } }, now: { clock.now }) { bench in
            try await body(bench, clock)
        }
    }

    @Test("a revoked token is renewed, and the message is sent with the new one")
    func revoked() async throws {
        try await Self.with { bench, _ in
            #expect(await bench.send().isAccepted)
            bench.sandbox.revokeAccessTokens()
            #expect(await bench.send().isAccepted)
            #expect(bench.sandbox.accessTokenCounts.issued == 2)
            #expect(bench.sandbox.received().count == 2)
        }
    }

    @Test("does not renew the token for a 401 about Apple's key")
    func thirdParty() async throws {
        try await Self.with { bench, _ in
            #expect(await bench.send("thirdparty-").reaction == .partialConfiguration)
            #expect(await bench.send().isAccepted)
            #expect(bench.sandbox.accessTokenCounts.asked == 1)
        }
    }

    @Test(
        "sends with the cached token while renewal fails, and backs off from the endpoint",
        arguments: TokenFault.allCases)
    func serves(fault: TokenFault) async throws {
        try await Self.with { bench, clock in
            #expect(await bench.send().isAccepted)
            bench.sandbox.failTokens(fault)
            // Five minutes before its end the token is renewed.
            clock.pass(3_310)
            for _ in 0..<3 { #expect(await bench.send().isAccepted) }
            try await eventually("a new token is requested") { bench.sandbox.accessTokenCounts.asked == 2 }
            for _ in 0..<3 { #expect(await bench.send().isAccepted) }
            #expect(bench.sandbox.accessTokenCounts.asked == 2)
            // A hanging request prevents others while it lasts.
            guard fault != .silent else { return }
            try await eventually("it is requested again after the pause") {
                clock.pass(1)
                #expect(await bench.send().isAccepted)
                return bench.sandbox.accessTokenCounts.asked == 3
            }
            #expect(bench.sandbox.accessTokenCounts.issued == 1)
        }
    }

    @Test(
        "without a token, an outage is retried and a refusal is a configuration fault",
        arguments: [
            (TokenFault.unavailable, "token_endpoint_502"), (TokenFault.limited, "token_endpoint_429"),
            (TokenFault.silent, "token_endpoint_timeout"), (TokenFault.torn, "token_endpoint_answer_cut"),
            (TokenFault.refused, "the token endpoint answered 400, invalid_grant"),
        ])
    func noneLeft(fault: TokenFault, reason: String) async throws {
        try await Self.with { bench, clock in
            bench.sandbox.failTokens(fault)
            for _ in 0..<3 {
                let reply = await bench.send()
                let expected: ProviderReply.Result =
                    fault == .refused
                    ? .noCredential(reason: reason) : .unanswered(reason: reason, mayHaveBeenSent: false)
                #expect(reply.result == expected)
            }
            bench.sandbox.failTokens(nil)
            clock.pass(30)
            #expect(await bench.send().isAccepted)
            #expect(bench.sandbox.accessTokenCounts.issued == 1)
        }
    }
}
