// Carillon · DeliveryOutcome.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Providers
import Storage
import Synchronization

/// The outcome of one delivery.
struct DeliveryOutcome: Sendable {
    enum Result: Sendable {
        case answered(ProviderAnswer)
        /// The gate refused it.
        case refused(GateRefusal)
        /// Quiet hours have begun; it goes out when they end.
        case postponed(until: Timestamp)
        /// The notification or the device no longer exists.
        case gone
        /// No answer; the provider may have it if `mayHaveBeenSent`.
        case unanswered(reason: String, mayHaveBeenSent: Bool)
        /// No credential is available now.
        case noCredential(reason: String)
        /// Our own rules forbid the message; the provider was not called.
        case unsendable(reason: String)
        /// No provider serves the device's app.
        case noProvider
        /// The breaker is open, the account's rate is used up, or it waited too long in our own
        /// queue.
        case heldBack(until: Timestamp, reason: String, scope: BreakerScope)
        /// It killed its dispatchers and is not tried again.
        case poison
        /// The entry is not a delivery.
        case malformed
    }

    let entry: StreamEntry
    let group: ConsumerGroup
    let lane: Lane
    /// The lease term in which the entry belongs to this process.
    var term: LeaseClock.Term
    let work: DeliveryWork?
    /// The facts that it was sent with; nil if it is gone, or was not looked up.
    let facts: DeliveryStore.Facts?
    /// The app whose credentials were used; nil without a call.
    ///
    /// Mail belongs to no app, and is sent by any that has a relay.
    let app: String?
    let sentAt: Timestamp
    let result: Result
    let duration: Duration

    var expiresAt: Timestamp? { self.facts?.notification.endsAt }

    /// The stream and the entry, as ids of entries are unique in their stream only.
    struct EntryKey: Hashable {
        let stream: String
        let entry: String
    }

    var entryKey: EntryKey { EntryKey(stream: self.group.stream, entry: self.entry.id) }
}

/// The results of one provider's calls since the process began, by app.
final class ProviderTally: Sendable {
    private let provider: Provider
    private let counts = Mutex<[String: ProviderCounts]>([:])

    init(_ provider: Provider) {
        self.provider = provider
    }

    /// Ordered by app.
    var all: [ProviderCounts] { self.counts.withLock { Array($0.values) }.sorted { $0.app < $1.app } }

    /// Counts the outcomes for which the provider was called.
    func record(_ outcomes: [DeliveryOutcome]) {
        self.counts.withLock { counts in
            for outcome in outcomes where outcome.result.isCall {
                guard let app = outcome.app else { continue }
                counts[app, default: ProviderCounts(provider: self.provider, app: app)]
                    .record(failure: outcome.failure, took: outcome.duration)
            }
        }
    }
}

extension DeliveryOutcome.Result {
    /// Whether the provider was called.
    var isCall: Bool {
        switch self {
        case .answered, .unanswered: true
        default: false
        }
    }
}

extension DeliveryOutcome {
    /// Why the provider did not accept it, as recorded; nil if it did, or was not called.
    var failure: String? {
        switch self.result {
        case .answered(let answer): answer.reason
        case .unanswered(let reason, mayHaveBeenSent: true): "unknown_outcome:\(reason)"
        case .unanswered(let reason, mayHaveBeenSent: false): "not_sent:\(reason)"
        default: nil
        }
    }
}
