// Carillon · TemplateVariables.swift
// SPDX-License-Identifier: Apache-2.0

/// A job's variables.
package struct TemplateVariables: Sendable, Equatable {
    package let members: [JSONMember]

    package init(_ members: [JSONMember] = []) {
        self.members = members
    }

    /// Reads a job's `vars`; none if it has none.
    package init(json: [UInt8]?) {
        self.members = json.flatMap { try? JSONParser.parse($0) }?.object ?? []
    }
}
