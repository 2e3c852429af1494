// Carillon · PostgresResult.swift
// SPDX-License-Identifier: Apache-2.0

import CLibpq

/// The rows that a statement returned, read from libpq's memory.
///
/// `@unchecked Sendable` is sound: libpq never changes a finished result and documents that threads
/// may share it. The pointer is private, only read, and cleared once, in `deinit`.
package final class PostgresResult: @unchecked Sendable {
    private let pointer: OpaquePointer
    package let count: Int

    /// Takes ownership of `pointer`.
    init(_ pointer: OpaquePointer) {
        self.pointer = pointer
        self.count = Int(PQntuples(pointer))
    }

    deinit {
        PQclear(self.pointer)
    }

    /// The command that the server ran, such as `COMMIT` or `ROLLBACK`.
    var command: Substring? {
        PQcmdStatus(self.pointer).flatMap { String(cString: $0).split(separator: " ").first }
    }

    /// The number of rows that the statement changed.
    package var affectedRows: Int {
        guard let text = PQcmdTuples(self.pointer) else { return 0 }
        return Int(String(cString: text)) ?? 0
    }

    package var first: PostgresRow? { self.count > 0 ? self[0] : nil }

    package subscript(row: Int) -> PostgresRow {
        PostgresRow(result: self, row: CInt(row))
    }

    fileprivate func isNull(_ row: CInt, _ column: Int) -> Bool {
        PQgetisnull(self.pointer, row, CInt(column)) == 1
    }

    /// Lends libpq's bytes, which live as long as this object; `body` must not keep them.
    fileprivate func withBytes<Value>(
        _ row: CInt,
        _ column: Int,
        _ body: (UnsafeRawBufferPointer) throws(PostgresError) -> Value
    ) throws(PostgresError) -> Value {
        let count = Int(PQgetlength(self.pointer, row, CInt(column)))
        return try body(UnsafeRawBufferPointer(start: PQgetvalue(self.pointer, row, CInt(column)), count: count))
    }
}

extension PostgresResult: RandomAccessCollection {
    package var startIndex: Int { 0 }
    package var endIndex: Int { self.count }
}

/// One row; columns are read by position in PostgreSQL's binary format.
package struct PostgresRow: Sendable {
    fileprivate let result: PostgresResult
    fileprivate let row: CInt

    package func isNull(_ column: Int) -> Bool {
        self.result.isNull(self.row, column)
    }

    /// Lends a column's bytes for the duration of the call; nil for a null.
    ///
    /// Text is UTF-8, validated by the server; `jsonb` begins with a version byte.
    package func withBytes<Value>(
        _ column: Int,
        _ body: (UnsafeRawBufferPointer?) -> Value
    ) throws(PostgresError) -> Value {
        guard !self.isNull(column) else { return body(nil) }
        return try self.result.withBytes(self.row, column) { (bytes) throws(PostgresError) in body(bytes) }
    }

    private func fixed<Value: FixedWidthInteger>(
        _ column: Int,
        as type: Value.Type
    ) throws(PostgresError) -> Value {
        try self.result.withBytes(self.row, column) { (bytes) throws(PostgresError) in
            guard bytes.count == MemoryLayout<Value>.size, !self.isNull(column) else {
                throw PostgresError(.decoding, "column \(column) is not \(Value.self)")
            }
            return Value(bigEndian: bytes.loadUnaligned(as: Value.self))
        }
    }

    package func int4(_ column: Int) throws(PostgresError) -> Int32 { try self.fixed(column, as: Int32.self) }

    package func int8(_ column: Int) throws(PostgresError) -> Int64 { try self.fixed(column, as: Int64.self) }

    package func optionalInt8(_ column: Int) throws(PostgresError) -> Int64? {
        self.isNull(column) ? nil : try self.int8(column)
    }

    package func bool(_ column: Int) throws(PostgresError) -> Bool { try self.fixed(column, as: UInt8.self) != 0 }

    package func optionalBool(_ column: Int) throws(PostgresError) -> Bool? {
        self.isNull(column) ? nil : try self.bool(column)
    }

    /// Returns a time in microseconds since 1970.
    package func timestamptz(_ column: Int) throws(PostgresError) -> Int64 {
        PostgresEpoch.toUnix(try self.int8(column))
    }

    package func uuid(_ column: Int) throws(PostgresError) -> (UInt64, UInt64) {
        try self.result.withBytes(self.row, column) { (bytes) throws(PostgresError) in
            guard bytes.count == 16 else { throw PostgresError(.decoding, "column \(column) is not a UUID") }
            return (
                UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
                UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
            )
        }
    }

    package func text(_ column: Int) throws(PostgresError) -> String {
        guard let text = try self.optionalText(column) else {
            throw PostgresError(.decoding, "column \(column) is null")
        }
        return text
    }

    package func optionalText(_ column: Int) throws(PostgresError) -> String? {
        guard !self.isNull(column) else { return nil }
        return try self.result.withBytes(self.row, column) { (bytes) throws(PostgresError) in
            String(decoding: bytes, as: UTF8.self)
        }
    }

    /// Returns the text of a `jsonb`; nil for a null.
    package func optionalJSON(_ column: Int) throws(PostgresError) -> [UInt8]? {
        guard !self.isNull(column) else { return nil }
        // The first byte is the version of the format.
        return try self.result.withBytes(self.row, column) { (bytes) throws(PostgresError) in Array(bytes.dropFirst()) }
    }
}
