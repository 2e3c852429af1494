// Carillon · JSONWriter.swift
// SPDX-License-Identifier: Apache-2.0

/// Writes JSON text straight into bytes.
///
/// The caller keeps the structure valid.
package struct JSONWriter: Sendable {
    package private(set) var bytes: [UInt8] = []
    private var needsComma = false

    package init(capacity: Int = 256) {
        self.bytes.reserveCapacity(capacity)
    }

    package mutating func beginObject() {
        self.separate()
        self.bytes.append(UInt8(ascii: "{"))
        self.needsComma = false
    }

    package mutating func endObject() {
        self.bytes.append(UInt8(ascii: "}"))
        self.needsComma = true
    }

    package mutating func beginArray() {
        self.separate()
        self.bytes.append(UInt8(ascii: "["))
        self.needsComma = false
    }

    package mutating func endArray() {
        self.bytes.append(UInt8(ascii: "]"))
        self.needsComma = true
    }

    /// Writes a member's name; its value comes next.
    package mutating func key(_ key: StaticString) {
        self.separate()
        self.bytes.append(UInt8(ascii: "\""))
        key.withUTF8Buffer { self.bytes.append(contentsOf: $0) }
        self.bytes.append(UInt8(ascii: "\""))
        self.bytes.append(UInt8(ascii: ":"))
        self.needsComma = false
    }

    /// Writes a member's name that needs escaping.
    package mutating func key(escaping key: String) {
        self.string(key)
        self.bytes.append(UInt8(ascii: ":"))
        self.needsComma = false
    }

    package mutating func string(_ text: String) {
        var text = text
        text.withUTF8 { self.string(utf8: UnsafeRawBufferPointer($0)) }
    }

    mutating func string(_ text: Substring) {
        var text = text
        text.withUTF8 { self.string(utf8: UnsafeRawBufferPointer($0)) }
    }

    package mutating func string(_ text: String?) {
        if let text { self.string(text) } else { self.null() }
    }

    /// Writes text that is already UTF-8; reads its bytes only during the call.
    package mutating func string(utf8 text: UnsafeRawBufferPointer) {
        self.separate()
        self.bytes.append(UInt8(ascii: "\""))
        // Copy runs that need no escape at once.
        var start = 0
        while let index = Self.firstEscape(in: text, from: start) {
            self.bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: text[start..<index]))
            self.escaped(text[index])
            start = index + 1
        }
        self.bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: text[start...]))
        self.bytes.append(UInt8(ascii: "\""))
        self.needsComma = true
    }

    /// Returns the index of the first byte that needs an escape.
    ///
    /// Checks eight bytes at a time. A borrow between bytes can raise a false alarm, so every
    /// suspect word is checked byte by byte.
    private static func firstEscape(in text: UnsafeRawBufferPointer, from start: Int) -> Int? {
        let ones: UInt64 = 0x0101_0101_0101_0101
        let tops: UInt64 = 0x8080_8080_8080_8080
        var index = start
        while index + 8 <= text.count {
            let word = text.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            let quote = word ^ (ones &* 0x22)
            let backslash = word ^ (ones &* 0x5C)
            let suspects =
                ((word &- ones &* 0x20) & ~word) | ((quote &- ones) & ~quote) | ((backslash &- ones) & ~backslash)
            if suspects & tops != 0, let found = (index..<index + 8).first(where: { Self.length(of: text[$0]) != 1 }) {
                return found
            }
            index += 8
        }
        return (index..<text.count).first { Self.length(of: text[$0]) != 1 }
    }

    private mutating func escaped(_ byte: UInt8) {
        switch byte {
        case 0x0A: self.escape(UInt8(ascii: "n"))
        case 0x0D: self.escape(UInt8(ascii: "r"))
        case 0x09: self.escape(UInt8(ascii: "t"))
        case 0..<0x20:
            self.escape(UInt8(ascii: "u"))
            let digits = String(byte, radix: 16)
            self.bytes.append(contentsOf: repeatElement(UInt8(ascii: "0"), count: 4 - digits.utf8.count))
            self.bytes.append(contentsOf: digits.utf8)
        default: self.escape(byte)
        }
    }

    package mutating func integer(_ value: some BinaryInteger) {
        // `String(value)` would run generic code here, which takes twice as long.
        self.raw(value.description)
    }

    package mutating func bool(_ value: Bool) {
        self.raw(value ? Self.trueText : Self.falseText)
    }

    package mutating func null() {
        self.raw(Self.nullText)
    }

    /// Writes a value that is already JSON.
    package mutating func raw(_ json: [UInt8]) {
        self.separate()
        self.bytes.append(contentsOf: json)
        self.needsComma = true
    }

    package mutating func raw(_ json: ArraySlice<UInt8>) {
        self.separate()
        self.bytes.append(contentsOf: json)
        self.needsComma = true
    }

    package mutating func raw(_ json: String) {
        self.separate()
        self.bytes.append(contentsOf: json.utf8)
        self.needsComma = true
    }

    /// Writes a value that is already JSON; reads its bytes only during the call.
    package mutating func raw(bytes json: UnsafeRawBufferPointer) {
        self.separate()
        self.bytes.append(contentsOf: json)
        self.needsComma = true
    }

    /// Writes a parsed value.
    package mutating func value(_ value: JSONValue) {
        switch value {
        case .null: self.null()
        case .bool(let value): self.bool(value)
        case .number(let text): self.raw(text)
        case .string(let text): self.string(text)
        case .array(let elements):
            self.beginArray()
            for element in elements { self.value(element) }
            self.endArray()
        case .object(let members):
            self.beginObject()
            for member in members {
                self.key(escaping: member.key)
                self.value(member.value)
            }
            self.endObject()
        }
    }

    /// Takes the bytes written so far; later output continues where they end.
    package mutating func take() -> [UInt8] {
        defer { self.bytes.removeAll(keepingCapacity: true) }
        return self.bytes
    }

    /// The number of bytes that one byte of UTF-8 takes inside a JSON string.
    package static func length(of byte: UInt8) -> Int {
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), 0x0A, 0x0D, 0x09: 2
        case 0..<0x20: 6
        default: 1
        }
    }

    /// Returns the JSON text of a value.
    package static func bytes(of value: JSONValue) -> [UInt8] {
        var writer = JSONWriter()
        writer.value(value)
        return writer.bytes
    }

    private static let trueText = Array("true".utf8)
    private static let falseText = Array("false".utf8)
    private static let nullText = Array("null".utf8)

    private mutating func separate() {
        if self.needsComma { self.bytes.append(UInt8(ascii: ",")) }
    }

    private mutating func escape(_ byte: UInt8) {
        self.bytes.append(UInt8(ascii: "\\"))
        self.bytes.append(byte)
    }
}

