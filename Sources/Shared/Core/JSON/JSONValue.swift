// Carillon · JSONValue.swift
// SPDX-License-Identifier: Apache-2.0

/// A parsed JSON value (RFC 8259).
package enum JSONValue: Sendable, Equatable {
    case null
    case bool(Bool)
    /// The number as text, so that no precision is lost.
    case number(String)
    case string(String)
    case array([JSONValue])
    /// Members in their order, with distinct keys.
    case object([JSONMember])

    package var string: String? {
        if case .string(let text) = self { return text }
        return nil
    }

    package var bool: Bool? {
        if case .bool(let value) = self { return value }
        return nil
    }

    /// The value of a whole number in any notation: `1`, `1.0` and `1e0` are equal (JSON Schema
    /// 2020-12, section 4.2.3).
    package var integer: Int64? {
        guard case .number(let text) = self else { return nil }
        if let value = Int64(text) { return value }
        // From 2^53 on, `Double` may round to another number.
        guard let value = Double(text), value.magnitude < 9_007_199_254_740_992 else { return nil }
        return Int64(exactly: value)
    }

    package var array: [JSONValue]? {
        if case .array(let elements) = self { return elements }
        return nil
    }

    package var object: [JSONMember]? {
        if case .object(let members) = self { return members }
        return nil
    }

    /// The array's elements, if all are strings.
    package var strings: [String]? {
        guard let array else { return nil }
        var strings: [String] = []
        for element in array {
            guard let text = element.string else { return nil }
            strings.append(text)
        }
        return strings
    }

    /// The member of this name, if this is an object that has it.
    package subscript(_ key: String) -> JSONValue? {
        // Stored JSON may have keys with any number of combining marks.
        let key = ExactText(key)
        return self.object?.first { ExactText($0.key) == key }?.value
    }
}

/// A member of an object.
package struct JSONMember: Sendable, Equatable {
    package let key: String
    package let value: JSONValue

    package init(_ key: String, _ value: JSONValue) {
        self.key = key
        self.value = value
    }
}

extension JSONValue {
    /// Merges another object into this one: objects merge, null removes a member, other values
    /// replace it.
    package func merging(_ other: JSONValue) -> JSONValue {
        guard case .object(var members) = self, case .object(let changes) = other else { return other }
        for change in changes {
            let index = members.firstIndex { ExactText($0.key) == ExactText(change.key) }
            switch (index, change.value) {
            case (.some(let index), .null): members.remove(at: index)
            case (.none, .null): break
            case (.some(let index), let value):
                members[index] = JSONMember(change.key, members[index].value.merging(value))
            case (.none, let value): members.append(JSONMember(change.key, value))
            }
        }
        return .object(members)
    }
}

extension JSONValue {
    /// Whether PostgreSQL's `jsonb` considers both equal: members in any order, numbers by value.
    package func isSameData(as other: JSONValue) -> Bool {
        switch (self, other) {
        case (.null, .null): return true
        case (.bool(let left), .bool(let right)): return left == right
        case (.string(let left), .string(let right)): return ExactText(left) == ExactText(right)
        case (.number(let left), .number(let right)):
            return left == right || DecimalValue(left).map { $0 == DecimalValue(right) } ?? false
        case (.array(let left), .array(let right)):
            return left.count == right.count && zip(left, right).allSatisfy { $0.isSameData(as: $1) }
        case (.object(let left), .object(let right)):
            guard left.count == right.count else { return false }
            func sorted(_ members: [JSONMember]) -> [JSONMember] {
                members.sorted { ExactText($0.key) < ExactText($1.key) }
            }
            return zip(sorted(left), sorted(right)).allSatisfy {
                ExactText($0.key) == ExactText($1.key) && $0.value.isSameData(as: $1.value)
            }
        default: return false
        }
    }

    /// A number as its digits without leading and trailing zeros, and the last digit's power of
    /// ten.
    private struct DecimalValue: Equatable {
        private var isNegative: Bool
        private var digits: [Character]
        private var exponent: Int

        /// - Parameter text: a JSON number; the result is nil if its exponent is out of range.
        init?(_ text: String) {
            let parts = text.split(whereSeparator: { $0 == "e" || $0 == "E" })
            guard let mantissa = parts.first, let power = parts.count > 1 ? Int(parts[1]) : 0,
                power.magnitude < 1_000_000
            else { return nil }
            let fraction = mantissa.split(separator: ".").dropFirst().first ?? ""
            self.isNegative = mantissa.hasPrefix("-")
            self.digits = Array(mantissa.filter(\.isNumber).drop { $0 == "0" })
            self.exponent = power - fraction.count
            while self.digits.last == "0" {
                self.digits.removeLast()
                self.exponent += 1
            }
            guard self.digits.isEmpty else { return }
            (self.isNegative, self.exponent) = (false, 0)
        }
    }
}

/// Text that equals only the same code points.
///
/// `String` compares canonically, so "é" in one scalar equals "é" in two. JSON names (RFC 8259
/// section 8.3) and opaque identifiers must not. `String` also takes quadratic time for long runs
/// of combining marks, so compare field names from outside as `ExactText`.
package struct ExactText: Hashable, Comparable, Sendable, ExpressibleByStringLiteral {
    package let text: String

    package init(_ text: String) {
        self.text = text
    }

    package init(stringLiteral text: String) {
        self.text = text
    }

    package static func == (left: ExactText, right: ExactText) -> Bool {
        guard left.text.utf8.count == right.text.utf8.count else { return false }
        return self.withUTF8(left, right) { left, right in
            for index in left.indices where left[index] != right[index] { return false }
            return true
        }
    }

    package func hash(into hasher: inout Hasher) {
        self.withUTF8 { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
    }

    /// Compares bytes, which sorts by code point.
    package static func < (left: ExactText, right: ExactText) -> Bool {
        self.withUTF8(left, right) { left, right in
            for index in 0..<min(left.count, right.count) where left[index] != right[index] {
                return left[index] < right[index]
            }
            return left.count < right.count
        }
    }

    /// Loops over buffers: tables keyed by user compare texts constantly, and iterators are slower.
    private static func withUTF8(
        _ left: ExactText,
        _ right: ExactText,
        _ compare: (UnsafeBufferPointer<UInt8>, UnsafeBufferPointer<UInt8>) -> Bool
    ) -> Bool {
        // In bounds: both closures only use indices that both buffers have, while they are valid.
        left.withUTF8 { left in right.withUTF8 { right in compare(left, right) } }
    }

    /// Reads the bytes in place; `String.withUTF8` needs a variable, which retains the text.
    private func withUTF8<Value>(_ body: (UnsafeBufferPointer<UInt8>) -> Value) -> Value {
        if let value = self.text.utf8.withContiguousStorageIfAvailable(body) { return value }
        var text = self.text
        return text.withUTF8(body)
    }

    /// Returns each text once, sorted by bytes.
    package static func distinct(_ texts: [String]) -> [String] {
        Set(texts.map { ExactText($0) }).sorted().map(\.text)
    }
}
