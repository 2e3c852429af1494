// Carillon · OverviewService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Storage

/// Counts over a span of time, for operators; cached and shared by concurrent callers.
actor OverviewService {
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

    private struct Known {
        let until: ContinuousClock.Instant
        let summary: OverviewStore.Summary
    }

    private static let lifetime: Duration = .seconds(5)
    /// Counting takes at most this part of the time, for each question.
    private static let rest = 20
    private static let mostKnown = 32
    /// The counts that run or wait at most.
    private static let mostReading = 8

    private let store: OverviewStore
    private let now: @Sendable () -> Timestamp
    private var known: [Question: Known] = [:]
    private var reading: [Question: Task<OverviewStore.Summary, any Error>] = [:]
    /// The count that was asked for last; one runs at a time, as inboxes share its connections.
    private var last: Task<OverviewStore.Summary, any Error>?

    init(store: OverviewStore, now: @escaping @Sendable () -> Timestamp) {
        self.store = store
        self.now = now
    }

    /// Returns the counts of a span that ends now.
    ///
    /// - Throws: errors of the store; ``Problem`` 503 if too many counts wait.
    func summary(_ question: Question) async throws -> OverviewStore.Summary {
        if let known = self.known[question], ContinuousClock.now < known.until { return known.summary }
        if let reading = self.reading[question] { return try await reading.value }
        guard self.reading.count < Self.mostReading else {
            throw Problem(.serviceUnavailable, "too many overviews are being counted", retryAfter: 5)
        }
        let store = self.store
        let now = self.now
        let before = self.last
        let task = Task {
            _ = await before?.result
            let now = now()
            return try await store.summary(
                since: now - question.span.duration, org: question.org, now: now)
        }
        let start = ContinuousClock.now
        self.last = task
        self.reading[question] = task
        defer { self.reading[question] = nil }
        let summary = try await task.value
        let end = ContinuousClock.now
        self.known = self.known.filter { end < $0.value.until }
        if self.known.count < Self.mostKnown {
            self.known[question] = Known(until: end + max(Self.lifetime, (end - start) * Self.rest), summary: summary)
        }
        return summary
    }
}
