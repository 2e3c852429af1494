// Carillon · LayoutStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// The identity of the installation, and the number of parts over which the keys of Redis are
/// spread; the same for all processes.
package struct LayoutStore: Sendable {
    /// The numbers of parts.
    package struct Layout: Sendable, Equatable {
        package let parts: Int
        /// Earlier numbers, oldest first.
        package let former: [Int]
    }

    /// Why the number of parts was not changed.
    package enum Refusal: Error, Equatable {
        /// No process has recorded a number yet.
        case isNew
        /// The installation has at least as many.
        case isNoGrowth(parts: Int)
        /// New parts would reuse the key names of former parts, which may still hold data.
        case sharesNames
        /// These programs are connected.
        case isRunning([String])
    }

    static let identity = "SELECT id::text FROM carillon.outbox_database"

    let pool: PostgresPool

    /// Returns the identity of the database, which backups and copies keep; nil if it lost the row.
    package func identity() async throws(PostgresError) -> String? {
        try await self.pool.query(Self.identity).first?.text(0)
    }

    /// Returns the layout.
    ///
    /// - Parameter first: the number that the first process records.
    package func layout(first: Int) async throws(PostgresError) -> Layout {
        try await self.pool.query(Self.record, .int4(clamping: first))
        return try await self.recorded() ?? Layout(parts: first, former: [])
    }

    /// Returns the layout; nil before the first process has recorded it.
    package func recorded() async throws(PostgresError) -> Layout? {
        guard let row = try await self.pool.query(Self.read).first else { return nil }
        return try Self.layout(row)
    }

    /// Records a larger number of parts.
    ///
    /// Processes read the number when they start, and all must have the same. So none may run.
    ///
    /// - Parameter programs: the application names of all processes.
    /// - Returns: the layout before.
    /// - Throws: ``Refusal`` or ``PostgresError``.
    package func grow(to parts: Int, programs: [String]) async throws -> Layout {
        try await self.pool.transaction { transaction in
            // A process that starts now reads the number after the change.
            try await transaction.query("LOCK TABLE carillon.layout")
            guard let row = try await transaction.query(Self.read).first else { throw Refusal.isNew }
            let before = try Self.layout(row)
            guard parts > before.parts else { throw Refusal.isNoGrowth(parts: before.parts) }
            let earlier = (before.former + [before.parts]).filter { $0 > 1 }.flatMap { PartTags.all($0) }
            guard Set(PartTags.all(parts)).isDisjoint(with: earlier) else { throw Refusal.sharesNames }
            let running = try await transaction.query(Self.running, .texts(programs))
            let names = try running.texts()
            guard names.isEmpty else { throw Refusal.isRunning(names) }
            try await transaction.query(Self.change, .int4(clamping: parts))
            return before
        }
    }

    private static func layout(_ row: PostgresRow) throws(PostgresError) -> Layout {
        let former = try row.text(1).split(separator: ",").compactMap { Int($0) }
        return Layout(parts: Int(try row.int4(0)), former: former)
    }

    private static let record = "INSERT INTO carillon.layout (parts) VALUES ($1) ON CONFLICT DO NOTHING"
    private static let read = "SELECT parts, array_to_string(former, ',') FROM carillon.layout"
    /// A pooler may add a host to the application name.
    private static let running = """
        SELECT DISTINCT program FROM pg_stat_activity
        JOIN unnest($1) AS program ON starts_with(application_name, program)
        WHERE datname = current_database() ORDER BY 1
        """
    private static let change = "UPDATE carillon.layout SET former = former || parts, parts = $1"
}
