// Carillon · Step.swift
// SPDX-License-Identifier: Apache-2.0

/// One thing to do about a notification.
package enum Step: Sendable, Equatable {
    /// Store it so.
    case store(status: NotificationStatus, reason: Reason?, channels: Channels)
    /// Send it to the user's sockets; silently, if it is not to interrupt.
    case publish(isSilent: Bool)
    /// Fall back to push unless a socket proves receipt in time.
    case awaitProof(within: Duration)
    /// Send it to every active device.
    case push
    /// Send it to the user's e-mail address.
    case email
    /// Look at it again at that moment.
    case postpone(FollowUp, until: Timestamp, reason: Reason)
    /// Write down why less is done than was asked for.
    case note(Reason)
    /// Nothing more is to be done; record how it stands.
    case settle(status: NotificationStatus, reason: Reason, via: String?)
    /// Leave it as it is; it is looked at again.
    case wait(Reason)
}

/// Why a step was chosen; the raw value is stored and shown.
package enum Reason: String, Sendable, CaseIterable {
    case expired
    case typeDisabled = "type_disabled"
    case optedOut = "opted_out"
    case notOptedIn = "not_opted_in"
    case optedOutOfType = "opted_out_of_type"
    case noChannel = "no_channel"
    case offline
    case presenceUnknown = "presence_unknown"
    case noDevice = "no_device"
    case quietHours = "quiet_hours"
    case idle
    case unread
    case cappedByUser = "capped_by_user"
    case cappedByType = "capped_by_type"
    case cappedByCategory = "capped_by_category"
    /// Handed to sockets, of which none is waited for to prove receipt.
    case unproven

    init(_ scope: CapScope) {
        switch scope {
        case .user: self = .cappedByUser
        case .type: self = .cappedByType
        case .category: self = .cappedByCategory
        }
    }
}
