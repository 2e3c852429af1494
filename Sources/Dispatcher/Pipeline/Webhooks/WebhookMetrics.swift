// Carillon · WebhookMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics

/// The metrics of webhooks.
enum WebhookMetrics {
    /// Events that receivers took.
    static let told = Counter(label: "carillon.webhooks.told")
    static let accepted = Self.requests("accepted")
    static let failed = Self.requests("failed")
    /// Answered with 410: the webhook was removed.
    static let gone = Self.requests("gone")
    /// Events that were dropped: the oldest of too many.
    static let full = Self.dropped("full")
    /// Those that nobody had taken for a day.
    static let old = Self.dropped("old")
    /// Those of a webhook that was switched off or removed.
    static let off = Self.dropped("off")

    private static func requests(_ outcome: String) -> Counter {
        Counter(label: "carillon.webhooks.requests", dimensions: [("outcome", outcome)])
    }

    private static func dropped(_ reason: String) -> Counter {
        Counter(label: "carillon.webhooks.dropped", dimensions: [("reason", reason)])
    }
}
