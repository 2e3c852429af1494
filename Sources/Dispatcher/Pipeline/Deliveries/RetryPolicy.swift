// Carillon · RetryPolicy.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// When a delivery that failed for the moment is tried again, by its lane.
struct RetryPolicy: Sendable, Equatable {
    let backoff: Backoff
    /// How many tries there are in all.
    let tries: Int
    /// Whether tries are counted only where the notification never expires.
    var endsByExpiry = false

    static func of(_ lane: Lane, _ provider: Provider) -> RetryPolicy {
        if provider == .email { return self.ofMail(lane) }
        return switch lane {
        // As long as it matters, however long its provider is out of order.
        case .critical:
            RetryPolicy(backoff: Backoff(base: .seconds(1), limit: .seconds(15)), tries: 40, endsByExpiry: true)
        case .normal: RetryPolicy(backoff: Backoff(base: .seconds(15), limit: .seconds(16 * 60)), tries: 8)
        case .bulk: RetryPolicy(backoff: Backoff(base: .seconds(60), limit: .seconds(2 * 3_600)), tries: 16)
        }
    }

    /// Relays take minutes where push services take seconds, and wait for hours for a full mailbox to empty.
    private static func ofMail(_ lane: Lane) -> RetryPolicy {
        switch lane {
        case .critical:
            RetryPolicy(backoff: Backoff(base: .seconds(60), limit: .seconds(15 * 60)), tries: 40, endsByExpiry: true)
        case .normal: RetryPolicy(backoff: Backoff(base: .seconds(2 * 60), limit: .seconds(60 * 60)), tries: 24)
        case .bulk: RetryPolicy(backoff: Backoff(base: .seconds(5 * 60), limit: .seconds(2 * 3_600)), tries: 16)
        }
    }

    /// How long at least one device's work waits while our configuration is not accepted for it: nobody mends that within
    /// seconds.
    ///
    /// - Parameter tried: how many tries there were, the failed one included.
    static func configurationDelay(tried: Int) -> Duration {
        min(.seconds(30 * 60), Duration.seconds(60) * (1 << min(max(tried - 1, 0), 10)))
    }

    /// The moment of the next try; nil if there is none within the count and before expiry.
    ///
    /// - Parameters:
    ///   - tried: how many tries there were, the failed one included.
    ///   - minimum: what the provider asked for, which wins over our own delay.
    func next(
        tried: Int,
        minimum: Duration?,
        now: Timestamp,
        expiresAt: Timestamp?,
        using generator: inout some RandomNumberGenerator
    ) -> Timestamp? {
        let isCounted = !self.endsByExpiry || expiresAt == nil
        guard !isCounted || tried < self.tries else { return nil }
        let jittered = self.backoff.delay(attempt: tried - 1, using: &generator)
        // What the provider asks for is a floor; jitter above it keeps its clients apart.
        let delay = minimum.map { max(jittered, $0 + jittered / 10) } ?? jittered
        let due = now + delay
        if let expiresAt, due >= expiresAt { return nil }
        return due
    }
}
