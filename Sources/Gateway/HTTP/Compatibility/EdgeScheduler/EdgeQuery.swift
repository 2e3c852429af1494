// Carillon · EdgeQuery.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Protocols

/// The subset of PostgREST's query language for a table of tokens.
///
/// It supports `column=eq.…`, `in.(…)`, `is.null`, `not.is.null`, `select`, `order`, `limit` and
/// `offset`. Anything else is refused, because ignoring a filter would affect too many rows.
struct EdgeQuery {
    private enum Condition {
        case among(Set<String>)
        case isNull(Bool)
    }

    private static let mostFilters = 100
    /// The most values of a filter: a user has at most 100 devices.
    private static let mostValues = 100

    /// The columns of the response.
    private(set) var columns = EdgeRow.Column.allCases
    private var conditions: [(column: EdgeRow.Column, condition: Condition)] = []
    private var order: [(column: EdgeRow.Column, isDescending: Bool, areNullsFirst: Bool)] = []
    private var limit = Int.max
    private(set) var offset = 0

    /// Whether the query asks for a part of the matching rows.
    var isPaged: Bool { self.limit < Int.max || self.offset > 0 || !self.order.isEmpty }

    /// Whether the query has any filter.
    var isFiltered: Bool { !self.conditions.isEmpty }

    /// - Parameter parameters: the decoded parameters of the URL; several filters of a column all
    ///   apply.
    /// - Throws: `Problem` with the first hundred faults.
    init(_ parameters: [RequestQuery.Field]) throws {
        var faults: [JobFault] = []
        var names: Set<String> = []
        for parameter in parameters where faults.count < FieldReader.mostFaults {
            do throws(JobFault) {
                let isFirst = names.insert(parameter.name).inserted
                guard isFirst || EdgeRow.Column(rawValue: parameter.name) != nil else {
                    throw JobFault(String(parameter.name.prefix(64)), "occurs twice")
                }
                try self.add(parameter.name, parameter.value)
            } catch {
                faults.append(error)
            }
        }
        guard faults.isEmpty else {
            throw Problem(.badRequest, "invalid query parameters", faults: faults, code: Self.code(of: faults))
        }
    }

    /// Returns PostgreSQL's code for an unknown column, otherwise PostgREST's for an invalid query.
    private static func code(of faults: [JobFault]) -> String {
        faults.contains { $0.reason == EdgeRow.noColumn } ? "42703" : "PGRST100"
    }

    private mutating func add(_ name: String, _ value: String) throws(JobFault) {
        switch name {
        case "select": if value != "*" { self.columns = try Self.columns(name, value) }
        case "order": try self.addOrder(value)
        case "limit": self.limit = try Self.number(name, value)
        case "offset": self.offset = try Self.number(name, value)
        // Parts of an upsert; the conflict columns are fixed here.
        case "on_conflict", "columns": break
        default:
            guard let column = EdgeRow.Column(rawValue: name) else {
                throw JobFault(String(name.prefix(64)), EdgeRow.noColumn)
            }
            guard self.conditions.count < Self.mostFilters else {
                throw JobFault(name, "is one filter too many; a query has at most \(Self.mostFilters)")
            }
            self.conditions.append((column, try Self.condition(name, value)))
        }
    }

    private static func columns(_ name: String, _ value: String) throws(JobFault) -> [EdgeRow.Column] {
        var columns: [EdgeRow.Column] = []
        for text in value.split(separator: ",", omittingEmptySubsequences: false) {
            guard let column = EdgeRow.Column(rawValue: text.filter { $0 != " " }) else {
                throw JobFault(name, "may name these columns: " + self.names)
            }
            // Each name is written for each row, so repeated ones would multiply the answer.
            guard !columns.contains(column) else { throw JobFault(name, "names \(column.rawValue) twice") }
            columns.append(column)
        }
        return columns
    }

    private static var names: String { EdgeRow.Column.allCases.map(\.rawValue).joined(separator: ", ") }

