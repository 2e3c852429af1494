// Carillon · PostgresStatement.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// One SQL statement and its parameters.
///
/// Each connection prepares each distinct text once, so keep the text fixed and pass every value as
/// a parameter.
package struct PostgresStatement: Sendable {
    package let sql: String
    package let parameters: [PostgresValue]

    package init(_ sql: String, _ parameters: [PostgresValue] = []) {
        self.sql = sql
        self.parameters = parameters
    }

    /// Whether the parameters have 1 GB or more; PostgreSQL closes a connection that sends them.
    var isTooLarge: Bool { self.parameters.reduce(0) { $0 + $1.size } >= 1 << 30 }
}

/// A typed parameter, sent in PostgreSQL's binary format.
package enum PostgresValue: Sendable {
    case null(PostgresType)
    case bool(Bool)
    case int4(Int32)
    case int8(Int64)
    case float8(Double)
    case text(String)
    /// Sixteen bytes, most significant first.
    case uuid((UInt64, UInt64))
    /// Microseconds since 1970-01-01T00:00:00Z.
    case timestamptz(Int64)
    /// JSON text, which the server validates.
    case jsonb([UInt8])
    case array(PostgresArray)

    /// Returns a truth value, or a null.
    package static func bool(_ flag: Bool?) -> PostgresValue {
        flag.map { .bool($0) } ?? .null(.bool)
    }

    /// Returns text, or a null.
    package static func text(_ text: String?) -> PostgresValue {
        text.map { .text($0) } ?? .null(.text)
    }

    /// Returns a time in microseconds since 1970, or a null.
    package static func timestamptz(_ microseconds: Int64?) -> PostgresValue {
        microseconds.map { .timestamptz($0) } ?? .null(.timestamptz)
    }

    /// The type's object id.
    package var typeIdentifier: UInt32 {
        switch self {
        case .null(let type): type.rawValue
        case .bool: PostgresType.bool.rawValue
        case .int4: PostgresType.int4.rawValue
        case .int8: PostgresType.int8.rawValue
        case .float8: PostgresType.float8.rawValue
        case .text: PostgresType.text.rawValue
        case .uuid: PostgresType.uuid.rawValue
        case .timestamptz: PostgresType.timestamptz.rawValue
        case .jsonb: PostgresType.jsonb.rawValue
        case .array(let array): array.type.arrayIdentifier
        }
    }

    /// The approximate number of bytes of the binary form.
    fileprivate var size: Int {
        switch self {
        case .text(let value): value.utf8.count
        case .jsonb(let value): value.count
        case .array(let array): array.size
        case .null, .bool, .int4, .int8, .float8, .uuid, .timestamptz: 16
        }
    }

    /// Appends the binary form; returns false for a null.
    package func encode(into bytes: inout [UInt8]) -> Bool {
        switch self {
        case .null: return false
        case .bool(let value): bytes.append(value ? 1 : 0)
        case .int4(let value): bytes.appendBigEndian(value)
        case .int8(let value): bytes.appendBigEndian(value)
        case .float8(let value): bytes.appendBigEndian(value.bitPattern)
        case .text(let value): bytes.append(contentsOf: value.utf8)
        case .uuid(let value):
            bytes.appendBigEndian(value.0)
            bytes.appendBigEndian(value.1)
        case .timestamptz(let value): bytes.appendBigEndian(PostgresEpoch.fromUnix(value))
        case .jsonb(let value):
            bytes.append(1)
            bytes.append(contentsOf: value)
        case .array(let array): array.encode(into: &bytes)
        }
        return true
    }
}

/// Converts to PostgreSQL's timestamps, which count microseconds from 2000-01-01.
///
/// Clamps: `infinity` and the last years that PostgreSQL has are beyond `Int64` when counted from
/// 1970.
enum PostgresEpoch {
    private static let offset: Int64 = 946_684_800_000_000

