// Carillon · DeadLetter.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// An entry that cannot be processed, with the reason, its origin and its fields.
package struct DeadLetter: Sendable {
    /// The field that lists the names and values that were cut, with their sizes.
    ///
    /// No job has a field of this name, so a replay of the letter fails again.
    package static let cutField = "carillon:cut"
    /// The fields with lists of users, which may be longer than others; `job` is the whole text of
    /// a row of an outbox.
    private static let lists: Set<ExactText> = ["users", "except", "job"]
    /// The most bytes of such a field: the limit of a list in ``JobLimits``.
    private static let longestList = 1_048_576
    /// The most bytes of another value; a valid one has at most 16 KB.
    private static let longestValue = 65_536
    private static let longestName = 1_024
    /// The most bytes of all names and values; a valid job has fewer.
    static let mostBytes = 4 * 1_048_576
    /// The most fields; a valid job and an edited replay have fewer.
    private static let mostFields = 128

    package let stream: String
    package let entry: String
    package let reason: String
    package let at: Timestamp
    package let fields: [(name: String, value: ArraySlice<UInt8>)]

    package init(
        stream: String,
        entry: String,
        reason: String,
        at: Timestamp,
        fields: [(name: String, value: ArraySlice<UInt8>)]
    ) {
        self.stream = stream
        self.entry = entry
        // A reason may quote a field's name; PostgreSQL's text cannot contain U+0000.
        self.reason = String(reason.unicodeScalars.map { $0.value == 0 ? "\u{FFFD}" : Character($0) })
        self.at = at
        self.fields = Self.cut(fields)
    }

    /// The bytes of all names and values.
    package var size: Int { Self.size(of: self.fields) }

    private static func size(of fields: [(name: String, value: ArraySlice<UInt8>)]) -> Int {
        fields.reduce(0) { $0 + $1.name.utf8.count + $1.value.count }
    }

    /// Cuts names and values that are too large to store or to read, and notes their sizes.
    ///
    /// An entry may have gigabytes.
    private static func cut(
        _ fields: [(name: String, value: ArraySlice<UInt8>)]
    ) -> [(name: String, value: ArraySlice<UInt8>)] {
        guard fields.count > Self.mostFields || Self.size(of: fields) > Self.longestValue else { return fields }
        var kept: [(name: String, value: ArraySlice<UInt8>)] = []
        var notes: [String] = []
        var left = Self.mostBytes
        for field in fields {
            guard left > 0, kept.count < Self.mostFields else {
                notes.append("\(fields.count - kept.count) more fields")
                break
            }
            let name = String(decoding: Self.start(of: ArraySlice(field.name.utf8), Self.longestName), as: UTF8.self)
            let longest = Self.lists.contains(ExactText(field.name)) ? Self.longestList : Self.longestValue
            let value = Self.start(of: field.value, min(longest, left))
            if name.utf8.count < field.name.utf8.count { notes.append("a name of \(field.name.utf8.count) bytes") }
            if value.count < field.value.count { notes.append("\(name) of \(field.value.count) bytes") }
            kept.append((name, value))
            left -= name.utf8.count + value.count
        }
        guard !notes.isEmpty else { return fields }
        let note = notes.prefix(16).joined(separator: ", ")
        kept.append((Self.cutField, ArraySlice(note.utf8)))
        return kept
    }

    /// Returns at most `most` bytes of a text, which end with a whole character.
    private static func start(of text: ArraySlice<UInt8>, _ most: Int) -> ArraySlice<UInt8> {
        guard text.count > most else { return text }
        var end = text.startIndex + most
        // Up to three bytes continue a character of UTF-8.
        for _ in 0..<3 where end > text.startIndex && text[end] & 0xC0 == 0x80 { end -= 1 }
        return text[..<end]
    }

    /// Creates the letter of a job, which names its latest entry.
    package init(_ origin: JobOrigin, reason: String, at: Timestamp) {
        self.init(
            stream: origin.latestStream, entry: origin.latestEntry, reason: reason, at: at, fields: origin.latestFields)
    }
}
