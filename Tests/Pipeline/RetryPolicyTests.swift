// Carillon · RetryPolicyTests.swift
// SPDX-License-Identifier: Apache-2.0

import Backoff
import Model
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

    @Test("delays stay under a ceiling that doubles, and tries come to an end", arguments: 1...3)
    func ceiling(tried: Int) throws {
        for _ in 0..<200 {
            let due = try #require(Self.next(tried: tried))
            #expect(due >= Self.now)
            #expect(due <= Self.now + .seconds(1 << (tried - 1)))
        }
        #expect(Self.next(tried: 4) == nil)
    }

    @Test("what the provider asks for is a floor")
    func floor() throws {
        for _ in 0..<200 {
            let due = try #require(Self.next(tried: 1, minimum: .seconds(60)))
            #expect(due >= Self.now + .seconds(60))
            #expect(due <= Self.now + .seconds(61))
        }
    }

    @Test("nothing is tried again after it has expired")
    func expiry() {
        #expect(Self.next(tried: 1, minimum: .seconds(60), expiresAt: Self.now + .seconds(60)) == nil)
        #expect(Self.next(tried: 1, minimum: .seconds(60), expiresAt: Self.now + .seconds(120)) != nil)
    }

    @Test("no lane is tried sooner than the critical one", arguments: Lane.allCases, Provider.wellKnown)
    func lanes(lane: Lane, provider: Provider) {
        let policy = RetryPolicy.of(lane, provider)
        let critical = RetryPolicy.of(.critical, provider)
        #expect(policy.backoff.ceiling(attempt: 0) >= critical.backoff.ceiling(attempt: 0))
        #expect(policy.tries > 1)
    }

    @Test("mail is tried for hours in any lane", arguments: Lane.allCases)
    func mail(lane: Lane) {
        let policy = RetryPolicy.of(lane, .email)
        let longest = (0..<policy.tries).reduce(Duration.zero) { $0 + policy.backoff.ceiling(attempt: $1) }
        #expect(policy.backoff.ceiling(attempt: 0) >= .seconds(60))
        #expect(longest >= .seconds(8 * 3_600))
    }
}
