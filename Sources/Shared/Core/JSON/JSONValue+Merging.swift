// Carillon · JSONValue+Merging.swift
// SPDX-License-Identifier: Apache-2.0

extension JSONValue {
    /// This object with the members of another: objects are merged, null takes a member away, all else replaces it.
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
