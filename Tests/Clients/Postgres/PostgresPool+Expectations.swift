// Carillon · PostgresPool+Expectations.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

// Untyped throws, as the macros of expectations do not take typed ones.
extension PostgresPool {
    /// The first row's only column, a number.
    func number(_ sql: String, _ parameters: PostgresValue..., timeout: Duration? = nil) async throws -> Int64? {
        let results = try await self.run([PostgresStatement(sql, parameters)], timeout: timeout)
        return try results.first?.first?.int8(0)
    }

    /// The error that a statement ends with; nil if it succeeds.
    func failure(of sql: String, _ parameters: PostgresValue..., timeout: Duration? = nil) async -> PostgresError? {
        await self.failure(of: [PostgresStatement(sql, parameters)], timeout: timeout)
    }

    /// The error that statements end with; nil if they succeed.
    func failure(of statements: [PostgresStatement], timeout: Duration? = nil) async -> PostgresError? {
        do throws(PostgresError) {
            try await self.run(statements, timeout: timeout)
            return nil
        } catch {
            return error
        }
    }
}
