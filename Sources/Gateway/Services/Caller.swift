// Carillon · Caller.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// Who makes a call, as a token says it.
package struct Caller: Sendable, Equatable {
    /// What a token allows beside its user's own affairs.
    package enum Scope: String, Sendable, CaseIterable {
        case service, admin
    }

    package let user: String
    package let scopes: Set<Scope>
    package let expiresAt: Timestamp?

    package init(user: String, scopes: Set<Scope>, expiresAt: Timestamp?) {
        self.user = user
        self.scopes = scopes
        self.expiresAt = expiresAt
    }

    /// Whether the caller may act for the system.
    package var isService: Bool { !self.scopes.isEmpty }
}

/// Why a token is refused, in words fit for its holder.
package struct TokenFault: Error, Sendable, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) {
        self.description = description
    }
}
