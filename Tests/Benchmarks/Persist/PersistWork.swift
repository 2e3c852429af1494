// Carillon · PersistWork.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Storage

/// The batches that all contenders of `persist` store.
struct PersistWork: Sendable {
    let batches: [[Core.Notification]]

    /// - Parameters:
    ///   - rows: how many notifications.
    ///   - users: out of how many users each one's is drawn.
    ///   - batchSize: how many rows one transaction has.
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
        // Fifteen a millisecond, in order, as a busy stream's entries are.
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

    /// A plain insert of the same rows: no inbox, no lock, no version of their own.
    ///
    /// The constant 1 puts the rows into the same indexes as a real version does.
    static let plainInsert = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, job_id, type, severity, delivery,
            lane, channels, title, body, data, extras, category, entity_type, entity_id, collapse_key, status,
            status_reason, created_at, expires_at, keep_until)
        SELECT user_id, id, 1, job_entry, org_id, job_id, type, severity, delivery, lane, channels, title, body, data,
            extras, category, entity_type, entity_id, collapse_key, status, status_reason, created_at, expires_at,
            keep_until
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
            $22, $23, $24, $25)
        AS t (n, user_id, id, job_entry, org_id, job_id, type, severity, delivery, lane, channels, listed, title,
            body, data, extras, category, entity_type, entity_id, collapse_key, status, status_reason, created_at,
            expires_at, keep_until)
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
        // The last of the store's statements has the columns first.
        let columns = NotificationStore.statements(for: batch, areRepeats: false).last?.parameters.prefix(25) ?? []
        return PostgresStatement(Self.plainInsert, Array(columns))
    }

    /// The file's form stands in `Yardsticks/persist.c`.
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
