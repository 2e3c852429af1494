// Carillon · Gate.swift
// SPDX-License-Identifier: Apache-2.0

/// The facts that the gate checks before every provider call.
package struct GateFacts: Sendable {
    /// The purpose of a call.
    package enum Purpose: Sendable, Equatable {
        /// To reach a user without proof of receipt by a socket.
        case reach
        /// To alert a user who has the notification on a socket and has not read it.
        case attention
        /// To send mail to a user who has not read the notification.
        case email
        /// To remove a notification from a device, as it was read elsewhere.
        case retraction
    }

    var purpose = Purpose.reach
    package var status: NotificationStatus
    package var isRead: Bool
    var isDeleted: Bool
    /// The `keep_until` at which retention deletes the notification; nil if it was deleted earlier.
    var keptUntil: Timestamp?
    var isReplaced: Bool
    var expiresAt: Timestamp?
    /// Whether the operator has disabled the type since the notification was stored.
    var isTypeDisabled = false
    package var isDeviceActive: Bool
    /// Whether the user has switched off the channel for the type, or everything.
    var isOptedOut: Bool
    var isRequired: Bool
    /// Whether this device has accepted the notification before.
    package var wasAccepted: Bool
    /// When the current quiet hours release the notification; nil if none hold, or they do not
    /// apply.
    package var releaseAt: Timestamp?
    /// Whether quiet hours drop the push instead of deferring it.
    var isQuietFinal = false
}

extension GateFacts {
    /// Creates the facts of a notification and its user's preferences, for an active device that
    /// has not accepted the notification.
    ///
    /// - Parameter type: nil if the type has left the catalog.
    package init(
        _ purpose: Purpose,
        of notification: Notification,
        type: NotificationType?,
        preference: TypePreference,
        settings: UserSettings,
        isReplaced: Bool
    ) {
        // As when the notification was stored: without a preference, the type's default holds.
        let isWanted =
            if purpose == .email {
                preference.email ?? type?.isEmailOnByDefault ?? true
            } else {
                preference.push ?? type?.isOnByDefault ?? true
            }
        self.init(
            status: notification.status,
            isRead: notification.readAt != nil,
            isDeleted: notification.deletedAt != nil,
            isReplaced: isReplaced,
            expiresAt: notification.endsAt,
            isDeviceActive: true,
            isOptedOut: settings.isOptedOut || !isWanted,
            isRequired: type?.isRequired ?? false,
            wasAccepted: false
        )
        self.purpose = purpose
        // Retention sets `deletedAt` to `keep_until` or later; archiving may set that time in
        // advance.
        if let keepUntil = notification.keepUntil, let deletedAt = notification.deletedAt, deletedAt >= keepUntil {
            self.keptUntil = keepUntil
        }
        self.isTypeDisabled = type?.isEnabled == false
        self.isQuietFinal = type?.quietHours.isFinal == true
    }
}

/// Why the gate refuses a delivery; the raw value is recorded with the attempt.
package enum GateRefusal: String, Sendable, CaseIterable {
    case cancelled, read, deleted, replaced, expired
    /// A retraction of a notification that is unread again.
    case unread
    case typeDisabled = "type_disabled"
    case optedOut = "opted_out"
    case deviceInactive = "device_inactive"
    case alreadyDelivered = "already_delivered"
    case alreadyAccepted = "already_accepted"
    /// Another entry of the same delivery is being sent.
    case underWay = "under_way"
    /// Quiet hours have begun; the delivery is postponed until they end.
    case quietHours = "quiet_hours"
    /// Quiet hours have begun, and the type drops pushes during them.
    case notInQuietHours = "not_in_quiet_hours"
}

/// Returns why a delivery may not go out; nil if it may.
package func gate(_ facts: GateFacts, now: Timestamp) -> GateRefusal? {
    if facts.purpose == .retraction {
        if !facts.isDeviceActive { return .deviceInactive }
        // The newer notification is shown under the same tag and is unread.
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
    if facts.isDeleted, facts.keptUntil.map({ $0 > now }) ?? true { return .deleted }
    if facts.isReplaced { return .replaced }
    if let expiresAt = facts.expiresAt, expiresAt <= now { return .expired }
    if facts.isTypeDisabled { return .typeDisabled }
    if facts.isOptedOut, !facts.isRequired { return .optedOut }
    if !facts.isDeviceActive { return .deviceInactive }
    if facts.releaseAt != nil { return facts.isQuietFinal ? .notInQuietHours : .quietHours }
    return nil
}
