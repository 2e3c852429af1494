// Carillon · StatisticsService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Statistics for operators, cached and shared by concurrent callers.
actor StatisticsService {
    /// The minutes covered by the summary.
    static let minutes = 60
    private static let typesSpan: Duration = .seconds(86_400)
    /// The lifetime of the cache.
    private static let lifetime: Duration = .seconds(5)

    /// Broadcasts are counted again only after this many times the duration of the count.
    private static let rest = 20

    private let store: StatisticsStore
    private let now: @Sendable () -> Timestamp
    private var known: (at: Timestamp, summary: StatisticsStore.Summary)?
    private var reading: Task<StatisticsStore.Summary, any Error>?
    private var counted: (until: ContinuousClock.Instant, broadcasts: [StatisticsStore.BroadcastReach])?
    private var counting: Task<[StatisticsStore.BroadcastReach], any Error>?

    init(store: StatisticsStore, now: @escaping @Sendable () -> Timestamp) {
        self.store = store
        self.now = now
    }

    /// Returns the sends of the last hour by minute, including the current one, and of the last day
    /// by type.
    func summary() async throws -> StatisticsStore.Summary {
        let now = self.now()
        if let known, now - known.at < Self.lifetime, now >= known.at { return known.summary }
        if let reading { return try await reading.value }
        let minute = Timestamp(seconds: now.seconds / 60 * 60)
        let since = minute - .seconds(60 * (Self.minutes - 1))
        let store = self.store
        let task = Task { try await store.summary(since: since, typesSince: now - Self.typesSpan) }
        self.reading = task
        defer { self.reading = nil }
        let summary = try await task.value
        self.known = (now, summary)
        return summary
    }

    /// Counts the reach of the newest broadcasts.
    ///
    /// Broadcasts may have millions of rows, so counting takes at most a twentieth of the time.
    func broadcasts() async throws -> [StatisticsStore.BroadcastReach] {
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
