// Carillon · Severity.swift
// SPDX-License-Identifier: Apache-2.0

/// How grave a notification is for its reader.
package enum Severity: String, Sendable, CaseIterable {
    case alert, warning, info
}

/// How fast a provider passes a push on to a device that sleeps; says nothing of how grave it is.
package enum PushPriority: String, Sendable, CaseIterable {
    /// At once: APNs priority 10, Android `HIGH`, Web Push `high`.
    case high
    /// When it suits the device's battery: APNs priority 5, Android `NORMAL`.
    case normal
}

/// How far a notification goes to reach its reader.
package enum DeliveryClass: String, Sendable, CaseIterable {
    /// Reach the user: on a socket that proves it, or else by push.
    case push
    /// No interruption: sockets and the inbox.
    case inApp = "in_app"
}
