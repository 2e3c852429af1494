// Carillon · PipelinedParts.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1

/// The parts of requests that wait behind an unanswered one, in order.
struct PipelinedParts {
    // Limits in parts and in bytes on the wire. One read of 16 KB fits, then reading pauses. More
    // comes only when the client leaves.
    private static let mostParts = 4_096
    private static let mostBytes = 32 * 1024

    private var parts: [HTTPServerRequestPart] = []
    private var bytes = 0
    /// The approximate bytes of the parts in memory.
    private(set) var memory = 0

    var isEmpty: Bool { self.parts.isEmpty }
    var first: HTTPServerRequestPart? { self.parts.first }

    /// Adds a part; false if too much waits already.
    mutating func append(_ part: HTTPServerRequestPart) -> Bool {
        let bytes = self.bytes + part.bytes
        guard self.parts.count < Self.mostParts, bytes <= Self.mostBytes else { return false }
        self.parts.append(part)
        self.bytes = bytes
        self.memory += part.memory
        return true
    }

    mutating func removeFirst() {
        let part = self.parts.removeFirst()
        self.bytes -= part.bytes
        self.memory -= part.memory
        // Frees the storage, so that idle connections keep none.
        if self.parts.isEmpty { self.parts = [] }
    }
}

extension HTTPServerRequestPart {
    /// Its least size on the wire, in bytes.
    fileprivate var bytes: Int {
        switch self {
        case .head(let head):
            head.headers.reduce(17 + head.uri.utf8.count) { $0 + 3 + $1.name.utf8.count + $1.value.utf8.count }
        case .body(let bytes): bytes.readableBytes
        case .end: 0
        }
    }

    /// Its approximate size in memory: a head and each of its fields take more than on the wire.
    fileprivate var memory: Int {
        switch self {
        case .head(let head):
            head.headers.reduce(512 + head.uri.utf8.count) { $0 + 64 + $1.name.utf8.count + $1.value.utf8.count }
        case .body(let bytes): 64 + bytes.readableBytes
        case .end: 64
        }
    }
}
