// Carillon · Backoff.swift
// SPDX-License-Identifier: Apache-2.0

/// Exponential backoff with full jitter: each wait is drawn evenly from zero up to a ceiling that doubles.
///
/// Full jitter spreads callers that failed together, so that they do not come back together.
package struct Backoff: Sendable, Equatable {
    /// The ceiling of the first wait.
    package let base: Duration
    /// What no ceiling exceeds.
    package let limit: Duration

    /// - Parameters:
    ///   - base: the ceiling of the first wait.
    ///   - limit: what no ceiling exceeds.
    package init(base: Duration, limit: Duration) {
        self.base = base
        self.limit = limit
    }

    /// The longest wait that `attempt` (counted from 0) may get.
    package func ceiling(attempt: Int) -> Duration {
        let doublings = min(max(attempt, 0), 30)
        return min(self.limit, self.base * (1 << doublings))
    }

    /// Draws the wait before the try after `attempt` (counted from 0).
    package func delay(attempt: Int, using generator: inout some RandomNumberGenerator) -> Duration {
        let (seconds, attoseconds) = self.ceiling(attempt: attempt).components
        let microseconds = seconds * 1_000_000 + attoseconds / 1_000_000_000_000
        return .microseconds(Int64.random(in: 0...max(microseconds, 0), using: &generator))
    }

    /// Draws the wait from the system's randomness.
    package func delay(attempt: Int) -> Duration {
        var generator = SystemRandomNumberGenerator()
        return self.delay(attempt: attempt, using: &generator)
    }
}