/// Members in one call: the name, then the value.
extension JSONWriter {
    package mutating func member(_ key: StaticString, _ text: String) {
        self.key(key)
        self.string(text)
    }

    /// Writes null if `text` is nil.
    package mutating func member(_ key: StaticString, _ text: String?) {
        self.key(key)
        self.string(text)
    }

    package mutating func member(_ key: StaticString, _ value: some BinaryInteger) {
        self.key(key)
        self.integer(value)
    }

    /// Writes null if `value` is nil.
    package mutating func member(_ key: StaticString, _ value: (some BinaryInteger)?) {
        self.key(key)
        if let value { self.integer(value) } else { self.null() }
    }

    package mutating func member(_ key: StaticString, _ value: Bool) {
        self.key(key)
        self.bool(value)
    }

    package mutating func member(_ key: StaticString, _ value: JSONValue) {
        self.key(key)
        self.value(value)
    }

    /// Writes an object; `write` writes its members.
    package mutating func object(_ key: StaticString, _ write: (inout JSONWriter) throws -> Void) rethrows {
        self.key(key)
        self.beginObject()
        try write(&self)
        self.endObject()
    }

    /// Writes an array; `write` writes each element.
    package mutating func array<Element>(
        _ key: StaticString,
        _ elements: some Sequence<Element>,
        _ write: (inout JSONWriter, Element) throws -> Void
    ) rethrows {
        self.key(key)
        self.beginArray()
        for element in elements { try write(&self, element) }
        self.endArray()
    }
}
