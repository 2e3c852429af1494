// Carillon · SocketIdentity.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// Whom a socket speaks for, and until when.
package struct SocketIdentity: Sendable, Equatable {
    package let user: String
    package let expiresAt: Timestamp?

    package init(user: String, expiresAt: Timestamp?) {
        self.user = user
        self.expiresAt = expiresAt
    }
}
