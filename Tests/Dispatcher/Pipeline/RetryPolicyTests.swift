// Carillon · RetryPolicyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Pipeline

struct RetryPolicyTests {
    private static let now = Timestamp(seconds: 1_000)
    private static let policy = RetryPolicy(backoff: Backoff(base: .seconds(1), limit: .seconds(8)), tries: 4)

    private static func next(
        tried: Int,
        minimum: Duration? = nil,
        expiresAt: Timestamp? = nil
    ) -> Timestamp? {
        var generator = SystemRandomNumberGenerator()
        return self.policy.next(
            tried: tried,
            minimum: minimum,
            now: self.now,
            expiresAt: expiresAt,
            using: &generator
        )
    }

    @Test("doubles the ceiling of delays and ends after the last attempt", arguments: 1...3)
    func ceiling(tried: Int) throws {
        for _ in 0..<200 {
            let due = try #require(Self.next(tried: tried))
            #expect(due >= Self.now)
            #expect(due <= Self.now + .seconds(1 << (tried - 1)))
        }
        #expect(Self.next(tried: 4) == nil)
    }

    @Test("waits at least as long as the provider asks")
    func floor() throws {
        for _ in 0..<200 {
            let due = try #require(Self.next(tried: 1, minimum: .seconds(60)))
            #expect(due >= Self.now + .seconds(60))
            #expect(due <= Self.now + .seconds(61))
        }
    }

    @Test("does not retry after expiry")
    func expiry() {
        #expect(Self.next(tried: 1, minimum: .seconds(60), expiresAt: Self.now + .seconds(60)) == nil)
        #expect(Self.next(tried: 1, minimum: .seconds(60), expiresAt: Self.now + .seconds(120)) != nil)
    }

    /// The longest delay before each retry of a policy.
    private static func ceilings(_ lane: Lane, _ provider: Provider) -> [Duration] {
        let policy = RetryPolicy.of(lane, provider)
        return (0..<policy.tries - 1).map { policy.backoff.ceiling(attempt: $0) }
    }

    @Test(
        "waits up to these ceilings, which add up to this total",
        arguments: [
            (.critical, .fcm, [1, 2, 4, 8, 15, 15], 40, 540),
            (.normal, .fcm, [15, 30, 60, 120, 240, 480, 960], 8, 1_905),
            (.bulk, .fcm, [60, 120, 240, 480, 960, 1_920, 3_840, 7_200, 7_200], 16, 65_220),
            (.critical, .email, [60, 120, 240, 480, 900, 900], 40, 32_400),
            (.normal, .email, [120, 240, 480, 960, 1_920, 3_600, 3_600], 24, 68_520),
            (.bulk, .email, [300, 600, 1_200, 2_400, 4_800, 7_200, 7_200], 16, 81_300),
        ] as [(Lane, Provider, [Int], Int, Int)]
    )
    func table(lane: Lane, provider: Provider, first: [Int], tries: Int, total: Int) {
        let ceilings = Self.ceilings(lane, provider)
        #expect(Array(ceilings.prefix(first.count)) == first.map { Duration.seconds($0) })
        #expect(ceilings.count == tries - 1)
        let sum = ceilings.reduce(Duration.zero) { $0 + $1 }
        #expect(sum == .seconds(total))
        // Retries end within a day.
        #expect(total <= 86_400)
    }

    @Test("delays all push services alike", arguments: Lane.allCases, Provider.wellKnown.filter { $0 != .email })
    func pushes(lane: Lane, provider: Provider) {
        #expect(RetryPolicy.of(lane, provider) == RetryPolicy.of(lane, .fcm))
    }

    @Test(
        "retries critical deliveries until they expire, or by count without an expiry",
        arguments: [Provider.fcm, .email]
    )
    func critical(provider: Provider) throws {
        let policy = RetryPolicy.of(.critical, provider)
        func next(tried: Int, expiresAt: Timestamp?) -> Timestamp? {
            var generator = SystemRandomNumberGenerator()
            return policy.next(tried: tried, minimum: nil, now: Self.now, expiresAt: expiresAt, using: &generator)
        }
        let tomorrow = Self.now + .seconds(86_400)
        for tried in [39, 40, 41, 5_000] {
            let due = try #require(next(tried: tried, expiresAt: tomorrow))
            #expect(due <= Self.now + policy.backoff.limit)
        }
        #expect(next(tried: 5_000, expiresAt: Self.now) == nil)
        #expect(next(tried: 39, expiresAt: nil) != nil)
        #expect(next(tried: 40, expiresAt: nil) == nil)
    }

    @Test("ends other lanes by count, even before the expiry", arguments: [Lane.normal, .bulk], Provider.wellKnown)
    func counted(lane: Lane, provider: Provider) {
        var generator = SystemRandomNumberGenerator()
        let policy = RetryPolicy.of(lane, provider)
        let due = policy.next(
            tried: policy.tries, minimum: nil, now: Self.now, expiresAt: Self.now + .seconds(30 * 86_400),
            using: &generator)
        #expect(due == nil)
    }

    @Test("retries no lane sooner than critical", arguments: Lane.allCases, Provider.wellKnown)
    func lanes(lane: Lane, provider: Provider) {
        let policy = RetryPolicy.of(lane, provider)
        let critical = RetryPolicy.of(.critical, provider)
        #expect(policy.backoff.ceiling(attempt: 0) >= critical.backoff.ceiling(attempt: 0))
        #expect(policy.tries > 1)
    }

    @Test("retries mail for hours in every lane", arguments: Lane.allCases)
    func mail(lane: Lane) {
        let policy = RetryPolicy.of(lane, .email)
        let longest = (0..<policy.tries).reduce(Duration.zero) { $0 + policy.backoff.ceiling(attempt: $1) }
        #expect(policy.backoff.ceiling(attempt: 0) >= .seconds(60))
        #expect(longest >= .seconds(8 * 3_600))
    }
}
