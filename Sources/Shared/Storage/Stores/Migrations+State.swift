// Carillon · Migrations+State.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

extension Migrations {
    /// How a database stands to this release.
    package struct State: Sendable, Equatable {
        /// Number and name of those that are not applied.
        package let missing: [String]
        /// Numbers of those that are applied and that this release does not know.
        package let unknown: [Int]
    }

    /// Looks, and changes nothing.
    package static func state(of pool: PostgresPool) async throws(PostgresError) -> State {
        let known = try await pool.query("SELECT to_regclass('carillon.schema_migrations') IS NOT NULL")
        var applied: Set<Int> = []
        if try known.first?.bool(0) == true {
            for row in try await pool.query("SELECT number FROM carillon.schema_migrations") {
                applied.insert(Int(try row.int4(0)))
            }
        }
        return State(
            missing: Self.all.filter { !applied.contains($0.number) }.map { "\($0.number) \($0.name)" },
            unknown: applied.subtracting(Self.all.map(\.number)).sorted()
        )
    }
}
