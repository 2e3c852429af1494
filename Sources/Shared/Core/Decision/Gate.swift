// Carillon · Gate.swift
// SPDX-License-Identifier: Apache-2.0

/// What is asked once more before every provider call.
package struct GateFacts: Sendable {
    /// What the call is for.
    package enum Purpose: Sendable, Equatable {
        /// To reach a user whom no socket has proven to have reached.
        case reach
        /// To call a user who has it on a socket and has not read it.
        case attention
        /// To write to a user who has not read it.
        case email
        /// To take what was read elsewhere off a device that has it.
        case retraction
    }

    package var purpose = Purpose.reach
    package var status: NotificationStatus
    package var isRead: Bool
    package var isDeleted: Bool
    package var isReplaced: Bool
    package var expiresAt: Timestamp?
    package var isDeviceActive: Bool
    /// Whether the user has switched the channel off for the type, or everything off, since.
    package var isOptedOut: Bool
    package var isRequired: Bool
    /// Whether this device has accepted it before.
    package var wasAccepted: Bool
    /// When the quiet hours that hold now let it go; nil outside of them, and for what goes out in them.
    package var releaseAt: Timestamp?

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
    /// There is nothing to take off the device: it is unread.
    case unread
    case optedOut = "opted_out"
    case deviceInactive = "device_inactive"
    case alreadyDelivered = "already_delivered"
    case alreadyAccepted = "already_accepted"
    /// The same delivery is being made by another entry.
    case underWay = "under_way"
    /// Quiet hours have begun; it is put off until they end.
    case quietHours = "quiet_hours"
}

/// Whether a delivery may still go out; nil lets it pass.
package func gate(_ facts: GateFacts, now: Timestamp) -> GateRefusal? {
    if facts.purpose == .retraction {
        if !facts.isDeviceActive { return .deviceInactive }
        // What has taken its place is shown under the same name, and is not read.
        if facts.isReplaced { return .replaced }
        return facts.isRead || facts.isDeleted ? nil : .unread
    }
    if facts.wasAccepted { return .alreadyAccepted }
    switch facts.status {
    case .cancelled: return .cancelled
    case .expired: return .expired
    case .delivered where facts.purpose == .reach: return .alreadyDelivered
    case .pending, .sent, .delivered, .failed, .suppressed, .deferred: break
    }
    if facts.isRead { return .read }
    if facts.isDeleted { return .deleted }
    if facts.isReplaced { return .replaced }
    if let expiresAt = facts.expiresAt, expiresAt <= now { return .expired }
    if facts.isOptedOut, !facts.isRequired { return .optedOut }
    if !facts.isDeviceActive { return .deviceInactive }
    if facts.releaseAt != nil { return .quietHours }
    return nil
}
