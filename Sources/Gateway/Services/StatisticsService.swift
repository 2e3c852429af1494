// Carillon · StatisticsService.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Stores

/// Counts for operators; asked by several at once or again at once, it reads the database once.
package actor StatisticsService {
    /// How far back minutes are counted.
    package static let minutes = 60
    private static let typesSpan: Duration = .seconds(86_400)
    /// For how long what was counted is good enough.
    private static let lifetime: Duration = .seconds(5)

    private let store: StatisticsStore
    private let now: @Sendable () -> Timestamp
    private var known: (at: Timestamp, summary: StatisticsStore.Summary)?
    private var reading: Task<StatisticsStore.Summary, any Error>?

    package init(store: StatisticsStore, now: @escaping @Sendable () -> Timestamp) {
        self.store = store
        self.now = now
    }

    /// What went out in the last hour by minutes, this one included, and in the last day by types.
    package func summary() async throws -> StatisticsStore.Summary {
        let now = self.now()
        if let known, now - known.at < Self.lifetime, now >= known.at { return known.summary }
        if let reading { return try await reading.value }
        let minute = Timestamp(seconds: now.seconds / 60 * 60)
        let since = minute + .seconds(-60 * (Self.minutes - 1))
        let store = self.store
        let task = Task { try await store.summary(since: since, typesSince: now + (.zero - Self.typesSpan)) }
        self.reading = task
        defer { self.reading = nil }
        let summary = try await task.value
        self.known = (now, summary)
        return summary
    }
}
