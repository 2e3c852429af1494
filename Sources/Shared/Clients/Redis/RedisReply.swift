// Carillon · RedisReply.swift
// SPDX-License-Identifier: Apache-2.0

/// One RESP2 reply.
package enum RedisReply: Sendable {
    case null
    case integer(Int64)
    /// A simple string such as `OK`.
    case status(String)
    /// A bulk string.
    case bytes([UInt8])
    case error(RedisError)
    case array(RedisArray)

    /// The reply, or the server's error thrown.
    package func checked() throws(RedisError) -> RedisReply {
        if case .error(let error) = self { throw error }
        return self
    }

    /// An integer reply.
    ///
    /// - Throws: the server's error, or `unexpectedReply`.
    package func integer() throws(RedisError) -> Int64 {
        switch self {
        case .integer(let value): return value
        case .error(let error): throw error
        case .null, .status, .bytes, .array: throw RedisError(.unexpectedReply, "expected an integer")
        }
    }

    /// A bulk or simple string as text, nil for a null reply.
    ///
    /// - Throws: the server's error, or `unexpectedReply`.
    package func string() throws(RedisError) -> String? {
        switch self {
        case .null: return nil
        case .status(let text): return text
        case .bytes(let bytes): return String(decoding: bytes, as: UTF8.self)
        case .integer(let value): return String(value)
        case .error(let error): throw error
        case .array: throw RedisError(.unexpectedReply, "expected a string")
        }
    }

    /// A walk over an array reply, nil for a null reply.
    ///
    /// - Throws: the server's error, or `unexpectedReply`.
    package func cursor() throws(RedisError) -> RedisCursor? {
        switch self {
        case .null: return nil
        case .array(let array): return RedisCursor(array)
        case .error(let error): throw error
        case .integer, .status, .bytes: throw RedisError(.unexpectedReply, "expected an array")
        }
    }

    /// The strings of a flat array reply; nulls are left out.
    package func strings() throws(RedisError) -> [String] {
        guard var cursor = try self.cursor(), let count = try cursor.array() else { return [] }
        var strings: [String] = []
        strings.reserveCapacity(count)
        for _ in 0..<count {
            if let text = try cursor.string() { strings.append(text) }
        }
        return strings
    }
}