    static func fromUnix(_ microseconds: Int64) -> Int64 {
        microseconds.addedInRange(-Self.offset)
    }

    static func toUnix(_ microseconds: Int64) -> Int64 {
        microseconds.addedInRange(Self.offset)
    }
}

extension [UInt8] {
    mutating func appendBigEndian(_ value: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: value.bigEndian) { self.append(contentsOf: $0) }
    }
}

/// The types of parameters, with their object ids from `pg_type.dat`.
package enum PostgresType: UInt32, Sendable {
    case bool = 16
    case int8 = 20
    case int4 = 23
    case text = 25
    case float8 = 701
    case timestamptz = 1184
    case uuid = 2950
    case jsonb = 3802

    /// The object id of the one-dimensional array of this type.
    var arrayIdentifier: UInt32 {
        switch self {
        case .bool: 1000
        case .int8: 1016
        case .int4: 1007
        case .text: 1009
        case .float8: 1022
        case .timestamptz: 1185
        case .uuid: 2951
        case .jsonb: 3807
        }
    }
}

/// A one-dimensional array parameter, encoded as it is filled: one column of a batch for `unnest`.
package struct PostgresArray: Sendable {
    let type: PostgresType
    private(set) var count = 0
    private var hasNulls = false
    private var elements: [UInt8] = []

    package init(_ type: PostgresType, capacity: Int = 0) {
        self.type = type
        self.elements.reserveCapacity(capacity * 16)
    }

    package init(texts: [String]) {
        self.init(.text, capacity: texts.count)
        for text in texts { self.append(text) }
    }

    fileprivate var size: Int { self.elements.count }

    package mutating func appendNull() {
        self.count += 1
        self.hasNulls = true
        self.elements.appendBigEndian(Int32(-1))
    }

    package mutating func append(_ text: String) {
        self.count += 1
        // A larger one is never sent, see ``PostgresStatement/isTooLarge``.
        self.elements.appendBigEndian(Int32(clamping: text.utf8.count))
        self.elements.append(contentsOf: text.utf8)
    }

    package mutating func append(_ text: String?) {
        if let text { self.append(text) } else { self.appendNull() }
    }

    /// Adds JSON text, or null.
    package mutating func append(json: [UInt8]?) {
        guard let json else { return self.appendNull() }
        self.count += 1
        self.elements.appendBigEndian(Int32(clamping: json.count + 1))
        self.elements.append(1)
        self.elements.append(contentsOf: json)
    }

    package mutating func append(int4 value: Int32) {
        self.count += 1
        self.elements.appendBigEndian(Int32(4))
        self.elements.appendBigEndian(value)
    }

    package mutating func append(int8 value: Int64) {
        self.count += 1
        self.elements.appendBigEndian(Int32(8))
        self.elements.appendBigEndian(value)
    }

    package mutating func append(bool value: Bool) {
        self.count += 1
        self.elements.appendBigEndian(Int32(1))
        self.elements.append(value ? 1 : 0)
    }

    package mutating func append(uuid value: (UInt64, UInt64)) {
        self.count += 1
        self.elements.appendBigEndian(Int32(16))
        self.elements.appendBigEndian(value.0)
        self.elements.appendBigEndian(value.1)
    }

    /// Adds a time in microseconds since 1970, or null.
    package mutating func append(timestamptz value: Int64?) {
        guard let value else { return self.appendNull() }
        self.append(int8: PostgresEpoch.fromUnix(value))
    }

    func encode(into bytes: inout [UInt8]) {
        bytes.appendBigEndian(Int32(self.count == 0 ? 0 : 1))
        bytes.appendBigEndian(Int32(self.hasNulls ? 1 : 0))
        bytes.appendBigEndian(self.type.rawValue)
        guard self.count > 0 else { return }
        bytes.appendBigEndian(Int32(self.count))
        bytes.appendBigEndian(Int32(1))
        bytes.append(contentsOf: self.elements)
    }
}
