// Carillon · StreamShape.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// A stream for operators, with the ages of its work.
package struct StreamShape {
    private let stream: StreamSurvey.Stream
    /// Redis's clock, which also dates the entries.
    private let now: Timestamp

    package init(_ stream: StreamSurvey.Stream, now: Timestamp) {
        self.stream = stream
        self.now = now
    }

    /// How long the oldest entry has been in the stream; nil if it is empty.
    package var age: Duration? { self.elapsed(since: self.stream.oldest) }

    /// How long the oldest pending entry has been in the stream.
    package var pendingAge: Duration? { self.elapsed(since: self.stream.oldestPending) }

    /// How long the first retry is overdue.
    package var overdue: Duration? {
        self.stream.nextRetry.flatMap { $0 < self.now ? self.now - $0 : nil }
    }

    /// How long the oldest work has waited, in the stream, for a retry, or held back.
    package var waited: Duration? { self.elapsed(since: self.stream.waitingSince) }

    private func elapsed(since moment: Timestamp?) -> Duration? {
        moment.map { max(.zero, self.now - $0) }
    }

    package static let shape: Shape<StreamShape> = [
        "name": .value(.string) { $0.stream.name },
        "lane": .value(.lane) { $0.stream.lane.rawValue },
        "provider": .value(.string, "Null for jobs.") { $0.stream.provider?.rawValue },
        "length": .value(.count) { $0.stream.length },
        "lag": .value(.count) { $0.stream.lag },
        "pending": .value(.count) { $0.stream.pending },
        "oldest_seconds": .value(.count, "The age of the oldest entry.") { $0.age?.components.seconds },
        "oldest_pending_seconds": .value(.count) { $0.pendingAge?.components.seconds },
        "consumers": .value(.count) { $0.stream.consumers },
        "retries": .value(.count) { $0.stream.retries },
        "overdue_seconds": .value(
            .count, "How long the first delivery that waits for a retry or is held back has been due."
        ) { $0.overdue?.components.seconds },
        "waited_seconds": .value(
            .count,
            "The age of the oldest entry since it was first appended, whether queued, in "
                + "flight, waiting for a retry or held back. Null without entries."
        ) { $0.waited?.components.seconds },
    ]
}
