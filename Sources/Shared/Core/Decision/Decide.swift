// Carillon · Decide.swift
// SPDX-License-Identifier: Apache-2.0

/// How long a socket has to prove receipt before the push goes out.
let proofDeadline: Duration = .seconds(5)

/// One thing to do about a notification.
///
/// With `isOnlyChannel`, no other channel has the notification or will get it, so it ends with its
/// mail.
package enum Step: Sendable, Equatable {
    case store(Storing)
    /// Send it to the user's sockets; if silent, clients do not alert the user.
    case publish(isSilent: Bool)
    /// Fall back to push unless a socket proves receipt in time.
    case awaitProof(within: Duration)
    /// Send it to every active device; record the devices that no provider serves.
    case push
    /// Record the devices that no provider serves.
    case skipUnserved
    /// Send it to the user's e-mail address.
    case email(isOnlyChannel: Bool)
    /// Record why no e-mail can go out.
    case skipEmail(reason: RecordedReason, isOnlyChannel: Bool)
    /// Decide again at a later moment.
    case postpone(FollowUp, until: Timestamp, reason: Reason, isOnlyChannel: Bool = false)
    /// Record why less is done than was asked for.
    case note(Reason)
    /// Record the final status.
    case settle(status: NotificationStatus, reason: Reason, via: SentVia?)
    /// Record why a notification is not pushed after all; the status follows from its mail.
    case settleWithMail(reason: Reason)
    /// Do nothing now; the sweeper picks it up again.
    case wait(Reason)
}

/// How a notification is stored.
package struct Storing: Sendable, Equatable {
    package let status: NotificationStatus
    package let reason: Reason?
    package let channels: Channels
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
    /// Handed to sockets that cannot prove receipt, or did not.
    case unproven
    /// Its type is pushed to connected users too.
    case pushWhenOnline = "push_when_online"

    init(_ scope: CapScope) {
        switch scope {
        case .user: self = .cappedByUser
        case .type: self = .cappedByType
        case .category: self = .cappedByCategory
        }
    }
}

/// Other reasons that are recorded with a notification or an attempt, besides ``Reason`` and
/// ``GateRefusal``; the raw value is stored and shown.
///
/// The first three are also a part of the state, on which statements depend: see
/// `NotificationState`.
package enum RecordedReason: String, Sendable, CaseIterable {
    /// Its delivery is in a provider's stream.
    case queued
    /// It was cancelled while a provider may have had it.
    case inFlight = "in_flight"
    case cancelledTooLate = "cancelled_too_late"
    /// Its user opened it first.
    case opened
    /// A digest holds it.
    case digest
    /// A summary stands for it.
    case summarised
    case noProvider = "no_provider"
    case noAddress = "no_address"
    case dispatchersDied = "dispatchers_died"
    /// An open circuit breaker holds its delivery back.
    case outOfUse = "out_of_use"
    /// A rate limit holds its delivery back.
    case rate
    /// Its delivery waited too long in the dispatcher's own queue, and is tried again.
    case noTurn = "no_turn"
}

/// Decides what to do next about one notification: the same facts give the same steps.
///
/// The rules apply in this order. To store it: expiry, disabled type, channels, opt-out and
/// preferences, quiet hours that drop. Once stored: expiry, presence, cap or quiet hours that hold
/// it back, devices, quiet hours that defer.
package func decide(_ facts: DecisionFacts) -> [Step] {
    switch facts.progress {
    case .arrived: [.store(storing(facts))]
    case .stored: routing(facts)
    case .unproven, .due(.release): pushing(facts)
    case .due(.attention): attending(facts)
    case .due(.email): isExpired(facts) ? [] : [mailing(facts, isOnlyChannel: facts.isLeftToMail)]
    }
}

// MARK: Storing

/// Why a channel is ruled out, regardless of presence, devices and time.
enum Exclusion: String, Sendable, CaseIterable {
    case notOfType = "not_of_type"
    case notOfJob = "not_of_job"
    case deliveryInApp = "delivery_in_app"
    case refused
    case notAskedFor = "not_asked_for"

    /// Whether the user's preference excludes it, rather than the type or the job.
    fileprivate var isPreference: Bool { self == .refused || self == .notAskedFor }
}

