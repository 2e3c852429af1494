// Carillon · JSONValue.swift
// SPDX-License-Identifier: Apache-2.0

/// A parsed JSON text (RFC 8259), members in the order they were written.
enum JSONValue {
    struct Member {
        let name: String
        let value: JSONValue
    }

    case null
    case bool(Bool)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([Member])

    /// The text, if this is a string.
    var text: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// The number, if this is one.
    var double: Double? {
        guard case .number(let number) = self else { return nil }
        return number
    }

    /// The members, if this is an object.
    var members: [Member]? {
        guard case .object(let members) = self else { return nil }
        return members
    }

    /// Whether this is JSON's `null`.
    var isNull: Bool {
        guard case .null = self else { return false }
        return true
    }

    /// The member's value, looked for under either spelling; `nil` where it is absent or null.
    func member(_ name: String, or camelCase: String? = nil) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        for member in members where member.name == name || member.name == camelCase {
            return member.value.isNull ? nil : member.value
        }
        return nil
    }
}
