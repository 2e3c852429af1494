// Carillon · SpanQueue.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Synchronization

/// Spans that wait to be handed to the collector; what finds it full is dropped and counted, as nothing waits for a span.
package final class SpanQueue: Sendable {
    package static let capacity = 8_192

    private let spans = Mutex<[FinishedSpan]>([])
    private let dropped = Counter(label: "carillon.spans.dropped")

    package init() {}

    /// Adds one.
    package func append(_ span: FinishedSpan) {
        let isTaken = self.spans.withLock { spans in
            guard spans.count < Self.capacity else { return false }
            spans.append(span)
            return true
        }
        if !isTaken { self.dropped.increment() }
    }

    /// Takes the oldest out, `limit` at most.
    package func take(_ limit: Int) -> [FinishedSpan] {
        self.spans.withLock { spans in
            let taken = Array(spans.prefix(limit))
            spans.removeFirst(taken.count)
            return taken
        }
    }
}
