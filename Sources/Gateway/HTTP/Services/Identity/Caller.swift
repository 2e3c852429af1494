// Carillon · Caller.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// Who makes a call, as a credential says it.
package struct Caller: Sendable, Equatable {
    /// What a token allows beside its user's own affairs.
    package enum Scope: String, Sendable, CaseIterable {
        case service, admin
    }

    package let user: String
    package let scopes: Set<Scope>
    /// When the token was made, if it says so.
    package let issuedAt: Timestamp?
    /// When it ends, the allowed difference of clocks included; nil for one without end.
    package let expiresAt: Timestamp?
    /// Which jobs it may send; means nothing without a scope.
    package let allowance: JobAllowance

    package init(
        user: String,
        scopes: Set<Scope>,
        issuedAt: Timestamp? = nil,
        expiresAt: Timestamp?,
        allowance: JobAllowance = JobAllowance()
    ) {
        self.user = user
        self.scopes = scopes
        self.issuedAt = issuedAt
        self.expiresAt = expiresAt
        self.allowance = allowance
    }

    /// Whether the caller may act for the system.
    package var isService: Bool { !self.scopes.isEmpty }
}
