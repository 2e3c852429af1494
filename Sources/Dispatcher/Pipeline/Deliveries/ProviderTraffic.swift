// Carillon · ProviderTraffic.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Providers
import Synchronization

/// What one provider was asked and how much of it failed, for the bound of its retries.
final class ProviderTraffic: Sendable {
    private struct Counts {
        var sent = 0
        var failed = 0
        var budget = RetryBudget()
    }

    private let counts = Mutex(Counts())

    /// Notes how calls ended.
    ///
    /// What is to be tried again has failed, whoever is at fault, or else retries would pass for traffic that goes well. What a
    /// breaker keeps back, as all of its app waits, says nothing of the other apps' retries.
    func note(_ results: some Sequence<DeliveryOutcome.Result>) {
        var (sent, failed) = (0, 0)
        for result in results {
            switch result {
            case .answered(.retry), .answered(.retryDevice), .answered(.configuration(_, concernsAll: false)),
                .unanswered:
                sent += 1
                failed += 1
            case .answered(.accepted), .answered(.deadToken), .answered(.refused): sent += 1
            case .answered(.slowDown), .answered(.configuration), .answered(.staleCredential), .refused, .putOff, .gone,
                .noCredential, .noProvider, .heldBack, .malformed:
                break
            }
        }
        self.note(sent: sent, failed: failed)
    }

    func note(sent: Int, failed: Int) {
        self.counts.withLock {
            $0.sent += sent
            $0.failed += failed
        }
    }

    /// How many retries may be moved back to the streams now.
    func allowance(now: Timestamp) -> Int {
        self.counts.withLock { counts in
            counts.budget.note(sent: counts.sent, failed: counts.failed, now: now)
            counts.sent = 0
            counts.failed = 0
            return counts.budget.allowance(now: now)
        }
    }

    /// Notes that the provider is out of use, so that what gathers comes back by steps.
    func noteOutage(now: Timestamp) {
        self.counts.withLock { $0.budget.noteOutage(now: now) }
    }

    /// Notes that no retry is due now.
    func noteEmpty(now: Timestamp) {
        self.counts.withLock { $0.budget.noteEmpty(now: now) }
    }

    func spend(_ count: Int) {
        self.counts.withLock { $0.budget.spend(count) }
    }
}
