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

    /// Notifications that await proof, and how long sockets have for it after the frames go out.
    private(set) var awaited: [(AwaitedProof, within: Duration)] = []
    private(set) var deliveries: [Delivery] = []
    private(set) var marks: [NotificationStore.Mark] = []
    /// Marks to write before anything is sent, because the sender may postpone again at once.
    private(set) var releases: [NotificationStore.Mark] = []
    private(set) var notes: [(key: NotificationKey, decision: String)] = []
    private(set) var postponed: [Postponement] = []
    /// Notifications whose postponement the audit and the events already have.
    private(set) var recorded: Set<NotificationID> = []
    /// Queued mail, which no notification status shows.
    private(set) var remembered: [FollowUpStore.Item] = []
    /// Skipped sends, and notifications that only their mail can end.
    private(set) var settlement = DeliveryStore.Settlement()
    private(set) var lifecycle: [LifecycleEvent] = []
    private(set) var messages: NodeMessages

    init(for dispatcher: Dispatcher) {
        self.messages = NodeMessages(dispatcher.keys)
    }

    // MARK: Steps

    /// Adds the steps of one notification.
    mutating func add(_ steps: [Step], _ item: RoutedNotification, _ facts: DecisionFacts, _ devices: UserDevices) {
        let notification = item.notification
        for step in steps {
            switch step {
            case .publish(let isSilent):
                self.publish(
                    notification, unread: item.unread, code: facts.type.code, isSilent: isSilent, now: facts.now,
                    to: facts.presence)
            case .awaitProof(let time): self.awaitProof(notification, within: time)
            case .push:
                self.push(item, to: devices.served)
                self.skipUnserved(notification, devices.unserved, at: facts.now)
            case .skipUnserved: self.skipUnserved(notification, devices.unserved, at: facts.now)
            case .email(let isOnlyChannel): self.mail(item, isOnlyChannel: isOnlyChannel)
            case .skipEmail(let reason, let isOnlyChannel):
                self.failMail(item, reason: reason.rawValue, isOnlyChannel: isOnlyChannel, at: facts.now)
            case .postpone(let kind, let until, let reason, let isOnlyChannel):
                self.postpone(notification, kind, until: until, reason: reason, at: facts.now)
                // Gives the notification an owner, so that the sweeper leaves it alone.
                if isOnlyChannel { self.mark(notification, .pending, reason: reason.rawValue, via: nil) }
            case .note(let reason): self.notes.append((notification.key, reason.rawValue))
            case .settleWithMail(let reason): self.leaveToMail(notification, reason: reason.rawValue)
            case .settle(let status, let reason, let via):
                self.end(notification, status, reason: reason.rawValue, via: via, at: facts.now)
            case .wait, .store: break
            }
        }
    }

    /// Adds the end of a follow-up that the gate refuses.
    mutating func add(_ refusal: GateRefusal, of kind: FollowUp, _ notification: Notification, at now: Timestamp) {
        let reason = refusal.rawValue
        switch kind.refused(refusal, notification) {
        case .ignore: break
        case .skipMail: self.skipMail(notification, reason: reason, hasFailed: false, at: now)
        case .settle(let status):
            self.end(notification, status, reason: reason, via: status == .sent ? .inbox : nil, at: now)
        case .settleWithMail(let status): self.leaveToMail(notification, reason: reason, otherwise: status)
        }
    }

    private mutating func push(_ item: RoutedNotification, to devices: [Device]) {
        let notification = item.notification
        let callsForAttention = item.progress == .due(.attention)
        for device in devices {
            self.deliver(
                notification, to: device.id, via: device.provider, isRepeat: item.isRepeat,
                callsForAttention: callsForAttention, mayWait: item.mayWait)
        }
        if callsForAttention { return }
        if notification.status == .deferred {
            // Its follow-up stays until the push is in its stream.
            self.releases.append((notification.key, .pending, RecordedReason.queued.rawValue, nil))
        } else {
            self.markQueued(notification)
        }
    }

    private mutating func mail(_ item: RoutedNotification, isOnlyChannel: Bool) {
        let notification = item.notification
        self.deliver(
            notification, to: Device.emailAddress, via: .email, isRepeat: item.isRepeat, mayWait: item.mayWait)
        // Delayed mail keeps the reason why no push goes out: a repair would push what is `queued`.
        if isOnlyChannel, item.progress == .stored || !notification.channels.contains(.push) {
            self.markQueued(notification)
        }
        if item.progress == .stored {
            self.remembered.append(
                FollowUpStore.Item(user: notification.user, notification: notification.id, kind: .email))
        }
    }

    /// Records why no mail can go out, and fails a notification that has no other channel.
    private mutating func failMail(
        _ item: RoutedNotification,
        reason: String,
        isOnlyChannel: Bool,
        at now: Timestamp
    ) {
        let notification = item.notification
        if item.progress == .due(.email), !isOnlyChannel {
            self.skipMail(notification, reason: reason, hasFailed: true, at: now)
        } else {
            self.skip(notification, device: nil, reason: reason, at: now)
        }
        guard isOnlyChannel else { return }
        self.mark(notification, .failed, reason: reason, via: nil)
        self.addEvent(.failed, notification, at: now, channel: .email, reason: reason)
    }

    /// Records that no provider serves the devices.
    private mutating func skipUnserved(_ notification: Notification, _ devices: [Device], at now: Timestamp) {
        let reason = RecordedReason.noProvider.rawValue
        // A row for each device: a notification stays open while a device has none.
        for device in devices { self.skip(notification, device: device, reason: reason, at: now) }
        // One event for all: users may invent the apps of a hundred devices.
        guard let device = devices.first else { return }
        self.addEvent(.failed, notification, at: now, channel: .push, device: device, reason: reason)
    }

    // MARK: Actions

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
        // Once it was read or deleted, its row has the version of that change, which sockets have.
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

    private mutating func awaitProof(_ notification: Notification, within time: Duration) {
        let waiting = AwaitedProof(id: notification.id, user: notification.user, lane: notification.lane)
        self.awaited.append((waiting, time))
    }

    /// Returns the deadlines of proofs if the frames go out now.
    func deadlines(at now: Timestamp) -> [(AwaitedProof, deadline: Timestamp)] {
        self.awaited.map { ($0.0, deadline: now + $0.within) }
    }

    mutating func deliver(
        _ notification: Notification,
        to device: DeviceID,
        via provider: Provider,
        isRepeat: Bool,
        callsForAttention: Bool = false,
        mayWait: Bool = false
    ) {
        let work = DeliveryWork(
            notification: notification.id,
            device: device,
            user: notification.user,
            attempt: 0,
            isRepeat: isRepeat,
            callsForAttention: callsForAttention
        )
        self.deliveries.append(
            Delivery(provider: provider, lane: notification.lane, work: work, mayWait: mayWait))
    }

    /// Marks a notification whose delivery goes into its provider's stream.
    mutating func markQueued(_ notification: Notification) {
        self.mark(notification, .pending, reason: RecordedReason.queued.rawValue, via: nil)
    }

    private mutating func mark(
        _ notification: Notification,
        _ status: NotificationStatus,
        reason: String?,
        via: SentVia?
    ) {
        self.marks.append((notification.key, status, reason, via?.rawValue))
    }

    /// Ends a notification, and adds the event for upstream apps.
    mutating func end(
        _ notification: Notification,
        _ status: NotificationStatus,
        reason: String,
        via: SentVia?,
        at: Timestamp
    ) {
        self.mark(notification, status, reason: reason, via: via)
        guard let kind = LifecycleEvent.Kind(ending: status) else { return }
        self.addEvent(kind, notification, at: at, channel: status == .sent ? .inApp : nil, reason: reason)
    }

    /// Ends a notification that is not pushed after all with its mail, which may have ended before.
    ///
    /// - Parameter status: the status if the mail did not go out.
    private mutating func leaveToMail(
        _ notification: Notification,
        reason: String,
        otherwise status: NotificationStatus = .failed
    ) {
        self.settlement.leftToMail.append((notification.key, reason, status))
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

    private mutating func postpone(
        _ notification: Notification,
        _ kind: FollowUp,
        until: Timestamp,
        reason: Reason,
        at: Timestamp
    ) {
        self.postponed.append(
            Postponement(notification: notification, kind: kind, due: until, reason: reason.rawValue))
        if kind == .release {
            self.addEvent(.deferred, notification, at: at, channel: .push, reason: reason.rawValue)
        }
    }

    /// Leaves out of the audit and the events the postponements that both already have.
    mutating func omitRecorded(_ ids: Set<NotificationID>) {
        self.recorded = ids
        self.lifecycle.removeAll { $0.kind == .deferred && ids.contains($0.label.id) }
    }

    /// Records that a follow-up's mail does not go out.
    ///
    /// This ends a notification that waited only for its mail.
    private mutating func skipMail(_ notification: Notification, reason: String, hasFailed: Bool, at: Timestamp) {
        self.skip(notification, device: nil, reason: reason, at: at)
        self.settlement.unsentSecondary.append((notification.key, reason, hasFailed))
        self.settlement.finishedFollowUps.append((notification.key, .email, false))
    }

    /// - Parameter device: nil for e-mail.
    private mutating func skip(_ notification: Notification, device: Device?, reason: String, at: Timestamp) {
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
