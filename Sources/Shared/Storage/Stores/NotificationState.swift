// Carillon · NotificationState.swift
// SPDX-License-Identifier: Apache-2.0

import Core

// How the status of a notification changes. The statements have further conditions; (why) is the
// reason of the decision or of the provider.
//
// event                 statement       from                       to (reason)
// ------------------------------------------------------------------------------------------------
// stored                insertFresh,    -                          pending; suppressed or expired
//                       insertChecked                              (why); cancelled with its job
// push enqueued, or     mark            pending, deferred          pending (queued)
//   mail without push
// left to its mail      mark            pending                    pending (why)
// no push follows       mark            pending, deferred          sent, suppressed, failed,
//                                                                  expired (why)
// quiet hours           markDeferred    pending, deferred          deferred (quiet_hours)
// no push after all     leftToMail      deferred, isQueued         sent if mailed; pending if its
//                                                                  mail waits; as decided (why)
// push accepted         acceptedPushes  pending, deferred,         sent
//                                       failed, expired
//                                       cancelled                  sent (cancelled_too_late)
// mail accepted         acceptedMail    cancelled                  sent (cancelled_too_late)
//   in the inbox                        isQueued, no mayBePushed   sent
//   elsewhere                           pending, failed,           sent
//                                       expired, suppressed
// push or mail failed   failed          pending, no mayBePushed    failed, expired (why)
//   mail, no push queued                pending                    failed, expired (why)
// no longer wanted      dropped         pending, none in flight    sent, suppressed, failed,
//                                                                  expired (why)
// receipt proven        markDelivered,  pending, sent, deferred,   delivered
//                       delivered       failed
// job cancelled         cancel          isWithdrawable             cancelled (in_flight if a
//                                                                  provider may have it)
//   user has seen it    endSeen         pending, deferred          sent (read, opened)
//   none in flight      stopped         isCancelledInFlight        cancelled
// newer one stored      replaceOlder    pending, deferred          suppressed (replaced)

/// Conditions on the state of the notification `n`, a row of `carillon.notifications`.
///
/// Its state is the status together with the receipts, the attempts and the waiting follow-ups.
/// Most reasons only explain a status; these belong to the state:
///
/// - `pending` without a reason: no dispatcher has handed it on; the sweep routes it again.
/// - `pending`, `queued`: its delivery is in a provider's stream; with a `decision`, only its mail.
/// - `pending` with another reason: it waits only for its mail.
/// - `cancelled`, `in_flight`: a provider may have it.
/// - `sent`, `cancelled_too_late`: a provider accepted it although its job was cancelled.
///
/// A condition that names other tables says which. PostgreSQL locks and opens every partition of
/// the audit, `delivery_attempts`, at each call of a statement that names it.
enum NotificationState {
    // MARK: Statuses with their reasons

    // Each is two conditions joined by AND: put parentheses around it after NOT.

    /// Whether it has no owner.
    static let isUnowned = "n.status = 'pending' AND n.status_reason IS NULL"

    /// Whether its delivery is in a provider's stream, like ``Notification/isQueued``.
    static let isQueued = "n.status = 'pending' AND n.status_reason = '\(RecordedReason.queued.rawValue)'"

    /// Whether it was cancelled while a provider may have had it.
    static let isCancelledInFlight =
        "n.status = 'cancelled' AND n.status_reason = '\(RecordedReason.inFlight.rawValue)'"

    // MARK: Attempts

    /// Whether an attempt ends the delivery to its device: no retry or recheck follows, and no
    /// other entry holds it.
    ///
    /// - Parameter attempt: the alias of a row of `delivery_attempts`.
    static func endsDelivery(_ attempt: String) -> String {
        "\(attempt).outcome <> 'retry' AND coalesce(\(attempt).reason, '') NOT IN ('quiet_hours', 'under_way')"
    }

    /// A lower bound of the times of its attempts, so that older partitions of the audit are not
    /// read; a day is for clocks that differ.
    static let earliestAttempt = "n.created_at - interval '1 day'"

    // MARK: Push

    /// Whether its push was tried, or refused for another reason than quiet hours.
    ///
    /// Names `delivery_attempts`.
    static let wasPushTried = """
        EXISTS (
            SELECT FROM carillon.delivery_attempts a
            WHERE a.notification_id = n.id AND a.kind = 'push' AND a.reason IS DISTINCT FROM 'quiet_hours'
                AND a.at >= \(Self.earliestAttempt))
        """

    /// Whether a device may still get its push.
    ///
    /// Names `devices` and `delivery_attempts`.
    static let mayBePushed = Self.awaitsDevice(until: Self.endsDelivery("a"))

    /// Whether a device may still get its push although it was cancelled.
    ///
    /// A push that quiet hours postponed counts as ended, because its release finds it cancelled; a
    /// postponement before the last release does not count. 15 s allow for clocks that differ.
    ///
    /// Names `devices` and `delivery_attempts`.
    static let mayBePushedThoughCancelled = Self.awaitsDevice(
        until: """
            a.outcome <> 'retry' AND coalesce(a.reason, '') <> 'under_way'
            AND (a.reason IS DISTINCT FROM 'quiet_hours'
                OR a.at >= coalesce(n.handed_at, n.stored_at) - interval '15 seconds')
            """)

