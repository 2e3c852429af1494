// Carillon · JSON.swift
// SPDX-License-Identifier: Apache-2.0

import Core

extension JSONValue {
    /// The number, if this is one.
    var double: Double? {
        guard case .number(let text) = self else { return nil }
        return Double(text)
    }

    /// Returns a member's value, found by either spelling; `nil` if it is absent or null.
    func member(_ name: String, or camelCase: String? = nil) -> JSONValue? {
        guard let member = self.object?.first(where: { $0.key == name || $0.key == camelCase }) else { return nil }
        if case .null = member.value { return nil }
        return member.value
    }
}
