// Carillon · RoutePlan.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage

/// The result of a batch of decisions: one list per kind of action, each done in one step.
struct RoutePlan {
    struct Delivery {
        let provider: Provider
        let lane: Lane
        let work: DeliveryWork
        /// Whether it may already wait for a retry or be held back.
        let mayWait: Bool

        /// The same delivery as a repeat.
        var again: Delivery {
            Delivery(provider: self.provider, lane: self.lane, work: self.work.asRepeat, mayWait: true)
        }
    }

    /// Notifications to be proven, and how long sockets have from when the frames go out.
    private(set) var awaited: [(AwaitedProof, within: Duration)] = []
    private(set) var deliveries: [Delivery] = []
    private(set) var marks: [NotificationStore.Mark] = []
    /// Marks to write before anything is sent, because the sender may postpone again at once.
    private(set) var releases: [NotificationStore.Mark] = []
    private(set) var notes: [(user: String, id: NotificationID, decision: String)] = []
    private(set) var postponed: [Postponement] = []
    /// Notifications that are postponed to the same moment again, as audit and events have it.
    var recorded: Set<NotificationID> = []
    /// Mail whose loss the notification's status would not show.
    private(set) var remembered: [FollowUpStore.Item] = []
    /// Skipped sends, and deferred notifications that only their mail can end.
    private(set) var settlement = DeliveryStore.Settlement()
    private(set) var lifecycle: [LifecycleEvent] = []
    private(set) var messages: NodeMessages

    init(for dispatcher: Dispatcher) {
        self.messages = NodeMessages(dispatcher.keys)
    }

    /// - Parameters:
    ///   - isSilent: whether clients should not ring.
    ///   - code: the type's integer code, for clients that know types by it.
    ///   - now: the time at which relative fields are computed.
    mutating func publish(
        _ notification: Notification,
        unread: Int32,
        code: Int?,
        isSilent: Bool,
        now: Timestamp,
        to presence: Presence
    ) {
        // When one was read or deleted since, the version of its row is that of the change.
        guard case .online(let connections) = presence, notification.readAt == nil, notification.deletedAt == nil
        else { return }
        let needsCamelCase = connections.contains { $0.dialect.shape == .camelCase }
        let isListed = notification.version > 0
        self.messages.append(
            NodeFrame(
                kind: .notification,
                user: notification.user,
                previous: isListed ? notification.version - 1 : 0,
                version: notification.version,
                unread: unread,
                awaitingLane: notification.channels.contains(.push) ? notification.lane : nil,
                id: notification.id,
                body: CanonicalShape.encode(notification, isSilent: isSilent),
                camelCaseBody: needsCamelCase ? CamelCaseShape.encode(notification, code: code, now: now) : []
            ),
            to: presence
        )
    }

    mutating func publish(_ frame: NodeFrame, to presence: Presence) {
        self.messages.append(frame, to: presence)
    }

    mutating func awaitProof(_ notification: Notification, within time: Duration) {
        let waiting = AwaitedProof(id: notification.id, user: notification.user, lane: notification.lane)
        self.awaited.append((waiting, time))
    }

    /// Returns the deadlines of proofs if the frames go out now.
    func deadlines(at now: Timestamp) -> [(AwaitedProof, deadline: Timestamp)] {
        self.awaited.map { ($0.0, deadline: now + $0.within) }
    }

    mutating func deliver(
        _ notification: Notification,
        to device: Device,
        isRepeat: Bool,
        callsForAttention: Bool = false,
        mayWait: Bool = false
    ) {
        let work = DeliveryWork(
            notification: notification.id,
            device: device.id,
            user: notification.user,
            attempt: 0,
            isRepeat: isRepeat,
            callsForAttention: callsForAttention
        )
        self.deliveries.append(
            Delivery(provider: device.provider, lane: notification.lane, work: work, mayWait: mayWait))
    }

    /// Adds a delivery to the user's e-mail address.
    mutating func mail(_ notification: Notification, isRepeat: Bool, mayWait: Bool) {
        let work = DeliveryWork(
            notification: notification.id,
            device: Device.emailAddress,
            user: notification.user,
            attempt: 0,
            isRepeat: isRepeat
        )
        self.deliveries.append(
            Delivery(provider: .email, lane: notification.lane, work: work, mayWait: mayWait))
    }

    /// Records mail as a follow-up until it has ended.
    mutating func remember(_ notification: Notification) {
        self.remembered.append(
            FollowUpStore.Item(user: notification.user, notification: notification.id, kind: .email))
    }

    /// Ends a notification's deferral.
    ///
    /// Its follow-up stays until the push is in its stream.
    mutating func release(_ notification: Notification) {
        self.releases.append((notification.user, notification.id, .pending, Notification.queued, nil))
    }

    /// Marks a notification whose delivery goes into its provider's stream.
    mutating func markQueued(_ notification: Notification) {
        self.mark(notification, .pending, reason: Notification.queued, via: nil)
    }

    mutating func mark(_ notification: Notification, _ status: NotificationStatus, reason: String?, via: String?) {
        self.marks.append((notification.user, notification.id, status, reason, via))
    }

    /// Ends a notification, and tells upstream apps.
    mutating func end(
        _ notification: Notification,
        _ status: NotificationStatus,
        reason: String,
        via: String?,
        at: Timestamp
    ) {
        self.mark(notification, status, reason: reason, via: via)
        guard let kind = LifecycleEvent.Kind(ending: status) else { return }
        self.addEvent(kind, notification, at: at, channel: status == .sent ? .inApp : nil, reason: reason)
    }

    /// Ends a deferred notification with its mail, which may have ended before.
    ///
    /// - Parameter status: the status if the mail did not go out.
    mutating func leaveToMail(
        _ notification: Notification,
        reason: String,
        otherwise status: NotificationStatus = .failed
    ) {
        self.settlement.leftToMail.append((notification.user, notification.id, reason, status))
    }

    /// Adds an event for upstream apps.
    mutating func addEvent(
        _ kind: LifecycleEvent.Kind,
        _ notification: Notification,
        at: Timestamp,
        channel: DeliveryChannel? = nil,
        device: Device? = nil,
        reason: String? = nil
    ) {
        self.lifecycle.append(
            LifecycleEvent(kind, notification.label, at: at, channel: channel, device: device, reason: reason)
        )
    }

    mutating func note(_ notification: Notification, _ reason: Reason) {
        self.notes.append((notification.user, notification.id, reason.rawValue))
    }

    mutating func postpone(_ notification: Notification, _ kind: FollowUp, until: Timestamp, reason: Reason) {
        self.postponed.append(
            Postponement(notification: notification, kind: kind, due: until, reason: reason.rawValue))
    }

    /// Records that a follow-up's mail does not go out, which ends a notification that waited only
    /// for it.
    mutating func skipMail(_ notification: Notification, reason: String, hasFailed: Bool, at: Timestamp) {
        self.skip(notification, device: nil, reason: reason, at: at)
        self.settlement.secondary.append((notification.user, notification.id, reason, hasFailed))
        self.settlement.ended.append((notification.user, notification.id, .email, false))
    }

    /// - Parameter device: nil for e-mail.
    mutating func skip(_ notification: Notification, device: Device?, reason: String, at: Timestamp) {
        self.settlement.attempts.append(
            DeliveryStore.Attempt(
                at: at,
                user: notification.user,
                notification: notification.id,
                device: device?.id,
                provider: device?.provider ?? .email,
                kind: device == nil ? "email" : "push",
                attempt: 0,
                outcome: .skipped,
                reason: reason
            )
        )
    }
}
