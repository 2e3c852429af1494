// Carillon · RetryBudget.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// How many retries may be moved back to a provider's streams.
///
/// While it mostly works, all that are due; while more than a tenth of its calls are to be made again, a tenth of its traffic. What
/// has gathered until it works again comes back by steps, each twice the one before, until nothing is due. The rest waits in
/// its place.
struct RetryBudget: Sendable {
    private enum Phase {
        case working
        case failing
        /// It works again, and what has gathered is due.
        case recovering
    }

    private static let window: Duration = .seconds(10)
    private static let step: Duration = .seconds(5)
    /// So many a second go out in any case, to find out.
    private static let least = 20.0
    private static let most = 1_000_000.0

    private var windowStart: Timestamp?
    private var sent = 0
    private var failed = 0
    private var rate = 0.0
    private var phase = Phase.working
    /// How many a second may be moved unless it works.
    private var perSecond = RetryBudget.least
    private var recoveringSince: Timestamp?
    private var steppedAt: Timestamp?
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
        if self.failed * 10 > self.sent {
            self.phase = .failing
            self.perSecond = self.firstStep
        } else if self.phase == .failing {
            self.recover(now: now)
        }
        self.windowStart = now
        self.sent = 0
        self.failed = 0
    }

    /// Notes that the provider is out of use, so that work gathers.
    mutating func noteOutage(now: Timestamp) {
        if self.phase != .failing { self.recover(now: now) }
    }

    /// Whether not all that is due may be moved.
    var isBounded: Bool { self.phase != .working }

    /// Notes that nothing is due now.
    mutating func noteEmpty(now: Timestamp) {
        // What was held back until it would be tried again comes due over a while.
        guard self.phase == .recovering, let recoveringSince, now - recoveringSince >= Self.step else { return }
        self.phase = .working
    }

    /// How many may be moved now; what was moved is to be taken off by ``spend(_:)``.
    mutating func allowance(now: Timestamp) -> Int {
        guard self.phase != .working else {
            self.creditedAt = now
            return .max
        }
        if self.phase == .recovering, let steppedAt, now - steppedAt >= Self.step {
            self.perSecond = min(self.perSecond * 2, Self.most)
            self.steppedAt = now
        }
        let elapsed = min((now - (self.creditedAt ?? now)) / .seconds(1), 1)
        self.creditedAt = now
        self.credit = min(self.perSecond, self.credit + self.perSecond * max(0, elapsed))
        return Int(self.credit)
    }

    mutating func spend(_ count: Int) {
        self.credit = max(0, self.credit - Double(count))
    }

    private var firstStep: Double { max(Self.least, self.rate / 10) }

    private mutating func recover(now: Timestamp) {
        self.phase = .recovering
        self.perSecond = self.firstStep
        self.recoveringSince = now
        self.steppedAt = now
    }
}
