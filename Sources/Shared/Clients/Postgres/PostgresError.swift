// Carillon · PostgresError.swift
// SPDX-License-Identifier: Apache-2.0

import CLibpq

/// The failure of a PostgreSQL call.
///
/// Carries the SQLSTATE and the names of the constraint, table and column. The server's message,
/// its detail and the parameters are left out: they repeat values.
package struct PostgresError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of failure, which also tells whether the statements may have run.
    package enum Code: String, Sendable {
        /// No connection before the deadline; nothing was sent.
        case unavailable
        /// Sent, but no answer before the deadline; the transaction may have committed.
        case timeout
        /// The connection broke after sending, here or behind a pooler; the transaction may have
        /// committed.
        case connectionLost
        /// Too many calls wait; nothing was sent.
        case overloaded
        /// The caller's task was cancelled.
        case cancelled
        /// The pool was closed; nothing was sent.
        case closed
        /// PostgreSQL refused a statement and so rolled back its transaction.
        case server
        /// A row does not hold what its reader expects.
        case decoding
    }

    package let code: Code
    /// The five characters of PostgreSQL's appendix A.
    package let sqlState: String?
    let constraint: String?
    package let table: String?
    let column: String?
    /// Our own message, or the network's.
    let message: String?

    package init(
        _ code: Code,
        _ message: String? = nil,
        sqlState: String? = nil,
        constraint: String? = nil,
        table: String? = nil,
        column: String? = nil
    ) {
        self.code = code
        self.sqlState = sqlState
        self.constraint = constraint
        self.table = table
        self.column = column
        self.message = message
    }

    /// Creates the error that a failed result reports.
    init(result: OpaquePointer) {
        func field(_ code: UInt8) -> String? {
            PQresultErrorField(result, CInt(code)).map { String(cString: $0) }
        }
        let sqlState = field(UInt8(ascii: "C"))
        self.init(
            // Class 08: a pooler reports that it lost the server, so the commit is unknown.
            sqlState?.hasPrefix("08") == true ? .connectionLost : .server,
            sqlState: sqlState,
            constraint: field(UInt8(ascii: "n")),
            table: field(UInt8(ascii: "t")),
            column: field(UInt8(ascii: "c"))
        )
    }

    /// Whether the data is at fault, so that a retry is useless.
    ///
    /// SQLSTATE classes 21 (cardinality), 22 (data), 23 (integrity) and 54 (program limit). Class
    /// 42 (syntax or access) is not one: the statements are constant, so the schema or a right is
    /// missing.
    package var isRefusal: Bool {
        guard self.code == .server, let sqlState else { return false }
        return ["21", "22", "23", "54"].contains(sqlState.prefix(2))
    }

    /// Whether the server could not do it now, so that a retry may help.
    ///
    /// All failures without a result, and SQLSTATE classes 40 (rollback, such as a deadlock), 53
    /// (resources), 57 (intervention, such as a time limit) and 25006 (a standby).
    package var isTransient: Bool {
        switch self.code {
        case .unavailable, .timeout, .connectionLost, .overloaded, .cancelled, .closed: true
        case .server:
            self.sqlState.map { ["40", "53", "57"].contains($0.prefix(2)) || $0 == "25006" } ?? false
        case .decoding: false
        }
    }

    /// Whether PostgreSQL cancelled the statement at its time limit, or because the call was
    /// cancelled.
    package var isStatementTimeout: Bool { self.sqlState == "57014" }

    package var description: String {
        var parts = ["postgres \(self.code.rawValue)"]
        if let sqlState { parts.append("SQLSTATE \(sqlState)") }
        if let constraint { parts.append("constraint \(constraint)") }
        if let table { parts.append("table \(table)") }
        if let column { parts.append("column \(column)") }
        let facts = parts.joined(separator: " ")
        return self.message.map { "\(facts): \($0)" } ?? facts
    }
}
