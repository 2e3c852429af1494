// Carillon · RetryBudget.swift
// SPDX-License-Identifier: Apache-2.0

import Model

/// How many retries may be moved back to a provider's streams.
///
/// While it mostly works, all that are due; while more than a tenth of its answers are failures, a tenth of its traffic. The
/// rest waits in its place.
struct RetryBudget: Sendable {
    private static let window: Duration = .seconds(10)
    /// So many a second go out in any case, to find out.
    private static let least = 20.0

    private var windowStart: Timestamp?
    private var sent = 0
    private var failed = 0
    private var rate = 0.0
    private var isFailing = false
    private var credit = 0.0
    private var creditedAt: Timestamp?

    /// Notes what providers answered since the last call.
    mutating func note(sent: Int, failed: Int, now: Timestamp) {
        let start = self.windowStart ?? now
        self.windowStart = start
        self.sent += sent
        self.failed += failed
        let elapsed = now - start
        guard elapsed >= Self.window || self.failed >= 50 else { return }
        self.rate = Double(self.sent) / max(1, elapsed / .seconds(1))
        self.isFailing = self.failed * 10 > self.sent
        self.windowStart = now
        self.sent = 0
        self.failed = 0
    }

    /// How many may be moved now; what was moved is to be taken off by ``spend(_:)``.
    mutating func allowance(now: Timestamp) -> Int {
        guard self.isFailing else {
            self.creditedAt = now
            return .max
        }
        let perSecond = max(Self.least, self.rate / 10)
        let elapsed = min((now - (self.creditedAt ?? now)) / .seconds(1), 1)
        self.creditedAt = now
        self.credit = min(perSecond, self.credit + perSecond * max(0, elapsed))
        return Int(self.credit)
    }

    mutating func spend(_ count: Int) {
        self.credit = max(0, self.credit - Double(count))
    }
}
