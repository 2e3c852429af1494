// Carillon · JobAllowance.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Which jobs a service's token may send: those of some types, to some kinds of audience, or all.
package struct JobAllowance: Sendable, Equatable {
    /// A job's field that says whom it is for.
    package enum Audience: String, Sendable, CaseIterable {
        case user, users, topic, all
    }

    private enum TypePattern: Sendable, Equatable {
        case exactly(ExactText)
        case beginning(ExactText)

        func matches(_ type: String) -> Bool {
            switch self {
            case .exactly(let name): ExactText(type) == name
            case .beginning(let prefix): type.utf8.starts(with: prefix.text.utf8)
            }
        }
    }

    private static let mostTypes = 256

    /// Nil for every type.
    private let types: [TypePattern]?
    /// Nil for every audience.
    private let audiences: Set<Audience>?

    /// Allows everything.
    package init() {
        self.types = nil
        self.audiences = nil
    }

    /// Reads the claims `types`, an array of names of which each may end in `*`, and `audiences`.
    ///
    /// - Throws: ``TokenFault`` if one is there and cannot be understood: a limit is never passed over.
    init(claims: JSONValue) throws(TokenFault) {
        if let claim = claims["types"] {
            guard let names = claim.strings, names.count <= Self.mostTypes, !names.contains(where: \.isEmpty) else {
                throw TokenFault("the token's claim types is no array of type names")
            }
            self.types = names.map { name in
                name.hasSuffix("*") ? .beginning(ExactText(String(name.dropLast()))) : .exactly(ExactText(name))
            }
        } else {
            self.types = nil
        }
        if let claim = claims["audiences"] {
            let names = claim.strings?.map { Audience(rawValue: $0) }
            guard let names, !names.contains(nil) else {
                throw TokenFault("the token's claim audiences is no array of user, users, topic, all")
            }
            self.audiences = Set(names.compactMap { $0 })
        } else {
            self.audiences = nil
        }
    }

    /// Whether anything is not allowed.
    package var isLimited: Bool { self.types != nil || self.audiences != nil }

    /// The fields of a job that ask for what is not allowed.
    ///
    /// Where types are limited, events are not allowed.
    ///
    /// - Parameters:
    ///   - type: the job's type, if it has one.
    ///   - fields: the names of the job's fields.
    package func faults(type: String?, fields: some Sequence<String>) -> [JobFault] {
        var faults: [JobFault] = []
        if let types {
            if let type, !types.contains(where: { $0.matches(type) }) {
                faults.append(JobFault("type", "is not allowed by the token"))
            }
            if fields.contains("event") {
                faults.append(JobFault("event", "is not allowed by the token, which is for some types"))
            }
        }
        if let audiences {
            for audience in fields.compactMap({ Audience(rawValue: $0) }) where !audiences.contains(audience) {
                faults.append(JobFault(audience.rawValue, "is not allowed by the token"))
            }
        }
        return faults
    }
}
