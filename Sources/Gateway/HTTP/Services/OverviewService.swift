// Carillon · OverviewService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// Counts over a span of time, for operators; cached and shared by concurrent callers.
struct OverviewService {
    /// A question that several callers may share.
    struct Question: Hashable {
        let span: Span
        /// Nil for all organisations.
        let org: String?
    }

    /// The spans that an overview covers.
    enum Span: String, CaseIterable, Sendable {
        case hour = "1h"
        case day = "24h"
        case week = "7d"

        var duration: Duration {
            switch self {
            case .hour: .seconds(3_600)
            case .day: .seconds(86_400)
            case .week: .seconds(7 * 86_400)
            }
        }
    }

    private let counts: SharedReading<Question, OverviewStore.Summary>

    init(store: OverviewStore, now: @escaping @Sendable () -> Timestamp) {
        self.counts = SharedReading { question in
            let end = now()
            return try await store.summary(since: end - question.span.duration, org: question.org, now: end)
        }
    }

    /// Returns the counts of a span that ends now.
    ///
    /// - Throws: errors of the store; ``Problem`` 503 if too many counts wait.
    func summary(_ question: Question) async throws -> OverviewStore.Summary { try await self.counts.value(question) }
}
