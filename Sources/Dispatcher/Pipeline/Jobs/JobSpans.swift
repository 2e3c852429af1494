// Carillon · JobSpans.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Operations
import Storage
import Tracing

/// The spans of a batch's jobs, from when they were appended until their notifications are stored.
///
/// Jobs that are in no trace cost a look at their field.
struct JobSpans {
    /// When an entry was appended.
    private struct Appended: TracerInstant {
        let nanosecondsSinceEpoch: UInt64

        static func < (left: Appended, right: Appended) -> Bool {
            left.nanosecondsSinceEpoch < right.nanosecondsSinceEpoch
        }
    }

    private var spans: [any Span] = []

    /// Begins a job's span; what is done about its notifications later is below it.
    mutating func begin(_ content: inout JobContent, origin: JobOrigin, lane: Lane, now: Timestamp) {
        guard let traceParent = content.extras.traceParent else { return }
        let milliseconds = max(0, min(origin.milliseconds ?? now.milliseconds, now.milliseconds))
        let span = startSpan(
            "job",
            context: ServiceContext(traceParent: traceParent),
            ofKind: .consumer,
            at: Appended(nanosecondsSinceEpoch: UInt64(milliseconds) * 1_000_000)
        )
        span.attributes["messaging.destination.name"] = origin.latestStream
        span.attributes["messaging.message.id"] = origin.latestEntry
        span.attributes["notification.type"] = content.type
        span.attributes["job.lane"] = lane.rawValue
        content.extras.traceParent = span.context.trace?.traceParent
        self.spans.append(span)
    }

    /// Ends them all.
    func end() {
        for span in self.spans { span.end() }
    }
}