extension DecisionFacts {
    /// Why a channel is left out when the notification is stored; nil if it is used.
    func exclusion(of channel: DeliveryChannel) -> Exclusion? {
        let one = Channels(channel)
        guard self.type.channels.contains(one) else { return .notOfType }
        guard self.notification.channels.contains(one) else { return .notOfJob }
        if channel == .push, self.notification.delivery == .inApp { return .deliveryInApp }
        guard !self.type.isRequired else { return nil }
        let preference = self.preference(for: channel)
        if preference == false { return .refused }
        // E-mail is opt-in, unless the type is on by default for e-mail.
        if preference == nil, channel == .email, !self.type.isEmailOnByDefault { return .notAskedFor }
        return preference == nil && !self.type.isOnByDefault ? .notAskedFor : nil
    }

    private func preference(for channel: DeliveryChannel) -> Bool? {
        switch channel {
        case .inApp: self.preference.inApp
        case .push: self.preference.push
        case .email: self.preference.email
        }
    }

    /// Whether the user has set none of the type's channels.
    fileprivate var hasNoPreference: Bool {
        DeliveryChannel.allCases.allSatisfy {
            !self.type.channels.contains(Channels($0)) || self.preference(for: $0) == nil
        }
    }
}

extension NotificationType {
    /// The channels that a job of this type may use if no preference excludes them; see
    /// ``DecisionFacts/exclusion(of:)``.
    package func channels(of content: JobContent) -> Channels {
        let channels = self.channels.intersection(content.channels ?? .all)
        return (content.delivery ?? self.delivery) == .inApp ? channels.subtracting(.push) : channels
    }
}

/// Decides how to store a notification that has arrived.
package func storing(_ facts: DecisionFacts) -> Storing {
    func refuse(_ reason: Reason) -> Storing { Storing(status: .suppressed, reason: reason, channels: []) }
    if isExpired(facts) { return Storing(status: .expired, reason: .expired, channels: []) }
    guard facts.type.isEnabled else { return refuse(.typeDisabled) }
    var channels: Channels = []
    var isPreferenceOnly = false
    for channel in DeliveryChannel.allCases {
        switch facts.exclusion(of: channel) {
        case nil: channels.insert(Channels(channel))
        case .some(let exclusion): isPreferenceOnly = isPreferenceOnly || exclusion.isPreference
        }
    }
    guard !channels.isEmpty || isPreferenceOnly else { return refuse(.noChannel) }
    if facts.settings.isOptedOut, !facts.type.isRequired { return refuse(.optedOut) }
    guard !channels.isEmpty else {
        return refuse(!facts.type.isOnByDefault && facts.hasNoPreference ? .notOptedIn : .optedOutOfType)
    }
    if facts.type.quietHours == .drop, channels.contains(.push), facts.quietEnd != nil { return refuse(.quietHours) }
    return Storing(status: .pending, reason: nil, channels: channels)
}

// MARK: Routing

private func routing(_ facts: DecisionFacts) -> [Step] {
    let channels = facts.notification.channels
    if isExpired(facts) { return [.settle(status: .expired, reason: .expired, via: nil)] }
    guard case .online(let connections) = facts.presence, channels.contains(.inApp) else {
        // With unknown presence, push: a duplicate is better than a miss.
        if facts.presence == .unknown, !channels.contains(.push) { return [.wait(.presenceUnknown)] }
        return pushing(facts)
    }
    let quietEnd = facts.quietEnd
    let publish = Step.publish(isSilent: quietEnd != nil)
    guard channels.contains(.push) else {
        // Usually a proof settles it, with one write. Settle it here if no proof can come, as the
        // sweeper would retry it forever, or if it has mail, as the sweeper would repeat the mail.
        let isOver = facts.isRepeat || !facts.mayBeProven || channels.contains(.email)
        return emailing(facts, after: isOver ? [publish, onSockets(.unproven)] : [publish])
    }
    // Settle now: deciding again later would push it once the cap has room or quiet hours end.
    if let reason = heldBack(facts, quietEnd: quietEnd) {
        return emailing(facts, after: [publish, .note(reason), onSockets(reason)])
    }
    var steps = [publish, .awaitProof(within: proofDeadline)]
    // Quiet hours leave an idle user alone, and release an unproven notification when they end.
    let isIdle = connections.allSatisfy { $0.isIdle(at: facts.now) }
    if quietEnd == nil, isIdle || facts.type.isPushedWhenOnline {
        let reason = isIdle ? Reason.idle : .pushWhenOnline
        steps.append(.postpone(.attention, until: facts.now + facts.type.attentionDelay, reason: reason))
    }
    return emailing(facts, after: steps)
}

