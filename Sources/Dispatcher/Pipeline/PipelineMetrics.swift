// Carillon · PipelineMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics
import Model

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
    /// Entries taken over from dispatchers that are gone.
    static let claimed = Counter(label: "carillon.entries.claimed")
    /// Rows without an owner that were fanned out again.
    static let swept = Counter(label: "carillon.notifications.swept")

    /// Answers of a provider, by what they meant.
    static func answers(_ provider: Provider, _ outcome: String) -> Counter {
        Counter(
            label: "carillon.deliveries.answered",
            dimensions: [("provider", provider.rawValue), ("outcome", outcome)]
        )
    }

    /// How long a provider took to answer.
    static func duration(_ provider: Provider) -> Timer {
        Timer(label: "carillon.deliveries.duration", dimensions: [("provider", provider.rawValue)])
    }
}
