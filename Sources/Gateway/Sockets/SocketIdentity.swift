// Carillon · SocketIdentity.swift
// SPDX-License-Identifier: Apache-2.0

import Core

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

    /// Whether its token was made later than another's; where that does not tell, whether it lasts longer.
    package func isNewer(than other: SocketIdentity) -> Bool {
        if let own = self.issuedAt, let others = other.issuedAt, own != others { return own > others }
        guard let end = other.expiresAt else { return false }
        return self.expiresAt.map { $0 > end } ?? true
    }
}
