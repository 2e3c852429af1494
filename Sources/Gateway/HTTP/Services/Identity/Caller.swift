// Carillon · Caller.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The user and the rights of a verified credential.
package struct Caller: Sendable, Equatable {
    /// The rights of a token beyond its user's own data.
    package enum Scope: String, Sendable, CaseIterable {
        case service, admin
    }

    package let user: String
    package let scopes: Set<Scope>
    /// The time of issue, if the token contains it.
    var issuedAt: Timestamp?
    /// The end of validity, including the allowed clock skew; nil for a token without an end.
    let expiresAt: Timestamp?
    /// The jobs that the caller may send; meaningless without a scope.
    var allowance = JobAllowance()

    /// Whether the caller may act for the system.
    var isService: Bool { !self.scopes.isEmpty }
}

/// The jobs that a service's token may send: all, or only some types and audiences.
package struct JobAllowance: Sendable, Equatable {
    /// A field of a job that selects its recipients.
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

    /// Nil for all types.
    private let types: [TypePattern]?
    /// Nil for all audiences.
    private let audiences: Set<Audience>?

    /// Allows all jobs.
    init() {
        self.types = nil
        self.audiences = nil
    }

    /// Reads the claims `types` (an array of names, which may end in `*`) and `audiences`.
    ///
    /// - Throws: ``TokenFault`` if a claim is malformed, because ignoring a limit would grant too
    ///   much.
    init(claims: JSONValue) throws(TokenFault) {
        if let claim = claims["types"] {
            guard let names = claim.strings, names.count <= Self.mostTypes, !names.contains(where: \.isEmpty) else {
                throw TokenFault("the token's claim types is not an array of type names")
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
                throw TokenFault("the token's claim audiences is not an array of user, users, topic, all")
            }
            self.audiences = Set(names.compactMap { $0 })
        } else {
            self.audiences = nil
        }
    }

    /// Whether anything is forbidden.
    var isLimited: Bool { self.types != nil || self.audiences != nil }

    /// Returns a fault for each field of a job that the token forbids.
    ///
    /// A token that is limited to types allows no events.
    ///
    /// - Parameters:
    ///   - type: the job's type, if any.
    ///   - fields: the names of the job's fields.
    func faults(type: String?, fields: some Sequence<String>) -> [JobFault] {
        var faults: [JobFault] = []
        if let types {
            if let type, !types.contains(where: { $0.matches(type) }) {
                faults.append(JobFault("type", "is not allowed by the token"))
            }
            if fields.contains("event") {
                faults.append(JobFault("event", "is not allowed by the token, which is limited to types"))
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

/// A reason why a credential is not accepted, safe to show to the sender; it contains no part of
/// the credential.
package struct TokenFault: Error, Sendable, Equatable, CustomStringConvertible {
    enum Code: String, Sendable {
        /// Invalid: 401.
        case refused
        /// Possibly valid, but not allowed in this request: 403.
        case forbidden
        /// It cannot be checked now: 503.
        case unavailable
    }

    let code: Code
    package let description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }

    /// Creates a fault for an invalid credential.
    init(_ description: String) {
        self.init(.refused, description)
    }

    /// The HTTP status of the response.
    var status: Int {
        switch self.code {
        case .refused: 401
        case .forbidden: 403
        case .unavailable: 503
        }
    }
}
