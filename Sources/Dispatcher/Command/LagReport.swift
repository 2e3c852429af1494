// Carillon · LagReport.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Operations
import Storage

/// How much waits where, and for how long.
struct LagReport {
    let streams: [StreamSurvey.Stream]
    let aside: StreamSurvey.Aside
    /// By Redis's clock, which dates the entries.
    let now: Timestamp

    /// How long the oldest entry of a stream has been in it; nil if it is empty.
    func age(_ stream: StreamSurvey.Stream) -> Duration? {
        stream.oldest.map { max(.zero, self.now - $0) }
    }

    /// How long the oldest entry that is being worked on has been in its stream.
    func pendingAge(_ stream: StreamSurvey.Stream) -> Duration? {
        stream.oldestPending.map { max(.zero, self.now - $0) }
    }

    /// How long the first of the retries is overdue.
    func overdue(_ stream: StreamSurvey.Stream) -> Duration? {
        stream.nextRetry.flatMap { $0 < self.now ? self.now - $0 : nil }
    }

    /// How long the oldest work of a stream has waited, be it in the stream, for a retry or held
    /// back.
    func waited(_ stream: StreamSurvey.Stream) -> Duration? {
        stream.waitingSince.map { max(.zero, self.now - $0) }
    }

    /// The longest that anything has waited that could have been done; more dispatchers help only
    /// with that.
    var worst: Duration {
        self.streams.flatMap { [self.age($0), self.overdue($0)] }.compactMap(\.self).max() ?? .zero
    }

    /// For people; streams that are empty are told by their number.
    ///
    /// - Parameter showsAll: whether streams that are empty are listed too.
    func table(showsAll: Bool) -> (table: Table, empty: Int) {
        var table = Table([
            .text("STREAM"), .number("LENGTH"), .number("LAG"), .number("PENDING"), .number("OLDEST"),
            .number("OLDEST PENDING"), .number("CONSUMERS"), .number("RETRIES"), .number("OVERDUE"),
            .number("WAITED"),
        ])
        var empty = 0
        for stream in self.streams {
            // The jobs' streams are worth their lines in any case.
            guard showsAll || stream.provider == nil || stream.length > 0 || stream.retries > 0 else {
                empty += 1
                continue
            }
            table.add([
                stream.name, "\(stream.length)", stream.lag.map { "\($0)" }, "\(stream.pending)",
                self.age(stream).map { DisplayText.duration($0) },
                self.pendingAge(stream).map { DisplayText.duration($0) },
                "\(stream.consumers)", stream.provider == nil ? nil : "\(stream.retries)",
                self.overdue(stream).map { DisplayText.duration($0) },
                self.waited(stream).map { DisplayText.duration($0) },
            ])
        }
        return (table, empty)
    }

    /// Writes the members of an object.
    func write(to writer: inout JSONWriter) {
        writer.member("at", self.now.rfc3339)
        writer.member("worst_seconds", self.worst.components.seconds)
        writer.key("streams")
        writer.beginArray()
        for stream in self.streams {
            writer.beginObject()
            writer.member("name", stream.name)
            writer.member("lane", stream.lane.rawValue)
            writer.member("provider", stream.provider?.rawValue)
            let numbers: [(String, Int64?)] = [
                ("length", Int64(stream.length)), ("lag", stream.lag.map { Int64($0) }),
                ("pending", Int64(stream.pending)), ("oldest_seconds", self.age(stream)?.components.seconds),
                ("oldest_pending_seconds", self.pendingAge(stream)?.components.seconds),
                ("consumers", Int64(stream.consumers)), ("retries", Int64(stream.retries)),
                ("overdue_seconds", self.overdue(stream)?.components.seconds),
                ("waited_seconds", self.waited(stream)?.components.seconds),
            ]
            for (name, number) in numbers {
                writer.key(escaping: name)
                if let number { writer.integer(number) } else { writer.null() }
            }
            writer.endObject()
        }
        writer.endArray()
        writer.member("dead", self.aside.dead)
        writer.member("unconfirmed", self.aside.unconfirmed)
        writer.member("overflow", self.aside.overflow)
    }
}
