// Carillon · PersistCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import Storage
import Support

/// Measures stored notifications a second on one connection; the yardsticks are plain C programs on
/// libpq.
struct PersistCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "persist",
        abstract: "Measures rows stored a second; yardstick: plain C on libpq."
    )

    @Option(help: "Path of the compiled Yardsticks/persist.c.")
    var yardstick: String

    @Option var rows = 200_000
    @Option(help: "Users to choose from at random.")
    var users = 100_000
    @Option(help: "Rounds; the median counts.")
    var rounds = 3

    func run() async throws {
        try await ScratchDatabase.use { try await self.measure($0) }
    }

    private func measure(_ database: ScratchDatabase) async throws {
        let folder = try TemporaryDirectory("bench")
        let work = PersistWork(rows: self.rows, users: self.users)
        let same = "\(folder.path)/store.statements"
        let plain = "\(folder.path)/plain.statements"
        try work.writeStoreStatements(to: same)
        try work.writePlainInserts(to: plain)

        // Known users are the rule; a new user costs two more rows.
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
        let store = Database(database.pool).notifications
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

    /// Truncates the tables, inserts the known users, and writes a checkpoint so that no earlier
    /// work remains.
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
        guard count == Int64(self.rows) else { throw ValidationError("stored \(count) rows instead of \(self.rows)") }
    }
}

/// The batches that all contenders of `persist` store.
struct PersistWork: Sendable {
    let batches: [[Core.Notification]]

    /// - Parameters:
    ///   - rows: the number of notifications.
    ///   - users: the number of users to choose from at random.
    ///   - batchSize: the rows of a transaction.
    init(rows: Int, users: Int, batchSize: Int = 256) {
        let now = Timestamp(microseconds: Int64(Date.now.timeIntervalSince1970 * 1_000_000))
        var batches: [[Core.Notification]] = []
        var number = 0
        while number < rows {
            batches.append(
                (number..<min(number + batchSize, rows)).map { number in
                    Self.notification(number, user: "user-\(Int.random(in: 0..<users))", now: now)
                }
            )
            number += batchSize
        }
        self.batches = batches
    }

    private static func notification(_ number: Int, user: String, now: Timestamp) -> Core.Notification {
        // Fifteen per millisecond, in order, like the entries of a busy stream.
        let milliseconds = UInt64(now.milliseconds) + UInt64(number / 15)
        let id = NotificationID(
            high: milliseconds << 16 | 0x8000 | UInt64.random(in: 0...0x0FFF),
            low: 0x8000_0000_0000_0000 | UInt64.random(in: 0...0x3FFF_FFFF_FFFF_FFFF)
        )
        var notification = Core.Notification(id: id, user: user, type: "payment_received", createdAt: now)
        notification.jobEntry = "carillon:jobs:critical/\(milliseconds)-\(number % 15)"
        notification.severity = .alert
        notification.delivery = .push
        notification.lane = .critical
        notification.title = "Payment received"
        notification.body = "EUR 40 from Ada"
        notification.data = Array(#"{"sent_us":\#(now.microseconds),"invoice":"i\#(number)"}"#.utf8)
        notification.category = "payments"
        notification.expiresAt = now + .seconds(86_400)
        return notification
    }

    /// A plain insert of the same rows, without inbox, lock or version.
    ///
    /// The constant version 1 fills the same indexes as a real one.
    static let plainInsert = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, job_id, type, severity, delivery,
            lane, channels, title, body, data, extras, category, entity_type, entity_id, collapse_key, status,
            status_reason, created_at, expires_at, keep_until)
        SELECT user_id, id, 1, job_entry, org_id, job_id, type, severity, delivery, lane, channels, title, body, data,
            extras, category, entity_type, entity_id, collapse_key, status, status_reason, created_at, expires_at,
            keep_until
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
            $22, $23)
        AS t (user_id, id, job_entry, org_id, job_id, type, severity, delivery, lane, channels, title, body, data,
            extras, category, entity_type, entity_id, collapse_key, status, status_reason, created_at, expires_at,
            keep_until)
        """

    /// Writes the store's own statements for `Yardsticks/persist.c`.
    func writeStoreStatements(to path: String) throws {
        try self.write(to: path) { NotificationStore.statements(for: $0, areRepeats: false) }
    }

    /// Writes the plain inserts for `Yardsticks/persist.c`.
    func writePlainInserts(to path: String) throws {
        try self.write(to: path) { [Self.plainInsert(of: $0)] }
    }

    /// Each batch as a plain insert.
    var plainInserts: some Sequence<PostgresStatement> { self.batches.lazy.map { Self.plainInsert(of: $0) } }

    private static func plainInsert(of batch: [Core.Notification]) -> PostgresStatement {
        // The store's last statement has the columns first.
        let columns = NotificationStore.statements(for: batch, areRepeats: false).last?.parameters.prefix(23) ?? []
        return PostgresStatement(Self.plainInsert, Array(columns))
    }

    /// Writes a file in the format that `Yardsticks/persist.c` describes.
    private func write(to path: String, _ statements: ([Core.Notification]) -> [PostgresStatement]) throws {
        guard FileManager.default.createFile(atPath: path, contents: nil),
            let file = FileHandle(forWritingAtPath: path)
        else { throw CocoaError(.fileWriteUnknown) }
        defer { try? file.close() }
        for (number, batch) in self.batches.enumerated() {
            let statements = statements(batch)
            var bytes: [UInt8] = []
            if number == 0 {
                bytes.append(word: statements.count)
                for statement in statements {
                    bytes.append(block: Array(statement.sql.utf8))
                    bytes.append(word: statement.parameters.count)
                    for parameter in statement.parameters { bytes.append(word: Int(parameter.typeIdentifier)) }
                }
            }
            bytes.append(word: batch.count)
            for parameter in statements.flatMap(\.parameters) {
                var value: [UInt8] = []
                if parameter.encode(into: &value) { bytes.append(block: value) } else { bytes.append(word: -1) }
            }
            try file.write(contentsOf: Data(bytes))
        }
    }
}

extension [UInt8] {
    fileprivate mutating func append(word: Int) {
        Swift.withUnsafeBytes(of: Int32(truncatingIfNeeded: word).bigEndian) { self.append(contentsOf: $0) }
    }

    fileprivate mutating func append(block: [UInt8]) {
        self.append(word: block.count)
        self.append(contentsOf: block)
    }
}
