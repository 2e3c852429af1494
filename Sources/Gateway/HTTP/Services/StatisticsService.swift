// Carillon · StatisticsService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Counts for operators; asked by several at once or again at once, it reads the database once.
package actor StatisticsService {
    /// How far back minutes are counted.
    package static let minutes = 60
    private static let typesSpan: Duration = .seconds(86_400)
    /// For how long what was counted is good enough.
    private static let lifetime: Duration = .seconds(5)

    /// For how many times as long as it took to count broadcasts they are not counted again.
    private static let rest = 20

    private let store: StatisticsStore
    private let now: @Sendable () -> Timestamp
    private var known: (at: Timestamp, summary: StatisticsStore.Summary)?
    private var reading: Task<StatisticsStore.Summary, any Error>?
    private var counted: (until: ContinuousClock.Instant, broadcasts: [StatisticsStore.BroadcastReach])?
    private var counting: Task<[StatisticsStore.BroadcastReach], any Error>?

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

    /// Counts how far the newest broadcasts got.
    ///
    /// One may be to millions, so that counting takes a twentieth of the time at most.
    package func broadcasts() async throws -> [StatisticsStore.BroadcastReach] {
        if let counted, ContinuousClock.now < counted.until { return counted.broadcasts }
        if let counting { return try await counting.value }
        let store = self.store
        let start = ContinuousClock.now
        let task = Task { try await store.broadcasts() }
        self.counting = task
        defer { self.counting = nil }
        let broadcasts = try await task.value
        let end = ContinuousClock.now
        self.counted = (end + max(Self.lifetime, (end - start) * Self.rest), broadcasts)
        return broadcasts
    }
}
