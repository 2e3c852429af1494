// Carillon · RequestQuery.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The decoded fields of a request's query or of a form.
///
/// Rejects malformed escapes, invalid UTF-8 and repeated names, because a proxy or a log may read
/// them differently. Also rejects long runs of combining marks, which are slow to compare.
package struct RequestQuery: Sendable, Equatable {
    /// A decoded name and its value.
    package struct Field: Sendable, Equatable {
        package let name: String
        package let value: String

        init(_ name: String, _ value: String) {
            self.name = name
            self.value = value
        }
    }

    /// The fields in order; names are in lower case if case was ignored.
    package let fields: [Field]

    /// Parses `name=value&…`; a name without `=` has an empty value.
    ///
    /// - Parameters:
    ///   - text: a target's part after the question mark, or a form's body.
    ///   - ignoresCase: whether `ID` and `id` are the same name; if so, look up names in lower
    ///     case.
    /// - Throws: ``QueryFault`` if the text cannot be decoded, repeats a name, or has too many
    ///   combining marks in a row.
    package init(_ text: some StringProtocol, ignoresCase: Bool = false) throws(QueryFault) {
        var fields = try Self.fields(text)
        if ignoresCase { fields = fields.map { Field($0.name.lowercased(), $0.value) } }
        var names: Set<String> = []
        for field in fields where !names.insert(field.name).inserted { throw .repeated(field.name) }
        self.fields = fields
    }

    /// Parses the query of a request's target.
    ///
    /// - Throws: ``QueryFault``, as ``init(_:ignoresCase:)``.
    package init(target: some StringProtocol, ignoresCase: Bool = false) throws(QueryFault) {
        try self.init(target.drop { $0 != "?" }.dropFirst(), ignoresCase: ignoresCase)
    }

    /// Returns the value of a name; nil if it is absent.
    package subscript(name: String) -> String? { self.fields.first { $0.name == name }?.value }

    /// Parses all fields, for formats in which a name may be repeated.
    ///
    /// - Throws: ``QueryFault`` if a field cannot be decoded or has too many combining marks in a
    ///   row.
    package static func fields(_ text: some StringProtocol) throws(QueryFault) -> [Field] {
        var fields: [Field] = []
        // Split bytes, not characters: an unencoded combining mark would merge with a separator.
        for part in String(text).utf8.split(separator: UInt8(ascii: "&")) {
            let pair = part.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
                .map { Substring($0) }
            guard let name = PercentCoding.decode(pair[0], plusIsSpace: true) else { throw .malformed("query") }
            guard !CombiningMarks.areTooMany(in: name) else { throw .tooManyMarks("query") }
            guard let value = PercentCoding.decode(pair.count > 1 ? pair[1] : "", plusIsSpace: true) else {
                throw .malformed(name)
            }
            guard !CombiningMarks.areTooMany(in: value) else { throw .tooManyMarks(name) }
            fields.append(Field(name, value))
        }
        return fields
    }
}

/// An invalid query parameter and the reason.
package struct QueryFault: Error, Sendable, Equatable, CustomStringConvertible {
    private static let longestName = 64

    /// The parameter's name, cut to 64 characters; `query` if the fault is in the name.
    package let name: String
    package let reason: String

    fileprivate static func malformed(_ name: String) -> QueryFault {
        QueryFault(name: String(name.prefix(self.longestName)), reason: "is not percent-encoded UTF-8")
    }

    fileprivate static func tooManyMarks(_ name: String) -> QueryFault {
        QueryFault(name: String(name.prefix(self.longestName)), reason: CombiningMarks.fault)
    }

    fileprivate static func repeated(_ name: String) -> QueryFault {
        QueryFault(name: String(name.prefix(self.longestName)), reason: "occurs twice")
    }

    package var description: String { "\(self.name): \(self.reason)" }
}