    private mutating func addOrder(_ value: String) throws(JobFault) {
        for text in value.split(separator: ",", omittingEmptySubsequences: false) {
            let parts = text.split(separator: ".")
            guard let column = parts.first.flatMap({ EdgeRow.Column(rawValue: String($0)) }),
                parts.dropFirst().allSatisfy({ ["asc", "desc", "nullsfirst", "nullslast"].contains($0) })
            else { throw JobFault("order", "must be columns with .asc or .desc") }
            guard !self.order.contains(where: { $0.column == column }) else {
                throw JobFault("order", "names \(column.rawValue) twice")
            }
            // PostgreSQL's default: nulls count as greater than any value.
            let isDescending = parts.contains("desc")
            let areNullsFirst = parts.contains("nullsfirst") || isDescending && !parts.contains("nullslast")
            self.order.append((column, isDescending, areNullsFirst))
        }
    }

    private static func number(_ name: String, _ value: String) throws(JobFault) -> Int {
        guard let number = Int(value), number >= 0 else { throw JobFault(name, "must be a whole number from 0") }
        return number
    }

    private static func condition(_ name: String, _ value: String) throws(JobFault) -> Condition {
        if value == "is.null" { return .isNull(true) }
        if value == "not.is.null" { return .isNull(false) }
        if value.hasPrefix("eq.") { return .among([String(value.dropFirst(3))]) }
        if value.hasPrefix("in.("), value.hasSuffix(")") {
            guard let values = Self.values(value.dropFirst(4).dropLast()) else {
                throw JobFault(name, "must quote values without quotes or backslashes inside, as in in.(\"a\",\"b\")")
            }
            guard values.count <= Self.mostValues else {
                throw JobFault(name, "names more than \(Self.mostValues) values")
            }
            return .among(values)
        }
        throw JobFault(name, "must be eq., in.(…), is.null or not.is.null")
    }

    /// Returns the values of a list; nil if a quoted value is malformed or has a backslash.
    ///
    /// As in PostgREST, a quoted value may hold commas, and a quote within a value counts as text.
    private static func values(_ list: Substring) -> Set<String>? {
        var values: Set<String> = []
        var rest = list
        while let first = rest.first {
            let isQuoted = first == "\""
            if isQuoted { rest = rest.dropFirst() }
            let value = rest.prefix { $0 != (isQuoted ? "\"" : ",") }
            rest = rest[value.endIndex...]
            if isQuoted {
                guard !rest.isEmpty, !value.contains("\\") else { return nil }
                rest = rest.dropFirst()
            }
            guard rest.isEmpty || rest.first == "," else { return nil }
            rest = rest.dropFirst()
            if isQuoted || !value.isEmpty { values.insert(String(value)) }
        }
        return values
    }

    // MARK: Rows

    /// Returns the rows that pass the filters, sorted, before `limit` and `offset`.
    func matching(_ rows: [EdgeRow]) -> [EdgeRow] {
        let found = rows.filter { row in
            self.conditions.allSatisfy { column, condition in
                switch condition {
                case .among(let values): row.isAmong(values, column)
                case .isNull(let isNull): (row.text(column) == nil) == isNull
                }
            }
        }
        guard !self.order.isEmpty else { return found }
        // Times have a fixed length, so they sort as texts.
        return found.sorted { left, right in
            for (column, isDescending, areNullsFirst) in self.order {
                switch (left.text(column), right.text(column)) {
                case (let first?, let second?) where first != second:
                    return isDescending ? first > second : first < second
                case (_?, nil): return !areNullsFirst
                case (nil, _?): return areNullsFirst
                default: continue
                }
            }
            return false
        }
    }

    /// Applies `limit` and `offset`.
    func page(_ rows: [EdgeRow]) -> ArraySlice<EdgeRow> {
        rows.dropFirst(self.offset).prefix(self.limit)
    }
}

/// The response that a client prefers, from the headers `Prefer` (RFC 7240) and `Accept`.
struct EdgePreferences: Equatable {
    /// Whether to return the changed rows.
    var returnsRows: Bool
    /// Whether to return the number of all rows.
    var counts: Bool
    /// Whether the client expects exactly one row, as an object.
    var isSingle: Bool

