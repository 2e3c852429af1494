// Carillon · DigestIntake.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Storage

/// Holds back what belongs into a digest, before it is stored as a notification.
struct DigestIntake: Sendable {
    let dispatcher: Dispatcher

    /// Gathers notifications.
    ///
    /// - Returns: what became of each; only a single one, and one that was cancelled before, is stored as a notification now.
    func gather(_ items: [DigestStore.Item], now: Timestamp) async throws -> [DigestStore.Outcome] {
        guard !items.isEmpty else { return [] }
        let outcomes = try await self.dispatcher.untilDone("gather digests") {
            try await self.dispatcher.digests.gather(items, now: now)
        }
        PipelineMetrics.held.increment(by: outcomes.count { $0 == .held })
        return outcomes
    }
}

extension Catalog {
    /// What a job's notifications are gathered for: nil if it names no digest, or its type has no window.
    func digest(of content: JobContent) -> (key: String, rule: DigestRule)? {
        guard let key = content.digest, let rule = self[content.type]?.digest else { return nil }
        return (key, rule)
    }
}
