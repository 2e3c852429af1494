// Carillon · ProviderTrafficTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Testing

@testable import Pipeline

/// Outcomes that slow due retries down.
struct ProviderTrafficTests {
    private static let start = Timestamp(seconds: 1_000)

    /// The allowance after 100 calls of which `count` end with `result`.
    private static func allowance(_ count: Int, _ result: DeliveryOutcome.Result) -> Int {
        let traffic = ProviderTraffic()
        _ = traffic.allowance(now: Self.start)
        let accepted = DeliveryOutcome.Result.answered(.accepted(id: nil))
        traffic.note(
            Array(repeating: accepted, count: 100 - count) + Array(repeating: result, count: count))
        return traffic.allowance(now: Self.start + .seconds(10))
    }

    @Test(
        "slows retries once more than a tenth of the calls must be retried",
        arguments: [
            .answered(.retry(reason: "HTTP_503", after: nil)),
            .answered(.retryDevice(reason: "HTTP_429", after: .seconds(60))),
            .answered(.configuration(reason: "HTTP_403", concernsAll: false)),
            .unanswered(reason: "timeout", mayHaveBeenSent: true),
            .unanswered(reason: "connect", mayHaveBeenSent: false),
        ] as [DeliveryOutcome.Result])
    func repeated(result: DeliveryOutcome.Result) {
        #expect(Self.allowance(10, result) == .max)
        #expect(Self.allowance(11, result) < .max)
    }

    @Test(
        "does not slow retries for settled calls or calls that a breaker held back",
        arguments: [
            .answered(.deadToken(reason: "UNREGISTERED", evidence: nil)),
            .answered(.refused(reason: "HTTP_400")),
            .answered(.slowDown(reason: "QUOTA_EXCEEDED", after: .seconds(60))),
            .answered(.configuration(reason: "HTTP_403")),
            .noCredential(reason: "token_endpoint_503"), .unsendable(reason: "token_malformed"),
            .heldBack(until: Timestamp(seconds: 2_000), reason: "rate", app: "default"),
            .gone,
        ] as [DeliveryOutcome.Result])
    func over(result: DeliveryOutcome.Result) {
        #expect(Self.allowance(50, result) == .max)
    }

    @Test("does not count messages that break our own rules as success")
    func unsendable() {
        let traffic = ProviderTraffic()
        _ = traffic.allowance(now: Self.start)
        let failed = DeliveryOutcome.Result.answered(.retry(reason: "HTTP_503", after: nil))
        let own = DeliveryOutcome.Result.unsendable(reason: "token_malformed")
        traffic.note(Array(repeating: own, count: 1_000) + Array(repeating: failed, count: 20))
        #expect(traffic.allowance(now: Self.start + .seconds(10)) < .max)
    }

    @Test("does not count calls that a breaker held back as success")
    func undiluted() {
        let traffic = ProviderTraffic()
        _ = traffic.allowance(now: Self.start)
        let quota = DeliveryOutcome.Result.answered(.slowDown(reason: "QUOTA_EXCEEDED", after: .seconds(60)))
        let failed = DeliveryOutcome.Result.answered(.retry(reason: "HTTP_503", after: nil))
        traffic.note(Array(repeating: quota, count: 1_000) + Array(repeating: failed, count: 20))
        #expect(traffic.allowance(now: Self.start + .seconds(10)) < .max)
    }
}
