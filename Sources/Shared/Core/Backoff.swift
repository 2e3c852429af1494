// Carillon · Backoff.swift
// SPDX-License-Identifier: Apache-2.0

/// Exponential backoff with full jitter: each delay is uniform between zero and a ceiling that
/// doubles.
///
/// Full jitter keeps callers that failed together from retrying together.
package struct Backoff: Sendable, Equatable {
    /// The ceiling of the first delay.
    package let base: Duration
    /// The largest ceiling.
    let limit: Duration

    package init(base: Duration, limit: Duration) {
        self.base = base
        self.limit = limit
    }

    /// Returns the longest delay after `attempt` (counted from 0).
    package func ceiling(attempt: Int) -> Duration {
        let doublings = min(max(attempt, 0), 30)
        return min(self.limit, self.base * (1 << doublings))
    }

    /// Returns a random delay after `attempt` (counted from 0).
    package func delay(attempt: Int, using generator: inout some RandomNumberGenerator) -> Duration {
        let (seconds, attoseconds) = self.ceiling(attempt: attempt).components
        let microseconds = seconds * 1_000_000 + attoseconds / 1_000_000_000_000
        return .microseconds(Int64.random(in: 0...max(microseconds, 0), using: &generator))
    }

    /// Returns a random delay from the system's generator.
    package func delay(attempt: Int) -> Duration {
        var generator = SystemRandomNumberGenerator()
        return self.delay(attempt: attempt, using: &generator)
    }
}
