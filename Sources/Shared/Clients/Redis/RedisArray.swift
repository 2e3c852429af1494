// Carillon · RedisArray.swift
// SPDX-License-Identifier: Apache-2.0

/// An array reply: its elements in the order they came, nested ones after their head, and all text in one buffer.
///
/// Two allocations serve a reply of any size.
package struct RedisArray: Sendable {
    struct Node: Sendable {
        enum Kind: UInt8, Sendable { case null, integer, status, bytes, error, array }

        let kind: Kind
        /// Bytes: where they start.
        ///
        /// Integer: the value.
        let value: Int64
        /// Bytes: how many.
        ///
        /// Array: how many elements.
        let count: Int
    }

    let nodes: [Node]
    let text: [UInt8]
}

/// A walk over an array reply, one element after the other.
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

    /// Enters an array: the number of its elements, which follow; nil for a null.
    package mutating func array() throws(RedisError) -> Int? {
        let node = try self.next()
        switch node.kind {
        case .array: return node.count
        case .null: return nil
        case .error: throw self.serverError(node)
        case .integer, .status, .bytes: throw RedisError(.unexpectedReply, "expected an array")
        }
    }

    /// The next element's bytes; nil for a null.
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

    /// The next element as text, faulty UTF-8 repaired; nil for a null.
    package mutating func string() throws(RedisError) -> String? {
        try self.bytes().map { String(decoding: $0, as: UTF8.self) }
    }

    /// The next element as an integer, also when it is written as text.
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

    /// Passes the next element, with all that it holds.
    package mutating func skip() throws(RedisError) {
        var owed = 1
        while owed > 0 {
            let node = try self.next()
            owed += (node.kind == .array ? node.count : 0) - 1
        }
    }

    private func text(_ node: RedisArray.Node) -> ArraySlice<UInt8> {
        let start = Int(node.value)
        return self.reply.text[start..<start + node.count]
    }

    private func serverError(_ node: RedisArray.Node) -> RedisError {
        RedisError(.server, String(decoding: self.text(node), as: UTF8.self))
    }
}
