// Carillon · SpanTracer.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Tracing

/// Records spans of traces that somebody began and keeps: those whose `traceparent` came in with the flag `sampled`.
///
/// It begins no trace of its own, so that whoever sends jobs decides how many are kept.
package struct SpanTracer: Tracer {
    /// The name of the field, and of the header.
    package static let field = "traceparent"

    private let queue: SpanQueue
    private let random: @Sendable () -> UInt64

    /// - Parameter random: for the ids of spans.
    package init(
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