/// Settles a notification that went to sockets; a late proof still makes it delivered.
private func onSockets(_ reason: Reason) -> Step { .settle(status: .sent, reason: reason, via: .socket) }

private func pushing(_ facts: DecisionFacts) -> [Step] {
    if isExpired(facts) { return [.settle(status: .expired, reason: .expired, via: nil)] }
    guard facts.notification.channels.contains(.push) else { return resting(facts, .offline) }
    let quietEnd = facts.quietEnd
    if let reason = heldBack(facts, quietEnd: quietEnd) { return [.note(reason)] + resting(facts, reason) }
    guard facts.deviceCount > 0 else {
        let steps = resting(facts, .noDevice)
        return facts.hasUnservedDevice ? steps + [.skipUnserved] : steps
    }
    if let quietEnd {
        let moment = facts.release(after: quietEnd)
        return emailing(facts, after: [.postpone(.release, until: moment, reason: .quietHours)])
    }
    return emailing(facts, after: [.push])
}

/// Leaves a notification that is not pushed in the inbox, else to its mail, else fails it.
private func resting(_ facts: DecisionFacts, _ reason: Reason) -> [Step] {
    let channels = facts.notification.channels
    if channels.contains(.inApp) {
        return emailing(facts, after: [.settle(status: .sent, reason: reason, via: .inbox)])
    }
    guard channels.contains(.email) else { return [.settle(status: .failed, reason: reason, via: nil)] }
    // Later, its mail is on its way, waits or has ended.
    guard facts.progress == .stored else { return [.settleWithMail(reason: reason)] }
    return emailing(facts, after: [], isOnlyChannel: true)
}

private func attending(_ facts: DecisionFacts) -> [Step] {
    if isExpired(facts) || facts.deviceCount == 0 { return [] }
    if facts.type.quietHours.isFinal, facts.quietEnd != nil { return [] }
    if let moment = facts.releaseAt { return [.postpone(.attention, until: moment, reason: .quietHours)] }
    return [.push]
}

/// Adds the e-mail of a notification that was just stored.
///
/// It goes out at once, or after the type's delay if still unread; quiet hours do not apply.
private func emailing(_ facts: DecisionFacts, after steps: [Step], isOnlyChannel: Bool = false) -> [Step] {
    guard facts.progress == .stored, facts.notification.channels.contains(.email) else { return steps }
    guard let delay = facts.type.emailDelay else { return steps + [mailing(facts, isOnlyChannel: isOnlyChannel)] }
    let moment = facts.now + delay
    return steps + [.postpone(.email, until: moment, reason: .unread, isOnlyChannel: isOnlyChannel)]
}

private func mailing(_ facts: DecisionFacts, isOnlyChannel: Bool) -> Step {
    guard let obstacle = facts.mailObstacle else { return .email(isOnlyChannel: isOnlyChannel) }
    return .skipEmail(reason: obstacle, isOnlyChannel: isOnlyChannel)
}

extension DecisionFacts {
    /// Whether a notification whose mail is due has no other channel, not even a push that waits
    /// for its provider.
    fileprivate var isLeftToMail: Bool {
        let notification = self.notification
        guard notification.status == .pending, !notification.channels.contains(.inApp) else { return false }
        return !(notification.isQueued && notification.channels.contains(.push))
    }
}

/// Why the push channel is not used now; nil if it is.
private func heldBack(_ facts: DecisionFacts, quietEnd: Timestamp?) -> Reason? {
    // Quiet hours prevent interruptions anyway; the release after them checks the cap.
    if quietEnd != nil { return facts.type.quietHours.isFinal ? .quietHours : nil }
    guard let cap = facts.cap, facts.notification.severity != .alert else { return nil }
    return Reason(cap)
}

/// Whether it has expired, or its `keep_until` has passed.
private func isExpired(_ facts: DecisionFacts) -> Bool { facts.isExpired(at: facts.now) }
