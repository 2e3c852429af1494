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

    /// Writes the stream as an object.
    package func write(to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("name", self.stream.name)
        writer.member("lane", self.stream.lane.rawValue)
        writer.member("provider", self.stream.provider?.rawValue)
        writer.member("length", self.stream.length)
        writer.member("lag", self.stream.lag)
        writer.member("pending", self.stream.pending)
        writer.member("oldest_seconds", self.age?.components.seconds)
        writer.member("oldest_pending_seconds", self.pendingAge?.components.seconds)
        writer.member("consumers", self.stream.consumers)
        writer.member("retries", self.stream.retries)
        writer.member("overdue_seconds", self.overdue?.components.seconds)
        writer.member("waited_seconds", self.waited?.components.seconds)
        writer.endObject()
    }
}
