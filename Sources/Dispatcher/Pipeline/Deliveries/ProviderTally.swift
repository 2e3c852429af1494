// Carillon · ProviderTally.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Storage
import Synchronization

/// What came of one provider's messages since the process began, by app.
final class ProviderTally: Sendable {
    private let provider: Provider
    private let counts = Mutex<[String: ProviderCounts]>([:])

    init(_ provider: Provider) {
        self.provider = provider
    }

    /// In the order of the apps' names.
    var all: [ProviderCounts] { self.counts.withLock { Array($0.values) }.sorted { $0.app < $1.app } }

    /// Counts those of the outcomes for which the provider was called.
    func note(_ outcomes: [DeliveryOutcome]) {
        self.counts.withLock { counts in
            for outcome in outcomes where outcome.result.isCall {
                guard let app = outcome.app else { continue }
                counts[app, default: ProviderCounts(provider: self.provider, app: app)]
                    .note(failure: outcome.failure, took: outcome.duration)
            }
        }
    }
}

extension DeliveryOutcome {
    /// Why the provider has not accepted it, as it is on record; nil if it has, or was not called.
    var failure: String? {
        switch self.result {
        case .answered(let answer): answer.reason
        case .unanswered(let reason, mayHaveBeenSent: true): "unknown_outcome:\(reason)"
        case .unanswered(let reason, mayHaveBeenSent: false): "not_sent:\(reason)"
        default: nil
        }
    }
}
