// Carillon · RedisReply.swift
// SPDX-License-Identifier: Apache-2.0

import Core

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

    /// Whether it is an error reply.
    package var isError: Bool { if case .error = self { true } else { false } }

    /// Returns the reply; throws an error reply.
    package func checked() throws(RedisError) -> RedisReply {
        if case .error(let error) = self { throw error }
        return self
    }

    /// Returns an integer reply.
    ///
    /// - Throws: the server's error, or `unexpectedReply`.
    package func integer() throws(RedisError) -> Int64 {
        switch self {
        case .integer(let value): return value
        case .error(let error): throw error
        case .null, .status, .bytes, .array: throw RedisError(.unexpectedReply, "expected an integer")
        }
    }

    /// Returns a bulk string, simple string or integer as text; nil for a null reply.
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

    /// Returns a cursor over an array reply; nil for a null reply.
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

    /// Returns the strings of a flat array reply without its nulls.
    package func strings() throws(RedisError) -> [String] {
        guard var cursor = try self.cursor(), let count = try cursor.array() else { return [] }
        var strings: [String] = []
        strings.reserveCapacity(count)
        for _ in 0..<count {
            if let text = try cursor.string() { strings.append(text) }
        }
        return strings
    }

    /// Returns the reply to `TIME`, until the end of the year 9999.
    ///
    /// - Throws: the server's error, or `unexpectedReply`.
    package func time() throws(RedisError) -> Timestamp {
        let parts = try self.strings().compactMap { Int64($0) }
        guard parts.count == 2, (0...253_402_300_799).contains(parts[0]), (0..<1_000_000).contains(parts[1]) else {
            throw RedisError(.unexpectedReply, "expected a time")
        }
        return Timestamp(microseconds: parts[0] * 1_000_000 + parts[1])
    }
}

extension Array {
    /// Keeps the items whose command failed, for a retry of these alone.
    ///
    /// - Parameter replies: the reply of each item's command, in order.
    package mutating func keepFailed(by replies: some Sequence<RedisReply>) {
        self = zip(self, replies).compactMap { $1.isError ? $0 : nil }
    }
}

/// An array reply: its elements in order, nested ones after their head, and all text in one buffer.
///
/// Two allocations serve a reply of any size.
package struct RedisArray: Sendable {
    struct Node: Sendable {
        enum Kind: UInt8, Sendable { case null, integer, status, bytes, error, array }

        let kind: Kind
        /// The integer, or the start of the bytes.
        let value: Int64
        /// The number of bytes, or of an array's elements.
        let count: Int
    }

    let nodes: [Node]
    let text: [UInt8]
}

/// Reads an array reply element by element.
package struct RedisCursor: Sendable {
    private let reply: RedisArray
    private var index = 0

    init(_ array: RedisArray) {
        self.reply = array
    }

    private mutating func next() throws(RedisError) -> RedisArray.Node {
        guard self.index < self.reply.nodes.count else { throw RedisError(.unexpectedReply, "the reply is too short") }
        defer { self.index += 1 }
        return self.reply.nodes[self.index]
    }

    /// Enters an array and returns the number of its elements; nil for a null.
    package mutating func array() throws(RedisError) -> Int? {
        let node = try self.next()
        switch node.kind {
        case .array: return node.count
        case .null: return nil
        case .error: throw self.serverError(node)
        case .integer, .status, .bytes: throw RedisError(.unexpectedReply, "expected an array")
        }
    }

    /// Returns the next element's bytes; nil for a null.
    package mutating func bytes() throws(RedisError) -> ArraySlice<UInt8>? {
        let node = try self.next()
        switch node.kind {
        case .bytes, .status: return self.text(node)
        case .null: return nil
        case .error: throw self.serverError(node)
        case .integer: return ArraySlice(String(node.value).utf8)
        case .array: throw RedisError(.unexpectedReply, "expected a string")
        }
    }

    /// Returns the next element as text with invalid UTF-8 repaired; nil for a null.
    package mutating func string() throws(RedisError) -> String? {
        try self.bytes().map { String(decoding: $0, as: UTF8.self) }
    }

    /// Returns the next element as an integer, which may be written as text.
    package mutating func integer() throws(RedisError) -> Int64 {
        let node = try self.next()
        switch node.kind {
        case .integer: return node.value
        case .bytes, .status:
            guard let value = Int64(String(decoding: self.text(node), as: UTF8.self)) else {
                throw RedisError(.unexpectedReply, "expected an integer")
            }
            return value
        case .error: throw self.serverError(node)
        case .null, .array: throw RedisError(.unexpectedReply, "expected an integer")
        }
    }

    /// Skips the next element and everything in it.
    package mutating func skip() throws(RedisError) {
        var remaining = 1
        while remaining > 0 {
            let node = try self.next()
            remaining += (node.kind == .array ? node.count : 0) - 1
        }
    }

    private func text(_ node: RedisArray.Node) -> ArraySlice<UInt8> {
        let start = Int(node.value)
        return self.reply.text[start..<start + node.count]
    }

    private func serverError(_ node: RedisArray.Node) -> RedisError {
        RedisError(reply: String(decoding: self.text(node), as: UTF8.self))
    }
}
