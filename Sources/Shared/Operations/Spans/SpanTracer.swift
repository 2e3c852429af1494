// Carillon · SpanTracer.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization
import Tracing

/// Records spans of traces that arrived with a sampled `traceparent`.
///
/// It never starts a trace, so the sender decides how many are kept.
package struct SpanTracer: Tracer {
    /// The name of the job field and of the header.
    package static let field = "traceparent"

    private let queue: SpanQueue
    private let random: @Sendable () -> UInt64

    /// - Parameter random: generates span ids.
    init(
        queue: SpanQueue,
        random: @escaping @Sendable () -> UInt64 = { UInt64.random(in: 1 ... .max) }
    ) {
        self.queue = queue
        self.random = random
    }

    package func startSpan<Instant: TracerInstant>(
        _ operationName: String,
        context: @autoclosure () -> ServiceContext,
        ofKind kind: SpanKind,
        at instant: @autoclosure () -> Instant,
        function: String,
        file fileID: String,
        line: UInt
    ) -> RecordedSpan {
        var context = context()
        guard let parent = context.trace, parent.isSampled else {
            return RecordedSpan(context: context, span: nil, queue: nil)
        }
        let trace = parent.with(span: self.random())
        context.trace = trace
        let span = FinishedSpan(
            trace: trace,
            parent: parent.span,
            name: operationName,
            kind: kind,
            start: instant().nanosecondsSinceEpoch
        )
        return RecordedSpan(context: context, span: span, queue: self.queue)
    }

    package func forceFlush() {}

    package func extract<Carrier, Extract: Extractor>(
        _ carrier: Carrier,
        into context: inout ServiceContext,
        using extractor: Extract
    ) where Extract.Carrier == Carrier {
        context.trace = extractor.extract(key: Self.field, from: carrier).flatMap { TraceContext($0) }
    }

    package func inject<Carrier, Inject: Injector>(
        _ context: ServiceContext,
        into carrier: inout Carrier,
        using injector: Inject
    ) where Inject.Carrier == Carrier {
        guard let trace = context.trace else { return }
        injector.inject(trace.traceParent, forKey: Self.field, into: &carrier)
    }
}

/// A span that is queued when it ends.
///
/// Without a sampled trace, it only carries its context.
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

    /// Sets the span's status.
    ///
    /// Other events are reported as child spans.
    package func recordError<Instant: TracerInstant>(
        _ error: any Error,
        attributes: SpanAttributes,
        at instant: @autoclosure () -> Instant
    ) {
        // Only the type: an error's text may contain private data.
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

/// The data of a span.
package struct FinishedSpan: Sendable {
    let trace: TraceContext
    let parent: UInt64
    var name: String
    let kind: SpanKind
    /// Nanoseconds since 1970.
    let start: UInt64
    var end: UInt64 = 0
    var attributes = SpanAttributes()
    var status: SpanStatus?
}

/// The key of the trace in a `ServiceContext`.
private enum TraceKey: ServiceContextKey {
    typealias Value = TraceContext
    static var nameOverride: String? { SpanTracer.field }
}

extension ServiceContext {
    /// The position in a trace; nil if there is none.
    package var trace: TraceContext? {
        get { self[TraceKey.self] }
        set { self[TraceKey.self] = newValue }
    }

    /// A context in the trace of `traceParent`; in none if that is nil or malformed.
    package init(traceParent: String?) {
        self = .topLevel
        self.trace = traceParent.flatMap { TraceContext($0) }
    }
}
