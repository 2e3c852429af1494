// Carillon · Gate.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// What is asked once more before every provider call.
package struct GateFacts: Sendable {
    package var status: NotificationStatus
    package var isRead: Bool
    package var isDeleted: Bool
    package var isReplaced: Bool
    package var expiresAt: Timestamp?
    package var isDeviceActive: Bool
    /// Whether the user has switched push off for the type, or everything off, since.
    package var isOptedOut: Bool
    package var isRequired: Bool
    /// Whether this device has accepted it before.
    package var wasAccepted: Bool

    package init(
        status: NotificationStatus,
        isRead: Bool,
        isDeleted: Bool,
        isReplaced: Bool,
        expiresAt: Timestamp?,
        isDeviceActive: Bool,
        isOptedOut: Bool,
        isRequired: Bool,
        wasAccepted: Bool
    ) {
        self.status = status
        self.isRead = isRead
        self.isDeleted = isDeleted
        self.isReplaced = isReplaced
        self.expiresAt = expiresAt
        self.isDeviceActive = isDeviceActive
        self.isOptedOut = isOptedOut
        self.isRequired = isRequired
        self.wasAccepted = wasAccepted
    }
}

/// Why the gate stays shut; the raw value is recorded with the attempt.
package enum GateRefusal: String, Sendable, CaseIterable {
    case cancelled, read, deleted, replaced, expired
    case optedOut = "opted_out"
    case deviceInactive = "device_inactive"
    case alreadyDelivered = "already_delivered"
    case alreadyAccepted = "already_accepted"
    /// The same delivery is being made by another entry.
    case underWay = "under_way"
}

/// Whether a delivery may still go out; nil lets it pass.
package func gate(_ facts: GateFacts, now: Timestamp) -> GateRefusal? {
    if facts.wasAccepted { return .alreadyAccepted }
    switch facts.status {
    case .cancelled: return .cancelled
    case .expired: return .expired
    case .delivered: return .alreadyDelivered
    case .pending, .sent, .failed, .suppressed, .deferred: break
    }
    if facts.isRead { return .read }
    if facts.isDeleted { return .deleted }
    if facts.isReplaced { return .replaced }
    if let expiresAt = facts.expiresAt, expiresAt <= now { return .expired }
    if facts.isOptedOut, !facts.isRequired { return .optedOut }
    if !facts.isDeviceActive { return .deviceInactive }
    return nil
}