    init(prefer: [String], accept: String?) {
        let words = prefer.joined(separator: ",").split(separator: ",").map { word in word.filter { $0 != " " } }
        self.returnsRows = words.contains("return=representation")
        self.counts = words.contains { $0.hasPrefix("count=") }
        self.isSingle = accept?.contains("application/vnd.pgrst.object+json") == true
    }
}

/// A device as a row of the table `user_push_tokens`.
struct EdgeRow {
    /// The columns of the table.
    enum Column: String, CaseIterable {
        case id, userID = "user_id", platform, token, deviceID = "device_id"
        case appVersion = "app_version", locale, lastSeenAt = "last_seen_at", createdAt = "created_at", updatedAt =
            "updated_at"
    }

    /// The fault of an unknown column.
    static let noColumn = "is not a column of user_push_tokens"

    let device: Device

    /// Returns a column as text; nil for null.
    func text(_ column: Column) -> String? {
        switch column {
        case .id: self.device.id.description
        case .userID: self.device.user
        case .platform: self.device.platform.rawValue
        case .token: self.device.token
        case .deviceID: self.device.deviceID
        case .appVersion: self.device.appVersion
        case .locale: self.device.locale
        case .lastSeenAt, .updatedAt: self.device.lastUsedAt.rfc3339
        case .createdAt: self.device.createdAt.rfc3339
        }
    }

    /// Whether a column has one of the values; the letter case of an APNs token or a UUID does not
    /// count.
    func isAmong(_ values: Set<String>, _ column: Column) -> Bool {
        guard let text = self.text(column) else { return false }
        if values.contains(text) { return true }
        return switch column {
        case .id, .userID: values.contains { Self.isSameID($0, text) }
        case .token: values.contains { self.device.isToken($0) }
        default: false
        }
    }

    /// Whether two ids are the same text or the same UUID: the table's columns have the type uuid.
    static func isSameID(_ one: String, _ other: String) -> Bool {
        if one == other { return true }
        guard let id = NotificationID(one) else { return false }
        return id == NotificationID(other)
    }

    /// Writes the columns as an object.
    func write(_ columns: [Column], to writer: inout JSONWriter) {
        writer.beginObject()
        for column in columns {
            writer.key(escaping: column.rawValue)
            writer.string(self.text(column))
        }
        writer.endObject()
    }
}

extension Schema {
    static let edgeRow = Schema(
        "EdgeRow", "A device, with the columns in `select`, or all.",
        [
            "id?": .uuid,
            "user_id?": .string,
            "platform?": .choice("ios", "android"),
            "token?": .string,
            "device_id?": .string.orNull,
            "app_version?": .string.orNull,
            "locale?": .string.orNull,
            "last_seen_at?": .time,
            "created_at?": .time,
            "updated_at?": .time,
        ])

    static let edgeRows = Schema(
        "EdgeRows",
        .anyOf(.list(of: .edgeRow, max: 100), .edgeRow)(
            "The rows; a single object with Accept: application/vnd.pgrst.object+json."))
}

extension EdgeQuery {
    private static let column = "(" + EdgeRow.Column.allCases.map(\.rawValue).joined(separator: "|") + ")"
    private static let order = column + #"(\.(asc|desc|nullsfirst|nullslast))*"#

    static let filters = Fields(
        EdgeRow.Column.allCases.map { column in
            let filter = Schema.string(pattern: #"^(eq\..*|in\.\(.*\)|is\.null|not\.is\.null)$"#)
            return (
                column.rawValue + "?",
                filter("A filter: eq.…, in.(…) with at most \(Self.mostValues) values, is.null or not.is.null.")
            )
        })

    static let select: Fields = [
        "select?": .string(pattern: #"^(\*|\#(column)(,\#(column))*)$"#)("The columns to return, each once, or *.")
    ]

    static let page =
        select + [
            "order?": .string(pattern: "^\(order)(,\(order))*$")(
                "Columns, each once, with .asc or .desc, then .nullsfirst or .nullslast. "
                    + "By default, nulls are first with .desc."),
            "limit?": .count,
            "offset?": .count,
        ]
}

extension EdgePreferences {
    static let header: Fields = [
        "Prefer?": .string(
            "`return=representation` returns the rows, `count=…` their number. Other values are ignored.")
    ]
}
