// Carillon · PersistCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Storage

/// Stored notifications a second on one connection, beside plain C programs on libpq.
struct PersistCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "persist",
        abstract: "Stored rows a second beside plain libpq programs."
    )

    @Option(help: "The program made of Yardsticks/persist.c.")
    var yardstick: String

    @Option var rows = 200_000
    @Option(help: "Out of how many users each row's is drawn.")
    var users = 100_000
    @Option(help: "How often each is measured; the median counts.")
    var rounds = 3

    func run() async throws {
        let database = try await ScratchDatabase.make()
        do {
            try await self.measure(database)
        } catch {
            try await database.drop()
            throw error
        }
        try await database.drop()
    }

    private func measure(_ database: ScratchDatabase) async throws {
        let folder = try TemporaryFolder()
        let work = PersistWork(rows: self.rows, users: self.users)
        let same = "\(folder.path)/store.statements"
        let plain = "\(folder.path)/plain.statements"
        try work.writeStoreStatements(to: same)
        try work.writePlainInserts(to: plain)

        // Users whom the database knows are the rule; each new one costs two more rows.
        for areKnown in [true, false] {
            var sameRates: [Double] = []
            var plainRates: [Double] = []
            var ours: [Double] = []
            for _ in 0..<self.rounds {
                try await self.prepare(database, areKnown)
                sameRates.append(try self.replay(same, database))
                try await self.check(database)
                try await self.prepare(database, areKnown)
                ours.append(try await self.store(work, database))
                try await self.check(database)
                try await self.prepare(database, areKnown)
                plainRates.append(try self.replay(plain, database))
                try await self.check(database)
            }
            var report = Report(areKnown ? "persist" : "persist_new_users")
            report.add("rows", self.rows)
            report.add("users", self.users)
            report.add("yardstick_libpq_same_sql_per_second", median(sameRates))
            report.add("yardstick_plain_insert_per_second", median(plainRates))
            report.add("per_second", median(ours))
            report.add("ratio_same_sql", median(ours) / median(sameRates))
            report.add("ratio_plain_insert", median(ours) / median(plainRates))
            try report.print()
        }
    }

    private func store(_ work: PersistWork, _ database: ScratchDatabase) async throws -> Double {
        let store = NotificationStore(pool: database.pool)
        let elapsed = try await seconds {
            for batch in work.batches { _ = try await store.store(batch, areRepeats: false) }
        }
        return Double(self.rows) / elapsed
    }

    private func replay(_ file: String, _ database: ScratchDatabase) throws -> Double {
        let options = StoreSession.settings.map { "-c \($0.name)=\($0.value)" }.joined(separator: " ")
        let output = try Tool.run(self.yardstick, [database.url, file], environment: ["PGOPTIONS": options])
        return try Tool.figure("rows_per_second", in: output)
    }

    /// Empty tables, but for the users if they are known, and nothing left to be written by the last contender.
    private func prepare(_ database: ScratchDatabase, _ areUsersKnown: Bool) async throws {
        let users = self.users
        try await database.pool.withScriptConnection { connection in
            try connection.execute("TRUNCATE carillon.notifications, carillon.inboxes, carillon.users")
            if areUsersKnown {
                try connection.execute(
                    """
                    INSERT INTO carillon.users (user_id) SELECT 'user-' || n FROM generate_series(0, \(users) - 1) n;
                    INSERT INTO carillon.inboxes (user_id) SELECT user_id FROM carillon.users;
                    """
                )
                try connection.execute("VACUUM ANALYZE carillon.inboxes")
            }
            try connection.execute("CHECKPOINT")
        }
    }

    private func check(_ database: ScratchDatabase) async throws {
        let result = try await database.pool.query("SELECT count(*) FROM carillon.notifications")
        let count = try result.first?.int8(0) ?? 0
        guard count == Int64(self.rows) else { throw ValidationError("\(count) rows were stored, not \(self.rows)") }
    }
}