    /// Whether no attempt ended the push on a device, and there was an attempt or the push was
    /// enqueued for it.
    ///
    /// A push that was handed on late went to the devices of a moment before `handed_at`. A device
    /// that was registered in the last 15 s before that counts only once it was tried. With a
    /// `decision`, the push was held back and enqueued for no device.
    ///
    /// - Parameter end: whether the attempt `a` ended it.
    private static func awaitsDevice(until end: String) -> String {
        """
        ((n.channels & \(Channels.push.rawValue)) <> 0 AND EXISTS (
            SELECT FROM carillon.devices d
            CROSS JOIN LATERAL (
                SELECT count(*) > 0 AS was_tried, coalesce(bool_or(\(end)), false) AS has_ended
                FROM carillon.delivery_attempts a
                WHERE a.notification_id = n.id AND a.device_id = d.id AND a.kind = 'push'
                    AND a.at >= \(Self.earliestAttempt)
            ) t
            WHERE d.user_id = n.user_id AND d.active AND NOT d.silenced AND NOT t.has_ended
                AND (t.was_tried OR n.decision IS NULL
                    AND d.pushed_since <= coalesce(n.handed_at - interval '15 seconds', n.stored_at))))
        """
    }

    // MARK: Mail

    // The status of an inbox row does not show its mail.

    /// Whether its mail is still to come or has not ended.
    ///
    /// Names `follow_ups`.
    static let waitsForMail = """
        EXISTS (
            SELECT FROM carillon.follow_ups f
            WHERE f.user_id = n.user_id AND f.notification_id = n.id AND f.kind = '\(FollowUp.email.rawValue)'
        )
        """

    /// Whether its mail may be in flight: there is an address, the mail is due or nearly so, and no
    /// attempt has ended it.
    ///
    /// Names `user_settings`, `follow_ups` and `delivery_attempts`.
    static func mayBeMailed(at moment: String) -> String {
        """
        ((n.channels & \(Channels.email.rawValue)) <> 0
            AND EXISTS (
                SELECT FROM carillon.user_settings s
                WHERE s.user_id = n.user_id AND s.email IS NOT NULL AND s.email_invalid_at IS NULL)
            AND NOT EXISTS (
                SELECT FROM carillon.follow_ups f
                WHERE f.user_id = n.user_id AND f.notification_id = n.id AND f.kind = '\(FollowUp.email.rawValue)'
                    AND f.due_at > \(moment) + interval '1 minute' AND NOT \(FollowUpStore.isUnderWay))
            AND NOT EXISTS (
                SELECT FROM carillon.delivery_attempts a
                WHERE a.notification_id = n.id AND a.kind = 'email' AND a.outcome <> 'retry'
                    AND a.at >= \(Self.earliestAttempt)))
        """
    }

    /// Whether the relay accepted its mail.
    ///
    /// Names `delivery_attempts`.
    static let wasMailed = """
        ((n.channels & \(Channels.email.rawValue)) <> 0 AND EXISTS (
            SELECT FROM carillon.delivery_attempts m
            WHERE m.notification_id = n.id AND m.kind = 'email' AND m.outcome = 'accepted'
                AND m.at >= n.stored_at - interval '1 day'))
        """

    /// Whether its mail was accepted, or may have been, in an attempt that the audit no longer has.
    ///
    /// Names `delivery_attempts`, `sweep`, `user_settings` and `follow_ups`.
    private static let countsAsMailed = """
        (\(Self.wasMailed)
            OR (n.channels & \(Channels.email.rawValue)) <> 0
                AND n.stored_at < (SELECT w.audited_from FROM carillon.sweep w)
                AND EXISTS (
                    SELECT FROM carillon.user_settings s WHERE s.user_id = n.user_id AND s.email IS NOT NULL)
                AND NOT \(Self.waitsForMail))
        """

    // MARK: Cancelling

    /// Whether it has reached no device, so that it can be withdrawn.
    ///
    /// A notification that was read or opened has reached its user, whatever its status. So has one
    /// whose mail was sent. Otherwise a notification can be withdrawn if it is unread in the inbox
    /// of an offline user, if sockets have not confirmed it, if a summary after quiet hours stands
    /// for it, or if it failed or expired and is in the inbox. Outside the inbox, a failed one can
    /// be withdrawn while a device waits for a retry.
    ///
    /// Names the tables of ``countsAsMailed``.
    static let isWithdrawable = """
        (n.read_at IS NULL AND n.opened_at IS NULL AND ((n.status IN ('pending', 'deferred')
                OR n.status = 'sent' AND n.sent_via IN ('inbox', 'socket', 'summary')
                OR n.status IN ('failed', 'expired') AND n.version > 0 AND n.deleted_at IS NULL)
                AND NOT \(Self.countsAsMailed)
            OR n.status = 'failed' AND EXISTS (
                SELECT FROM carillon.delivery_attempts a WHERE a.notification_id = n.id AND a.outcome = 'retry'
                    AND NOT EXISTS (
                        SELECT FROM carillon.delivery_attempts l WHERE l.notification_id = n.id
                            AND l.device_id = a.device_id AND l.at >= a.at AND l.outcome <> 'retry'))))
        """

    /// Whether it failed or expired, but its user has it: read or opened it in the inbox, or got
    /// its mail.
    ///
    /// Names the tables of ``countsAsMailed``.
    static let isReached = """
        (n.status IN ('failed', 'expired')
            AND (n.read_at IS NOT NULL OR n.opened_at IS NOT NULL OR \(Self.countsAsMailed)))
        """
}
