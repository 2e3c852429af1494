// Carillon · FollowUpRules.swift
// SPDX-License-Identifier: Apache-2.0

/// The change to a notification whose follow-up the gate refuses.
package enum RefusedFollowUp: Sendable, Equatable {
    /// Nothing; the notification keeps its status.
    case ignore
    /// Record an attempt, because the notification's status does not show that its mail is skipped.
    case skipMail
    /// End the notification.
    case settle(NotificationStatus)
    /// End the notification with its mail; the status applies if the mail did not go out.
    case settleWithMail(otherwise: NotificationStatus)
}

extension FollowUp {
    /// The reasons for which a release fails a notification whose only channel is push.
    private static let failures: [Reason] = [.noDevice, .quietHours, .cappedByUser, .cappedByType, .cappedByCategory]

    /// Whether a dispatcher that died has handled a release, and no push is to follow.
    ///
    /// A push that a provider accepted leaves no reason; it still goes to the devices that lack it.
    package func isOver(_ notification: Notification) -> Bool {
        guard self == .release, let reason = notification.statusReason else { return false }
        switch notification.status {
        case .sent, .suppressed: return true
        // With another reason, the notification waits only for its mail.
        case .pending: return !notification.isQueued
        // The push may still wait after the mail has failed.
        case .failed: return Reason(rawValue: reason).map { Self.failures.contains($0) } ?? false
        case .deferred, .delivered, .expired, .cancelled: return false
        }
    }

    /// Whether a dispatcher that died has released a notification, and may have pushed it.
    ///
    /// Its push goes into the stream again even if the gate refuses it, because only the sender can
    /// tell when all devices are done.
    package func wasReleased(_ notification: Notification) -> Bool { self == .release && notification.isQueued }

    /// Decides what becomes of a notification after a refusal: it stays in the inbox, ends if mail
    /// was its only channel, or is left to its mail.
    package func refused(_ refusal: GateRefusal, _ notification: Notification) -> RefusedFollowUp {
        let isInInbox = notification.channels.contains(.inApp)
        let status: NotificationStatus = refusal == .expired ? .expired : isInInbox ? .sent : .suppressed
        switch self {
        case .release:
            guard notification.status == .deferred else { return .ignore }
            let mayBeMailed = !isInInbox && notification.channels.contains(.email)
            return mayBeMailed && refusal != .deleted && refusal != .replaced
                ? .settleWithMail(otherwise: status) : .settle(status)
        case .attention: return .ignore
        case .email:
            if !isInInbox, notification.status == .pending, !notification.isQueued { return .settle(status) }
            // Most mail is skipped because the notification was read in the inbox; it ends nothing.
            let endsNothing = isInInbox && !notification.isQueued && (refusal == .read || refusal == .deleted)
            // The mail of a cancelled notification is then no longer in flight.
            return endsNothing ? .ignore : .skipMail
        }
    }
}
