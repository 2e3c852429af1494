// Carillon · SharedReadingTests.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization
import Testing

@testable import HTTP

@Suite("Shared readings", .timeLimit(.minutes(10)))
struct SharedReadingTests {
    /// A clock that a test moves.
    private final class Clock: Sendable {
        private let time = Mutex(ContinuousClock.now)

        var now: ContinuousClock.Instant { self.time.withLock { $0 } }

        func pass(_ duration: Duration) { self.time.withLock { $0 += duration } }
    }

    @Test(
        "a value stays for 20 times as long as its reading took, but for 5 to 200 seconds",
        arguments: [
            (.zero, .seconds(5)), (.seconds(1), .seconds(20)), (.seconds(60), .seconds(200)),
        ] as [(Duration, Duration)]
    )
    func lifetime(reading: Duration, lifetime: Duration) async throws {
        let clock = Clock()
        let shared = SharedReading<String, ContinuousClock.Instant>(
            { _ in
                clock.pass(reading)
                return clock.now
            }, instant: { clock.now })
        let first = try await shared.value("all")
        clock.pass(lifetime - .milliseconds(1))
        let kept = try await shared.value("all")
        #expect(kept == first)
        clock.pass(.milliseconds(1))
        let next = try await shared.value("all")
        #expect(next > first)
    }
}
