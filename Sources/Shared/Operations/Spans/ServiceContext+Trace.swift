// Carillon · ServiceContext+Trace.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Tracing

private enum TraceKey: ServiceContextKey {
    typealias Value = TraceContext
    static var nameOverride: String? { SpanTracer.field }
}

extension ServiceContext {
    /// Where in a trace this is; nil if in none.
    package var trace: TraceContext? {
        get { self[TraceKey.self] }
        set { self[TraceKey.self] = newValue }
    }

    /// Where a `traceparent` says; in no trace if there is none, or none that can be read.
    package init(traceParent: String?) {
        self = .topLevel
        self.trace = traceParent.flatMap { TraceContext($0) }
    }
}
