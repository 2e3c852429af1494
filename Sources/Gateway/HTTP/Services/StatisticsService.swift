// Carillon · StatisticsService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Statistics for operators, cached and shared by concurrent callers.
struct StatisticsService {
    /// The one key of a reading that takes no parameters.
    private struct Everything: Hashable {}

    /// The minutes covered by the summary.
    static let minutes = 60
    private static let typesSpan: Duration = .seconds(86_400)

    private let summaries: SharedReading<Everything, StatisticsStore.Summary>

    init(store: StatisticsStore, now: @escaping @Sendable () -> Timestamp) {
        self.summaries = SharedReading { _ in
            let end = now()
            let minute = Timestamp(seconds: end.seconds / 60 * 60)
            return try await store.summary(
                since: minute - .seconds(60 * (Self.minutes - 1)), typesSince: end - Self.typesSpan)
        }
    }

    /// Returns the sends of the last hour by minute, including the current one, and of the last day
    /// by type.
    func summary() async throws -> StatisticsStore.Summary { try await self.summaries.value(Everything()) }
}
