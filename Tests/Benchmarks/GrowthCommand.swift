// Carillon · GrowthCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Storage

/// Measures whether storing slows down as the table of notifications grows.
struct GrowthCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "growth",
        abstract: "Measures rows stored a second in a small and in a large table."
    )

    /// Rows that are made at once, so that making them is not timed.
    private static let step = 100_000

    @Option(help: "Rows of the large table.")
    var rows = 20_000_000
    @Option(help: "Rows of the small table, and the rows that each rate is measured over.")
    var window = 1_000_000
    @Option(help: "Users to choose from at random.")
    var users = 1_000_000

    func validate() throws {
        guard self.window >= Self.step else { throw ValidationError("--window: must be at least \(Self.step)") }
        guard self.rows >= 4 * self.window else { throw ValidationError("--rows: must be at least 4 windows") }
    }

    func run() async throws {
        try await ScratchDatabase.use { try await self.measure($0) }
    }

    private func measure(_ database: ScratchDatabase) async throws {
        let users = self.users
        try await database.pool.withScriptConnection { connection in
            try connection.execute(
                """
                INSERT INTO carillon.users (user_id) SELECT 'user-' || n FROM generate_series(0, \(users) - 1) n;
                INSERT INTO carillon.inboxes (user_id) SELECT user_id FROM carillon.users;
                """
            )
            try connection.execute("VACUUM ANALYZE carillon.inboxes")
        }
        var stored = 0
        /// Stores up to a number of rows, and returns the rows a second.
        func store(to end: Int) async throws -> Double {
            let start = stored
            var elapsed = 0.0
            while stored < end {
                elapsed += try await self.store(Self.step, database)
                stored += Self.step
                FileHandle.standardError.write(Data("\rstored \(stored) of \(self.rows) rows".utf8))
            }
            return Double(stored - start) / elapsed
        }
        _ = try await store(to: self.window)
        let small = try await store(to: 2 * self.window)
        let between = try await store(to: self.rows - self.window)
        let large = try await store(to: self.rows)
        FileHandle.standardError.write(Data("\n".utf8))

        let size = "SELECT pg_total_relation_size('carillon.notifications')"
        var report = Report("growth")
        report.add("users", self.users)
        report.add("rows", stored)
        report.add("gb", Double(try await database.pool.query(size).first?.int8(0) ?? 0) / 1_000_000_000)
        report.add("per_second_from_\(self.window)", small)
        report.add("per_second_between", between)
        report.add("per_second_to_\(self.rows)", large)
        report.add("ratio", large / small)
        try report.print()
    }

    /// Stores rows on one connection, and returns the seconds that it took.
    private func store(_ rows: Int, _ database: ScratchDatabase) async throws -> Double {
        let work = PersistWork(rows: rows, users: self.users)
        let store = Database(database.pool).notifications
        return try await seconds {
            for batch in work.batches { _ = try await store.store(batch, areRepeats: false) }
        }
    }
}
