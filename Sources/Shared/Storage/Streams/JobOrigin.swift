// Carillon · JobOrigin.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The first stream entry of a job; the ids of its notifications derive from it, however often the
/// job moves.
package struct JobOrigin: Sendable {
    /// The field of a moved job that holds its entry before it moved, or its row in an outbox.
    package static let movedField = "carillon:origin"
    /// The field of a replayed job that holds its first entry.
    package static let replayField = "carillon:replay"
    /// The names of both fields.
    private static let marks: Set = [ExactText(Self.movedField), ExactText(Self.replayField)]
    /// The most bytes of such a field; PostgreSQL could not index much longer ones.
    private static let longestOrigin = 1_024
    /// The most bytes of a `traceparent`; a longer one would be stored with each part of its job.
    private static let longestTrace = 128

    private let first: (stream: String, entry: String)
    /// The entry from when the job was last enqueued or replayed; a move keeps it, and a dead
    /// letter names it.
    private let latest: (stream: String, entry: String)
    /// The job's fields without the two that hold its origin, and without a `traceparent` that is
    /// too long.
    package let fields: [(name: String, value: ArraySlice<UInt8>)]
    private let isReplay: Bool
    /// The first entry as `stream/entry`.
    package let text: String
    /// The entry that notifications record for the job: the first, even if the job was scheduled.
    package var jobEntry: String

    /// Reads an entry of a stream.
    package init(stream: String, entry: String, fields: [(name: String, value: ArraySlice<UInt8>)]) {
        let moved = Self.entry(Self.movedField, fields)
        let replayed = Self.entry(Self.replayField, fields)
        self.latest = moved ?? (stream, entry)
        self.first = replayed ?? self.latest
        self.text = "\(self.first.stream)/\(self.first.entry)"
        self.jobEntry = self.text
        self.isReplay = replayed != nil
        let isMarked = moved != nil || replayed != nil
        let kept = isMarked ? fields.filter { !Self.marks.contains(ExactText($0.name)) } : fields
        self.fields = kept.contains { Self.isLongTrace($0) } ? kept.filter { !Self.isLongTrace($0) } : kept
    }

    private static func isLongTrace(_ field: (name: String, value: ArraySlice<UInt8>)) -> Bool {
        field.value.count > Self.longestTrace && ExactText(field.name) == "traceparent"
    }

    /// Reads `stream/entry` from the named field; nil if that is missing or malformed.
    private static func entry(
        _ name: String,
        _ fields: [(name: String, value: ArraySlice<UInt8>)]
    ) -> (stream: String, entry: String)? {
        guard let field = fields.last(where: { ExactText($0.name) == ExactText(name) }),
            field.value.count <= Self.longestOrigin, !field.value.contains(0)
        else { return nil }
        let text = String(decoding: field.value, as: UTF8.self)
        guard let slash = text.lastIndex(of: "/") else { return nil }
        return (String(text[..<slash]), String(text[text.index(after: slash)...]))
    }

    /// The input of the ids of its notifications.
    package var digest: EntryDigest {
        EntryDigest(
            stream: self.stream, entry: self.entry, fields: self.fields,
            isOfMillisecond: self.stream != Keyspace.schedules)
    }

    /// The stream of the first entry.
    package var stream: String { self.first.stream }

    /// The id of the first entry.
    package var entry: String { self.first.entry }

    /// The stream of the latest entry.
    package var latestStream: String { self.latest.stream }

    /// The id of the latest entry.
    package var latestEntry: String { self.latest.entry }

    /// When the job was enqueued or replayed, in Unix milliseconds; nil if the entry's id has no
    /// time.
    package var milliseconds: Int64? { StreamEntry.milliseconds(ofID: self.latest.entry) }

    /// Returns when the job was enqueued or replayed, at most `now`; `now` if the entry's id has no
    /// time.
    package func enqueuedAt(now: Timestamp) -> Timestamp {
        min(Timestamp(milliseconds: self.milliseconds ?? now.milliseconds), now)
    }

    /// Returns when a job counts as created: when it was enqueued or replayed or, if later, at its
    /// `deliver_at`; at most `now`.
    package func createdAt(deliverAt: Timestamp?, now: Timestamp) -> Timestamp {
        let enqueuedAt = self.enqueuedAt(now: now)
        return min(max(enqueuedAt, deliverAt ?? enqueuedAt), now)
    }

    /// The fields of the latest entry.
    package var latestFields: [(name: String, value: ArraySlice<UInt8>)] {
        self.isReplay ? self.fields + [(Self.replayField, ArraySlice(self.text.utf8))] : self.fields
    }

    /// The fields for a replay.
    package var replayFields: [(name: String, value: [UInt8])] {
        self.fields.map { ($0.name, Array($0.value)) } + [(Self.replayField, Array(self.text.utf8))]
    }

    /// The fields for a move to another stream.
    package var movedFields: [(name: String, value: [UInt8])] {
        let origin = "\(self.latest.stream)/\(self.latest.entry)"
        return self.latestFields.map { ($0.name, Array($0.value)) } + [(Self.movedField, Array(origin.utf8))]
    }
}
