// Carillon · PostgresArray.swift
// SPDX-License-Identifier: Apache-2.0

/// A one-dimensional array parameter, encoded while it is filled: a column of a batch for `unnest`.
package struct PostgresArray: Sendable {
    package let type: PostgresType
    package private(set) var count = 0
    private var hasNulls = false
    private var elements: [UInt8] = []

    package init(_ type: PostgresType, capacity: Int = 0) {
        self.type = type
        self.elements.reserveCapacity(capacity * 16)
    }

    /// An array of texts.
    package init(texts: some Sequence<String>) {
        self.init(.text)
        for text in texts { self.append(text) }
    }

    /// An array of UUIDs.
    package init(uuids: some Sequence<(UInt64, UInt64)>) {
        self.init(.uuid)
        for uuid in uuids { self.append(uuid: uuid) }
    }

    package mutating func appendNull() {
        self.count += 1
        self.hasNulls = true
        self.elements.appendBigEndian(Int32(-1))
    }

    package mutating func append(_ text: String) {
        self.count += 1
        self.elements.appendBigEndian(Int32(text.utf8.count))
        self.elements.append(contentsOf: text.utf8)
    }

    package mutating func append(_ text: String?) {
        if let text { self.append(text) } else { self.appendNull() }
    }

    /// Adds text that is UTF-8 already, or bytes.
    package mutating func append(bytes: some Collection<UInt8>) {
        self.count += 1
        self.elements.appendBigEndian(Int32(bytes.count))
        self.elements.append(contentsOf: bytes)
    }

    /// Adds JSON text, or null.
    package mutating func append(json: [UInt8]?) {
        guard let json else { return self.appendNull() }
        self.count += 1
        self.elements.appendBigEndian(Int32(json.count + 1))
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

    /// Adds a moment in microseconds since 1970, or null.
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
