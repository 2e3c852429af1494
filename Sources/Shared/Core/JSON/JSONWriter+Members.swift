// Carillon · JSONWriter+Members.swift
// SPDX-License-Identifier: Apache-2.0

/// A member in one call: its name, then its value.
extension JSONWriter {
    package mutating func member(_ key: StaticString, _ text: String) {
        self.key(key)
        self.string(text)
    }

    /// Null where there is none.
    package mutating func member(_ key: StaticString, _ text: String?) {
        self.key(key)
        self.string(text)
    }

    package mutating func member(_ key: StaticString, _ text: Substring) {
        self.key(key)
        self.string(text)
    }

    package mutating func member(_ key: StaticString, _ value: some BinaryInteger) {
        self.key(key)
        self.integer(value)
    }

    package mutating func member(_ key: StaticString, _ value: Bool) {
        self.key(key)
        self.bool(value)
    }

    package mutating func member(_ key: StaticString, _ value: JSONValue) {
        self.key(key)
        self.value(value)
    }
}
