// Carillon · PostgresModel.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

extension PostgresRow {
    func timestamp(_ column: Int) throws(PostgresError) -> Timestamp {
        Timestamp(microseconds: try self.timestamptz(column))
    }

    func optionalTimestamp(_ column: Int) throws(PostgresError) -> Timestamp? {
        self.isNull(column) ? nil : try self.timestamp(column)
    }

    func id(_ column: Int) throws(PostgresError) -> Identifier {
        Identifier(try self.uuid(column))
    }

    func optionalID(_ column: Int) throws(PostgresError) -> Identifier? {
        self.isNull(column) ? nil : try self.id(column)
    }

    /// Reads the user and the id in the first two columns.
    func key() throws(PostgresError) -> NotificationKey {
        NotificationKey(user: try self.text(0), id: try self.id(1))
    }

    /// Returns the position in a batch that the first column names.
    ///
    /// - Parameter count: the size of the batch.
    func position(in count: Int) throws(PostgresError) -> Int {
        let position = Int(try self.int4(0))
        guard (0..<count).contains(position) else {
            throw PostgresError(.decoding, "a row's position is outside its batch")
        }
        return position
    }
}

extension PostgresResult {
    /// Returns the texts of the first column.
    func texts() throws(PostgresError) -> [String] {
        try self.map { (row) throws(PostgresError) in try row.text(0) }
    }

    /// Returns the ids of the first column.
    func ids() throws(PostgresError) -> [Identifier] {
        try self.map { (row) throws(PostgresError) in try row.id(0) }
    }

    /// Returns the keys in the first two columns.
    func keys() throws(PostgresError) -> [NotificationKey] {
        try self.map { (row) throws(PostgresError) in try row.key() }
    }
}

extension PostgresPool {
    /// Runs statements as one transaction that waits for a synchronous standby even if it changes
    /// nothing.
    ///
    /// A call whose wait was cut short has committed on the primary alone. Its repeat finds nothing
    /// to change, and PostgreSQL would let it succeed at once. A transaction that changes or locks
    /// a row waits anyway.
    ///
    /// - Parameter timeout: the time limit, waiting included; nil means the configuration's.
    func runDurably(
        _ statements: [PostgresStatement],
        timeout: Duration? = nil
    ) async throws(PostgresError) -> [PostgresResult] {
        // Last: on a server that is now a standby, a change fails with 25006, which ends the
        // session; this call fails with another error. It has no effect and needs no right.
        let wait = PostgresStatement("SELECT pg_logical_emit_message(true, 'carillon', '')")
        return try await self.run(statements + [wait], timeout: timeout).dropLast()
    }

    /// Deletes rows with ``runDurably(_:)`` and returns their number.
    func delete(_ sql: String, _ parameters: PostgresValue...) async throws(PostgresError) -> Int {
        try await self.runDurably([PostgresStatement(sql, parameters)])[0].affectedRows
    }
}

/// Parameters made of values of the model; nil is a null.
extension PostgresValue {
    static func timestamp(_ moment: Timestamp?) -> PostgresValue { .timestamptz(moment?.microseconds) }

    static func id(_ id: Identifier?) -> PostgresValue { id.map { .uuid($0.halves) } ?? .null(.uuid) }

    static func int4(clamping number: Int?) -> PostgresValue {
        number.map { .int4(Int32(clamping: $0)) } ?? .null(.int4)
    }
}

extension [PostgresValue] {
    /// The users and the ids of a batch, and then more columns.
    static func keys(_ keys: [NotificationKey], _ more: PostgresValue...) -> Self {
        [.texts(keys.map(\.user)), .ids(keys.map(\.id))] + more
    }
}

/// Columns of a batch.
extension PostgresValue {
    static func texts(_ texts: [String]) -> PostgresValue { .array(PostgresArray(texts: texts)) }

    static func optionalTexts(_ texts: [String?]) -> PostgresValue {
        Self.column(.text, texts) { $0.append($1) }
    }

    static func ids(_ ids: [Identifier]) -> PostgresValue {
        Self.column(.uuid, ids) { $0.append(uuid: $1.halves) }
    }

    static func optionalIDs(_ ids: [Identifier?]) -> PostgresValue {
        Self.column(.uuid, ids) { array, id in
            if let id { array.append(uuid: id.halves) } else { array.appendNull() }
        }
    }

    static func jsons(_ texts: [[UInt8]]) -> PostgresValue {
        Self.column(.jsonb, texts) { $0.append(json: $1) }
    }

    static func timestamps(_ moments: [Timestamp?]) -> PostgresValue {
        Self.column(.timestamptz, moments) { $0.append(timestamptz: $1?.microseconds) }
    }

    static func bools(_ flags: [Bool]) -> PostgresValue {
        Self.column(.bool, flags) { $0.append(bool: $1) }
    }

    static func int4s(clamping numbers: [Int?]) -> PostgresValue {
        Self.column(.int4, numbers) { array, number in
            if let number { array.append(int4: Int32(clamping: number)) } else { array.appendNull() }
        }
    }

    static func int8s(_ numbers: [Int64]) -> PostgresValue {
        Self.column(.int8, numbers) { $0.append(int8: $1) }
    }

    private static func column<Element>(
        _ type: PostgresType,
        _ elements: [Element],
        _ append: (inout PostgresArray, Element) -> Void
    ) -> PostgresValue {
        var array = PostgresArray(type, capacity: elements.count)
        for element in elements { append(&array, element) }
        return .array(array)
    }
}
