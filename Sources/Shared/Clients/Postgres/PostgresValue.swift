// Carillon · PostgresValue.swift
// SPDX-License-Identifier: Apache-2.0

/// A typed parameter, sent in PostgreSQL's binary format.
package enum PostgresValue: Sendable {
    case null(PostgresType)
    case bool(Bool)
    case int4(Int32)
    case int8(Int64)
    case float8(Double)
    case text(String)
    case bytea([UInt8])
    /// Sixteen bytes, the first most significant.
    case uuid((UInt64, UInt64))
    /// Microseconds since 1970-01-01T00:00:00Z.
    case timestamptz(Int64)
    /// JSON text; the server checks it.
    case jsonb([UInt8])
    case array(PostgresArray)

    /// Text, or null.
    package static func text(_ text: String?) -> PostgresValue {
        text.map { .text($0) } ?? .null(.text)
    }

    /// A moment in microseconds since 1970, or null.
    package static func timestamptz(_ microseconds: Int64?) -> PostgresValue {
        microseconds.map { .timestamptz($0) } ?? .null(.timestamptz)
    }

    /// The object id of its type.
    package var typeIdentifier: UInt32 {
        switch self {
        case .null(let type): type.rawValue
        case .bool: PostgresType.bool.rawValue
        case .int4: PostgresType.int4.rawValue
        case .int8: PostgresType.int8.rawValue
        case .float8: PostgresType.float8.rawValue
        case .text: PostgresType.text.rawValue
        case .bytea: PostgresType.bytea.rawValue
        case .uuid: PostgresType.uuid.rawValue
        case .timestamptz: PostgresType.timestamptz.rawValue
        case .jsonb: PostgresType.jsonb.rawValue
        case .array(let array): array.type.arrayIdentifier
        }
    }

    /// Appends the binary form; false for a null.
    package func encode(into bytes: inout [UInt8]) -> Bool {
        switch self {
        case .null: return false
        case .bool(let value): bytes.append(value ? 1 : 0)
        case .int4(let value): bytes.appendBigEndian(value)
        case .int8(let value): bytes.appendBigEndian(value)
        case .float8(let value): bytes.appendBigEndian(value.bitPattern)
        case .text(let value): bytes.append(contentsOf: value.utf8)
        case .bytea(let value): bytes.append(contentsOf: value)
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

/// PostgreSQL counts microseconds from 2000-01-01.
enum PostgresEpoch {
    private static let offset: Int64 = 946_684_800_000_000

    static func fromUnix(_ microseconds: Int64) -> Int64 {
        microseconds - Self.offset
    }

    static func toUnix(_ microseconds: Int64) -> Int64 {
        microseconds + Self.offset
    }
}

extension [UInt8] {
    mutating func appendBigEndian(_ value: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: value.bigEndian) { self.append(contentsOf: $0) }
    }
}
