// Carillon · FinishedSpan.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Tracing

/// What a span has to tell once it has ended.
package struct FinishedSpan: Sendable {
    package let trace: TraceContext
    package let parent: UInt64
    package var name: String
    package let kind: SpanKind
    /// Nanoseconds since 1970.
    package let start: UInt64
    package var end: UInt64 = 0
    package var attributes = SpanAttributes()
    package var status: SpanStatus?

    package init(trace: TraceContext, parent: UInt64, name: String, kind: SpanKind, start: UInt64) {
        self.trace = trace
        self.parent = parent
        self.name = name
        self.kind = kind
        self.start = start
    }
}
