// Carillon · RecordedSpan.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization
import Tracing

/// A span that goes to a queue when it ends; or one that only carries its context on, as nobody keeps its trace.
package final class RecordedSpan: Span {
    package let context: ServiceContext
    /// Nil if nothing is recorded, or once it has ended.
    private let state: Mutex<FinishedSpan?>
    private let queue: SpanQueue?

    init(context: ServiceContext, span: FinishedSpan?, queue: SpanQueue?) {
        self.context = context
        self.state = Mutex(span)
        self.queue = queue
    }

    package var isRecording: Bool { self.state.withLock { $0 != nil } }

    package var operationName: String {
        get { self.state.withLock { $0?.name ?? "" } }
        set { self.state.withLock { $0?.name = newValue } }
    }

    package var attributes: SpanAttributes {
        get { self.state.withLock { $0?.attributes ?? SpanAttributes() } }
        set { self.state.withLock { $0?.attributes = newValue } }
    }

    package func setStatus(_ status: SpanStatus) {
        self.state.withLock { $0?.status = status }
    }

    /// Errors make the span's status; what else happens within a span is told by spans below it.
    package func recordError<Instant: TracerInstant>(
        _ error: any Error,
        attributes: SpanAttributes,
        at instant: @autoclosure () -> Instant
    ) {
        // The type alone: an error's words may hold what is nobody's business.
        self.setStatus(SpanStatus(code: .error, message: "\(type(of: error))"))
    }

    package func addEvent(_ event: SpanEvent) {}

    package func addLink(_ link: SpanLink) {}

    package func end<Instant: TracerInstant>(at instant: @autoclosure () -> Instant) {
        let ended = self.state.withLock { span -> FinishedSpan? in
            defer { span = nil }
            return span
        }
        guard var ended, let queue else { return }
        ended.end = max(ended.start, instant().nanosecondsSinceEpoch)
        queue.append(ended)
    }
}
