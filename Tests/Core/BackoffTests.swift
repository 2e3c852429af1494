// Carillon · BackoffTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Backoff", .timeLimit(.minutes(10)))
struct BackoffTests {
    private let backoff = Backoff(base: .milliseconds(100), limit: .seconds(5))

    @Test(
        "the ceiling doubles up to the limit",
        arguments: [
            (attempt: -1, milliseconds: 100), (0, 100), (1, 200), (2, 400), (3, 800), (5, 3_200), (6, 5_000),
            (7, 5_000),
            (62, 5_000), (.max, 5_000),
        ]
    )
    func ceiling(attempt: Int, milliseconds: Int) {
        #expect(self.backoff.ceiling(attempt: attempt) == .milliseconds(milliseconds))
    }

    @Test("full jitter covers zero to the ceiling and never exceeds it")
    func jitter() {
        var generator = SplitMix(state: 7)
        let waits = (0..<2_000).map { _ in self.backoff.delay(attempt: 3, using: &generator) }
        #expect(waits.allSatisfy { $0 >= .zero && $0 <= .milliseconds(800) })
        for eighth in 0..<8 {
            let range = Duration.milliseconds(eighth * 100)..<Duration.milliseconds((eighth + 1) * 100)
            let share = waits.count { range.contains($0) }
            #expect((150...350).contains(share), "eighth \(eighth) got \(share) of 2,000")
        }
    }

    @Test("the same random numbers give the same delays")
    func isDeterministic() {
        var one = SplitMix(state: 1)
        var other = SplitMix(state: 1)
        for attempt in 0..<20 {
            let wait = self.backoff.delay(attempt: attempt, using: &one)
            #expect(wait == self.backoff.delay(attempt: attempt, using: &other))
        }
    }

    @Test("a base of zero never waits")
    func zero() {
        #expect(Backoff(base: .zero, limit: .seconds(1)).delay(attempt: 9) == .zero)
    }
}

/// A small seeded generator: SplitMix64 (Steele, Lea and Flood).
private struct SplitMix: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        self.state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = self.state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
