// Carillon · Decide.swift
// SPDX-License-Identifier: Apache-2.0

/// How long sockets have to prove receipt before push goes out.
package let proofDeadline: Duration = .seconds(5)

/// By which way went what sockets were handed and none proved.
package let socketWay = "socket"

/// Decides what to do next about one notification.
///
/// No I/O: the same facts give the same steps.
///
/// The order of the rules: expiry, type and opt-out, channels, cap, presence, quiet hours.
package func decide(_ facts: DecisionFacts) -> [Step] {
    switch facts.progress {
    case .arrived: [storing(facts)]
    case .stored: routing(facts)
    case .unproven, .due(.release): pushing(facts)
    case .due(.attention): attending(facts)
    case .due(.email): isExpired(facts) ? [] : [.email]
    }
}

private func storing(_ facts: DecisionFacts) -> Step {
    func refuse(_ reason: Reason) -> Step { .store(status: .suppressed, reason: reason, channels: []) }
    if isExpired(facts) { return .store(status: .expired, reason: .expired, channels: []) }
    guard facts.type.isEnabled else { return refuse(.typeDisabled) }
    var channels = facts.notification.channels.intersection(facts.type.channels)
    if facts.notification.delivery == .inApp { channels.remove(.push) }
    guard !channels.isEmpty else { return refuse(.noChannel) }
    if !facts.type.isRequired {
        if facts.settings.isOptedOut { return refuse(.optedOut) }
        let wishes = [
            (Channels.inApp, facts.preference.inApp), (.push, facts.preference.push), (.email, facts.preference.email),
        ]
        for (channel, wish) in wishes where wish == false { channels.remove(channel) }
        // E-mail is what one asks for.
        if facts.preference.email == nil, !facts.type.isEmailOnByDefault { channels.remove(.email) }
        // A type that is off by default reaches only those channels that the user switched on.
        if !facts.type.isOnByDefault {
            for (channel, wish) in wishes where wish == nil { channels.remove(channel) }
            if wishes.allSatisfy({ $0.1 == nil }) { return refuse(.notOptedIn) }
        }
        guard !channels.isEmpty else { return refuse(.optedOutOfType) }
    }
    if facts.type.quietHours == .drop, channels.contains(.push), facts.quietEnd != nil { return refuse(.quietHours) }
    return .store(status: .pending, reason: nil, channels: channels)
}

private func routing(_ facts: DecisionFacts) -> [Step] {
    let channels = facts.notification.channels
    if isExpired(facts) { return [.settle(status: .expired, reason: .expired, via: nil)] }
    let mail = emailing(facts)
    guard case .online(let connections) = facts.presence, channels.contains(.inApp) else {
        // Fail open where presence is not known: a push too many is better than none.
        if facts.presence == .unknown, !channels.contains(.push) { return [.wait(.presenceUnknown)] }
        return pushing(facts) + mail
    }
    let quietEnd = facts.quietEnd
    let publish = Step.publish(isSilent: quietEnd != nil)
    guard channels.contains(.push) else {
        // A proof settles it with one write. Where none can come, or none came in all the time until it was found again, it is
        // settled here, as otherwise it would be handed on time and again.
        let isOver = facts.isRepeat || !facts.mayBeProven
        return [publish] + (isOver ? [onSockets(.unproven)] : []) + mail
    }
    // Settled at once: looked at again, it would be pushed as soon as the cap has room or quiet hours are over.
    if let reason = heldBack(facts, quietEnd: quietEnd) { return [publish, .note(reason), onSockets(reason)] + mail }
    var steps = [publish, .awaitProof(within: proofDeadline)]
    // Quiet hours let an idle user sleep; what no socket proves is released at their end.
    if quietEnd == nil, connections.allSatisfy({ $0.isIdle(at: facts.now) }) {
        steps.append(.postpone(.attention, until: facts.now + facts.type.attentionDelay, reason: .idle))
    }
    return steps + mail
}

/// What was handed to sockets and is waited for no more; a proof that comes all the same makes it delivered.
private func onSockets(_ reason: Reason) -> Step { .settle(status: .sent, reason: reason, via: socketWay) }

private func pushing(_ facts: DecisionFacts) -> [Step] {
    let channels = facts.notification.channels
    if isExpired(facts) { return [.settle(status: .expired, reason: .expired, via: nil)] }
    func rest(_ reason: Reason) -> [Step] {
        // E-mail, if it is on its way, settles what has no other channel.
        if channels.contains(.inApp) { return [.settle(status: .sent, reason: reason, via: "inbox")] }
        guard channels.contains(.email) else { return [.settle(status: .failed, reason: reason, via: nil)] }
        // Mail leaves a deferred one as it is, for its push.
        return facts.notification.status == .deferred ? [.settle(status: .sent, reason: reason, via: "email")] : []
    }
    guard channels.contains(.push) else { return rest(.offline) }
    let quietEnd = facts.quietEnd
    if let reason = heldBack(facts, quietEnd: quietEnd) { return [.note(reason)] + rest(reason) }
    guard facts.deviceCount > 0 else { return rest(.noDevice) }
    if let quietEnd {
        return [.postpone(.release, until: facts.release(after: quietEnd), reason: .quietHours)]
    }
    return [.push]
}

private func attending(_ facts: DecisionFacts) -> [Step] {
    if isExpired(facts) || facts.deviceCount == 0 { return [] }
    if let moment = facts.releaseAt { return [.postpone(.attention, until: moment, reason: .quietHours)] }
    return [.push]
}

/// E-mail goes out at once, or when it has been unread for as long as the type says; quiet hours are for what rings.
private func emailing(_ facts: DecisionFacts) -> [Step] {
    guard facts.notification.channels.contains(.email) else { return [] }
    guard let delay = facts.type.emailDelay else { return [.email] }
    return [.postpone(.email, until: facts.now + delay, reason: .unread)]
}

/// Why push is left out although the channel is there; nil if it is not.
private func heldBack(_ facts: DecisionFacts, quietEnd: Timestamp?) -> Reason? {
    if let cap = facts.cap, facts.notification.severity != .alert { return Reason(cap) }
    if quietEnd != nil, facts.type.quietHours == .inAppOnly || facts.type.quietHours == .drop { return .quietHours }
    return nil
}

private func isExpired(_ facts: DecisionFacts) -> Bool {
    facts.notification.expiresAt.map { $0 <= facts.now } ?? false
}
