// Carillon · LayoutStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// Over how many parts the keys of Redis are spread, the same for all processes.
package struct LayoutStore: Sendable {
    let pool: PostgresPool

    /// Returns the number of parts.
    ///
    /// - Parameter first: the number that the first process records.
    package func parts(first: Int) async throws(PostgresError) -> Int {
        try await self.pool.query(Self.record, .int4(Int32(clamping: first)))
        guard let row = try await self.pool.query(Self.read).first else { return first }
        return Int(try row.int4(0))
    }

    private static let record = "INSERT INTO carillon.layout (parts) VALUES ($1) ON CONFLICT DO NOTHING"
    private static let read = "SELECT parts FROM carillon.layout"
}
