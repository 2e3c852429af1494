// Carillon · PipelineMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics
import Model
import Stores

/// The dispatcher's metrics, each made once.
enum PipelineMetrics {
    /// Entries of the jobs streams that were finished.
    static let jobs = Counter(label: "carillon.jobs.finished")
    /// Frames published to nodes.
    static let published = Counter(label: "carillon.frames.published")
    /// Letters set aside.
    static let dead = Counter(label: "carillon.dead.letters")
    /// Notifications that fell back to push because no proof came.
    static let unproven = Counter(label: "carillon.notifications.unproven")
    /// Entries taken over from dispatchers that are gone, or whose reply never arrived.
    static let claimed = Counter(label: "carillon.entries.claimed")
    /// Rows without an owner that were fanned out again.
    static let swept = Counter(label: "carillon.notifications.swept")

    /// Notifications that were stored as cancelled, as their job had been called off before it came.
    static let cancelled = Counter(label: "carillon.notifications.cancelled")

    /// Pages of broadcasts that were stored.
    static let pages = Counter(label: "carillon.broadcasts.pages")
    /// Times that a broadcast's expansion waited for room in the deliveries streams.
    static let held = Counter(label: "carillon.broadcasts.held")

    /// The metrics of one provider.
    struct Deliveries: Sendable {
        let accepted: Counter
        let retry: Counter
        let failed: Counter
        let skipped: Counter
        /// How long the provider took to answer.
        let duration: Timer

        init(_ provider: Provider) {
            func answers(_ outcome: DeliveryStore.Outcome) -> Counter {
                Counter(
                    label: "carillon.deliveries.answered",
                    dimensions: [("provider", provider.rawValue), ("outcome", outcome.rawValue)]
                )
            }
            self.accepted = answers(.accepted)
            self.retry = answers(.retry)
            self.failed = answers(.failed)
            self.skipped = answers(.skipped)
            self.duration = Timer(
                label: "carillon.deliveries.duration",
                dimensions: [("provider", provider.rawValue)]
            )
        }

        /// Answers, by what they meant.
        func answers(_ outcome: DeliveryStore.Outcome) -> Counter {
            switch outcome {
            case .accepted: self.accepted
            case .retry: self.retry
            case .failed: self.failed
            case .skipped: self.skipped
            }
        }
    }
}
