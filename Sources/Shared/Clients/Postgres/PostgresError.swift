// Carillon · PostgresError.swift
// SPDX-License-Identifier: Apache-2.0

import CLibpq

/// Why a PostgreSQL call failed.
///
/// Carries SQLSTATE and the names of what was violated, never the server's message, its detail or a parameter, as those
/// repeat the values.
package struct PostgresError: Error, Sendable, Equatable, CustomStringConvertible, CustomDebugStringConvertible {
    /// What happened, and with it whether the statements may have run.
    package enum Code: String, Sendable {
        /// No connection before the deadline; nothing was sent.
        case unavailable
        /// Sent, but no answer before the deadline; it may have been committed.
        case timeout
        /// The connection broke after sending; it may have been committed.
        case connectionLost
        /// Too many callers wait already; nothing was sent.
        case overloaded
        /// The caller's task was cancelled.
        case cancelled
        /// The pool was closed; nothing was sent.
        case closed
        /// PostgreSQL refused a statement, and with it all of its transaction.
        case server
        /// A row does not hold what its reader expects.
        case decoding
    }

    package let code: Code
    /// Five characters, as in PostgreSQL's appendix A.
    package let sqlState: String?
    package let constraint: String?
    package let table: String?
    package let column: String?
    /// Our own words, or the network's.
    package let message: String?
    /// File and line of who made the error.
    private let place: String

    package init(
        _ code: Code,
        _ message: String? = nil,
        sqlState: String? = nil,
        constraint: String? = nil,
        table: String? = nil,
        column: String? = nil,
        file: StaticString = #fileID,
        line: UInt = #line
    ) {
        self.code = code
        self.sqlState = sqlState
        self.constraint = constraint
        self.table = table
        self.column = column
        self.message = message
        self.place = "\(file):\(line)"
    }

    /// The refusal that a result stands for.
    init(result: OpaquePointer, file: StaticString = #fileID, line: UInt = #line) {
        func field(_ code: UInt8) -> String? {
            PQresultErrorField(result, CInt(code)).map { String(cString: $0) }
        }
        self.init(
            .server,
            sqlState: field(UInt8(ascii: "C")),
            constraint: field(UInt8(ascii: "n")),
            table: field(UInt8(ascii: "t")),
            column: field(UInt8(ascii: "c")),
            file: file,
            line: line
        )
    }

    /// Whether the fault lies in the data or the statement, so that trying the same again is useless.
    ///
    /// SQLSTATE classes 21 (cardinality), 22 (data), 23 (integrity), 42 (syntax or access) and 54 (program limit).
    package var isRefusal: Bool {
        guard self.code == .server, let sqlState else { return false }
        return ["21", "22", "23", "42", "54"].contains(sqlState.prefix(2))
    }

    package var description: String {
        var parts = ["postgres \(self.code.rawValue)"]
        if let sqlState { parts.append("SQLSTATE \(sqlState)") }
        if let constraint { parts.append("constraint \(constraint)") }
        if let table { parts.append("table \(table)") }
        if let column { parts.append("column \(column)") }
        let facts = parts.joined(separator: " ")
        return self.message.map { "\(facts): \($0)" } ?? facts
    }

    /// For developers: with the place in the source.
    package var debugDescription: String { "\(self.description) (\(self.place))" }

    package static func == (left: PostgresError, right: PostgresError) -> Bool {
        left.code == right.code && left.sqlState == right.sqlState && left.constraint == right.constraint
    }
}
