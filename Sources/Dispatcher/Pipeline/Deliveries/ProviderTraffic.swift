// Carillon · ProviderTraffic.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Synchronization

/// What one provider was asked and how much of it failed, for the bound of its retries.
final class ProviderTraffic: Sendable {
    private struct Counts {
        var sent = 0
        var failed = 0
        var budget = RetryBudget()
        /// How what was held back of an app comes back that was out of use while others were not.
        var apps: [String: RetryBudget] = [:]
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
                .noCredential, .unsendable, .noProvider, .heldBack, .deadly, .malformed:
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

    /// How many of those that were held back of an app may be moved now, beside what is to be moved of all apps.
    func allowance(of app: String, now: Timestamp) -> Int {
        self.counts.withLock { $0.apps[app]?.allowance(now: now) ?? .max }
    }

    /// Notes that the provider is out of use for an app of which something is held back, so that it comes back by steps.
    func noteOutage(of app: String, now: Timestamp) {
        self.counts.withLock { $0.apps[app, default: RetryBudget()].noteOutage(now: now) }
    }

    /// Notes that of all apps but these nothing that was held back is due now.
    func noteEmpty(except apps: Set<String>, now: Timestamp) {
        self.counts.withLock { counts in
            for app in Array(counts.apps.keys) where !apps.contains(app) {
                counts.apps[app]?.noteEmpty(now: now)
                if counts.apps[app]?.isBounded == false { counts.apps[app] = nil }
            }
        }
    }

    func spend(_ count: Int, of app: String) {
        self.counts.withLock { counts in
            counts.budget.spend(count)
            counts.apps[app]?.spend(count)
        }
    }
}
