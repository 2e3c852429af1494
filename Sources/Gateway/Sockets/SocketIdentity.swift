// Carillon · SocketIdentity.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// Whom a socket speaks for, and until when.
package struct SocketIdentity: Sendable, Equatable {
    package let user: String
    /// When its token was made, if that is known.
    package let issuedAt: Timestamp?
    package let expiresAt: Timestamp?

    package init(user: String, issuedAt: Timestamp? = nil, expiresAt: Timestamp?) {
        self.user = user
        self.issuedAt = issuedAt
        self.expiresAt = expiresAt
    }
}
