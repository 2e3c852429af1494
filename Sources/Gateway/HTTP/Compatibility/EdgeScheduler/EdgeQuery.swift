// Carillon · EdgeQuery.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Protocols

/// The part of PostgREST's query language that a table of tokens needs: `column=eq.…`, `in.(…)`, `is.null`, `not.is.null`,
/// `select`, `order`, `limit` and `offset`.
///
/// What is not understood is refused, since a filter that is left out would touch more rows than were meant.
struct EdgeQuery {
    private enum Condition {
        case among(Set<String>)
        case isNull(Bool)
    }

    /// The columns to be written.
    private(set) var columns = EdgeRow.Column.allCases
    private var conditions: [(column: EdgeRow.Column, condition: Condition)] = []
    private var order: [(column: EdgeRow.Column, isDescending: Bool)] = []
    private var limit = Int.max
    private(set) var offset = 0

    /// Whether it narrows the rows at all.
    var isFiltered: Bool { !self.conditions.isEmpty }

    /// - Parameter parameters: of the URL, decoded; filters of one column count together.
    /// - Throws: `Problem` that names every fault.
    init(_ parameters: [RequestQuery.Field]) throws {
        var faults: [JobFault] = []
        var names: Set<String> = []
        for parameter in parameters {
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
            throw Problem(.badRequest, "the query is at fault", faults: faults, code: Self.code(of: faults))
        }
    }

    /// PostgreSQL's code for a column that is not there, or else PostgREST's for a query that it cannot read.
    private static func code(of faults: [JobFault]) -> String {
        faults.contains { $0.reason == EdgeRow.noColumn } ? "42703" : "PGRST100"
    }

    private mutating func add(_ name: String, _ value: String) throws(JobFault) {
        switch name {
        case "select": if value != "*" { self.columns = try Self.columns(name, value) }
        case "order": try self.addOrder(value)
        case "limit": self.limit = try Self.number(name, value)
        case "offset": self.offset = try Self.number(name, value)
        // Said of an upsert; the columns by which rows are the same are fixed here.
        case "on_conflict", "columns": break
        default:
            guard let column = EdgeRow.Column(rawValue: name) else {
                throw JobFault(String(name.prefix(64)), EdgeRow.noColumn)
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
            self.order.append((column, parts.contains("desc")))
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
            let texts = value.dropFirst(4).dropLast().split(separator: ",")
            return .among(Set(texts.map { $0.hasPrefix("\"") ? String($0.dropFirst().dropLast()) : String($0) }))
        }
        throw JobFault(name, "takes eq., in.(…), is.null or not.is.null")
    }

    // MARK: Rows

    /// Those that the filters name, in the order that was asked for, before `limit` and `offset`.
    func matching(_ rows: [EdgeRow]) -> [EdgeRow] {
        let found = rows.filter { row in
            self.conditions.allSatisfy { column, condition in
                let text = row.text(column)
                return switch condition {
                case .among(let values): text.map { values.contains($0) } ?? false
                case .isNull(let isNull): (text == nil) == isNull
                }
            }
        }
        guard !self.order.isEmpty else { return found }
        // Times are texts of one length, so texts order as their values do. Nulls are last.
        return found.sorted { left, right in
            for (column, isDescending) in self.order {
                switch (left.text(column), right.text(column)) {
                case (let first?, let second?) where first != second:
                    return isDescending ? first > second : first < second
                case (_?, nil): return true
                case (nil, _?): return false
                default: continue
                }
            }
            return false
        }
    }

    /// The part of `rows` that `limit` and `offset` leave.
    func page(_ rows: [EdgeRow]) -> ArraySlice<EdgeRow> {
        rows.dropFirst(self.offset).prefix(self.limit)
    }
}
