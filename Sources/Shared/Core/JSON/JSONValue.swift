// Carillon · JSONValue.swift
// SPDX-License-Identifier: Apache-2.0

/// A parsed JSON value (RFC 8259).
package enum JSONValue: Sendable, Equatable {
    case null
    case bool(Bool)
    /// As written, so that no precision is lost.
    case number(String)
    case string(String)
    case array([JSONValue])
    /// Members in their order; keys are distinct.
    case object([JSONMember])

    package var string: String? {
        if case .string(let text) = self { return text }
        return nil
    }

    package var bool: Bool? {
        if case .bool(let value) = self { return value }
        return nil
    }

    /// A whole number, however it is written: `1`, `1.0` and `1e0` are the same (JSON Schema
    /// 2020-12, section 4.2.3).
    package var integer: Int64? {
        guard case .number(let text) = self else { return nil }
        if let value = Int64(text) { return value }
        // From 2^53 on a `Double` may be another number than the one that is written.
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

    /// The array's elements if all are strings.
    package var strings: [String]? {
        guard let array else { return nil }
        var strings: [String] = []
        for element in array {
            guard let text = element.string else { return nil }
            strings.append(text)
        }
        return strings
    }

    /// The member of that name, if this is an object that has it.
    package subscript(_ key: String) -> JSONValue? {
        self.object?.first { $0.key == key }?.value
    }
}

/// A name and its value in an object.
package struct JSONMember: Sendable, Equatable {
    package let key: String
    package let value: JSONValue

    package init(_ key: String, _ value: JSONValue) {
        self.key = key
        self.value = value
    }
}
