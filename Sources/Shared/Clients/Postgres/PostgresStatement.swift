// Carillon · PostgresStatement.swift
// SPDX-License-Identifier: Apache-2.0

/// One SQL statement and its parameters.
///
/// Each distinct text is prepared once a connection, so text is a fixed string and values are parameters, always.
package struct PostgresStatement: Sendable {
    package let sql: String
    package let parameters: [PostgresValue]

    package init(_ sql: String, _ parameters: [PostgresValue] = []) {
        self.sql = sql
        self.parameters = parameters
    }
}
