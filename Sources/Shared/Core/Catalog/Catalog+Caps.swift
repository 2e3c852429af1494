// Carillon · Catalog+Caps.swift
// SPDX-License-Identifier: Apache-2.0

/// A cap that notifications of some type count against.
package struct AppliedCap: Sendable {
    package let scope: CapScope
    /// What is counted, such as `type:news`.
    package let name: String
    package let limit: FrequencyCap
}

extension Catalog {
    /// The caps that notifications of a type count against, the narrowest first.
    package func caps(ofType name: String) -> [AppliedCap] {
        var caps: [AppliedCap] = []
        let type = self[name]
        if let limit = type?.cap { caps.append(AppliedCap(scope: .type, name: "type:\(name)", limit: limit)) }
        if let category = type?.category, let limit = self.cap(category: category) {
            caps.append(AppliedCap(scope: .category, name: "category:\(category)", limit: limit))
        }
        if let limit = self.userCap { caps.append(AppliedCap(scope: .user, name: "user", limit: limit)) }
        return caps
    }

    /// The names of all caps that notifications of any type count against.
    package var capNames: [String] { Set(self.all.flatMap { self.caps(ofType: $0.name) }.map(\.name)).sorted() }
}
