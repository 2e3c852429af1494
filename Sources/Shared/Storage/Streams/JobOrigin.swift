// Carillon · JobOrigin.swift
// SPDX-License-Identifier: Apache-2.0

/// Where a job stood when it was enqueued, which its notifications' ids are made of, however often it was moved since.
package struct JobOrigin: Sendable {
    /// The field of a job that was moved to make room for others: where it stood.
    package static let movedField = "carillon:origin"
    /// The field of a job that was a dead letter: where it stood first.
    package static let replayField = "carillon:replay"

    private let place: (stream: String, entry: String)
    /// Where it was enqueued the last time, which is how a dead letter names it.
    private let latest: (stream: String, entry: String)
    /// The job's fields, without those that tell where it stood.
    package let fields: [(name: String, value: ArraySlice<UInt8>)]
    private let isReplay: Bool

    /// Reads an entry as it stands in a stream.
    package init(stream: String, entry: String, fields: [(name: String, value: ArraySlice<UInt8>)]) {
        let moved = Self.place(Self.movedField, fields)
        let replayed = Self.place(Self.replayField, fields)
        self.latest = moved ?? (stream, entry)
        self.place = replayed ?? self.latest
        self.isReplay = replayed != nil
        let isMarked = moved != nil || replayed != nil
        self.fields =
            isMarked ? fields.filter { $0.name != Self.movedField && $0.name != Self.replayField } : fields
    }

    /// `stream/entry` in a field of that name.
    private static func place(
        _ name: String,
        _ fields: [(name: String, value: ArraySlice<UInt8>)]
    ) -> (stream: String, entry: String)? {
        guard let field = fields.last(where: { $0.name == name }) else { return nil }
        let text = String(decoding: field.value, as: UTF8.self)
        guard let slash = text.lastIndex(of: "/") else { return nil }
        return (String(text[..<slash]), String(text[text.index(after: slash)...]))
    }

    /// The stream of its first place.
    package var stream: String { self.place.stream }

    /// The entry of its first place.
    package var entry: String { self.place.entry }

    /// The first place as `stream/entry`.
    package var text: String { "\(self.place.stream)/\(self.place.entry)" }

    /// The stream that it was enqueued in the last time.
    package var latestStream: String { self.latest.stream }

    /// The entry as which it was enqueued the last time.
    package var latestEntry: String { self.latest.entry }

    /// When the job was made, in Unix milliseconds, a replayed one by its replay; nil if the entry's id does not say.
    package var milliseconds: Int64? { Int64(Substring(self.latest.entry.utf8.prefix { $0 != UInt8(ascii: "-") })) }

    /// The fields with which it was enqueued the last time.
    package var latestFields: [(name: String, value: ArraySlice<UInt8>)] {
        self.isReplay ? self.fields + [(Self.replayField, ArraySlice(self.text.utf8))] : self.fields
    }

    /// The fields with which it is replayed.
    package var replayFields: [(name: String, value: [UInt8])] {
        self.fields.map { ($0.name, Array($0.value)) } + [(Self.replayField, Array(self.text.utf8))]
    }

    /// The fields with which it is moved to another stream.
    package var movedFields: [(name: String, value: [UInt8])] {
        let origin = "\(self.latest.stream)/\(self.latest.entry)"
        return self.latestFields.map { ($0.name, Array($0.value)) } + [(Self.movedField, Array(origin.utf8))]
    }
}
