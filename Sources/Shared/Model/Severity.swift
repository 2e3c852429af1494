// Carillon · Severity.swift
// SPDX-License-Identifier: Apache-2.0

/// How grave a notification is for its reader.
package enum Severity: String, Sendable, CaseIterable {
    case alert, warning, info
}

/// How far a notification goes to reach its reader.
package enum DeliveryClass: String, Sendable, CaseIterable {
    /// Reach the user: on a socket that proves it, or else by push.
    case push
    /// No interruption: sockets and the inbox.
    case inApp = "in_app"
}
