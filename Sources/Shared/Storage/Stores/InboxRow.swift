// Carillon · InboxRow.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A notification of a page as PostgreSQL answered it: its columns become JSON where they lie.
package struct InboxRow: NotificationFields, Sendable {
    private enum Column: Int {
        case id, version, type, severity, delivery, title, body, data, extras, category, entityType, entityID
        case collapseKey, createdAt, readAt, expiresAt, deletedAt, decision, storedAt
    }

    /// The columns that it reads, as ``Column`` counts them.
    private static let columns: [(name: String, type: String)] = [
        ("id", "uuid"), ("version", "int8"), ("type", "text"), ("severity", "text"), ("delivery", "text"),
        ("title", "text"), ("body", "text"), ("data", "jsonb"), ("extras", "jsonb"), ("category", "text"),
        ("entity_type", "text"), ("entity_id", "text"), ("collapse_key", "text"), ("created_at", "timestamptz"),
        ("read_at", "timestamptz"), ("expires_at", "timestamptz"), ("deleted_at", "timestamptz"), ("decision", "text"),
        ("stored_at", "timestamptz"),
    ]

    /// The columns of a table called `alias`.
    static func list(of alias: String) -> String {
        Self.columns.map { "\(alias).\($0.name)" }.joined(separator: ", ")
    }

    /// A null for each of the columns.
    static let nulls = Self.columns.map { "NULL::\($0.type)" }.joined(separator: ", ")

    package let id: NotificationID
    private let row: PostgresRow
    private let first: Int

    /// Takes a row whose columns begin at `first`.
    init(_ row: PostgresRow, at first: Int) throws(PostgresError) {
        self.id = NotificationID(try row.uuid(first + Column.id.rawValue))
        self.row = row
        self.first = first
    }

    package var isDeleted: Bool { !self.row.isNull(self.place(.deletedAt)) }

    /// When the row came to be, by PostgreSQL's clock: later than `created_at` by as long as its job waited.
    package var storedAt: Timestamp {
        get throws(PostgresError) { Timestamp(microseconds: try self.row.timestamptz(self.place(.storedAt))) }
    }

    private func place(_ column: Column) -> Int { self.first + column.rawValue }

    package func write(_ field: NotificationField, to writer: inout JSONWriter) throws(PostgresError) {
        switch field {
        case .id: self.id.write(to: &writer)
        case .type: try self.text(.type, to: &writer)
        case .severity: try self.text(.severity, to: &writer)
        case .delivery: try self.text(.delivery, to: &writer)
        case .title: try self.text(.title, to: &writer)
        case .body: try self.text(.body, to: &writer)
        case .data:
            try self.row.withBytes(self.place(.data)) { json in
                guard let json else { return writer.raw("{}") }
                writer.raw(bytes: UnsafeRawBufferPointer(rebasing: json.dropFirst()))
            }
        case .category: try self.text(.category, to: &writer)
        case .entityType: try self.text(.entityType, to: &writer)
        case .entityID: try self.text(.entityID, to: &writer)
        case .url: writer.string(try self.extras?.url)
        case .image: writer.string(try self.extras?.image)
        case .collapseKey: try self.text(.collapseKey, to: &writer)
        case .version: writer.integer(try self.row.int8(self.place(.version)))
        case .createdAt: try self.moment(.createdAt, to: &writer)
        case .readAt: try self.moment(.readAt, to: &writer)
        case .expiresAt: try self.moment(.expiresAt, to: &writer)
        case .heldBack: try self.text(.decision, to: &writer)
        }
    }

    private var extras: NotificationExtras? {
        get throws(PostgresError) { try self.row.optionalJSON(self.place(.extras)).map { ExtrasColumn.extras($0) } }
    }

    private func text(_ column: Column, to writer: inout JSONWriter) throws(PostgresError) {
        try self.row.withBytes(self.place(column)) { text in
            if let text { writer.string(utf8: text) } else { writer.null() }
        }
    }

    private func moment(_ column: Column, to writer: inout JSONWriter) throws(PostgresError) {
        if let microseconds = try self.row.optionalTimestamptz(self.place(column)) {
            Timestamp(microseconds: microseconds).write(to: &writer)
        } else {
            writer.null()
        }
    }
}
