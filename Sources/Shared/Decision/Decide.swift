// Carillon · Decide.swift
// SPDX-License-Identifier: Apache-2.0

import Model

/// How long sockets have to prove receipt before push goes out.
package let proofDeadline: Duration = .seconds(5)

/// Decides what to do next about one notification.
///
/// No I/O: the same facts give the same steps.
///
/// The order of the rules: expiry, type and opt-out, channels, then presence.
package func decide(_ facts: DecisionFacts) -> [Step] {
    switch facts.progress {
    case .arrived: [storing(facts)]
    case .stored: routing(facts)
    case .unproven: pushing(facts)
    }
}

private func storing(_ facts: DecisionFacts) -> Step {
    func refuse(_ reason: Reason) -> Step { .store(status: .suppressed, reason: reason, channels: []) }
    if isExpired(facts) { return .store(status: .expired, reason: .expired, channels: []) }
    guard facts.type.isEnabled else { return refuse(.typeDisabled) }
    var channels = facts.notification.channels.intersection(facts.type.channels)
    if facts.notification.delivery == .inApp { channels.remove(.push) }
    guard !channels.isEmpty else { return refuse(.noChannel) }
    guard !facts.type.isRequired else { return .store(status: .pending, reason: nil, channels: channels) }
    if facts.settings.isOptedOut { return refuse(.optedOut) }
    let wishes = [
        (Channels.inApp, facts.preference.inApp), (.push, facts.preference.push), (.email, facts.preference.email),
    ]
    for (channel, wish) in wishes where wish == false { channels.remove(channel) }
    // A type that is off by default reaches only those channels that the user switched on.
    if !facts.type.isOnByDefault {
        for (channel, wish) in wishes where wish == nil { channels.remove(channel) }
        if wishes.allSatisfy({ $0.1 == nil }) { return refuse(.notOptedIn) }
    }
    guard !channels.isEmpty else { return refuse(.optedOutOfType) }
    return .store(status: .pending, reason: nil, channels: channels)
}

private func routing(_ facts: DecisionFacts) -> [Step] {
    let channels = facts.notification.channels
    if isExpired(facts) { return [.settle(status: .expired, reason: .expired, via: nil)] }
    switch facts.presence {
    case .online where channels.contains(.inApp):
        return channels.contains(.push) ? [.publish, .awaitProof(within: proofDeadline)] : [.publish]
    case .online, .offline:
        return pushing(facts)
    case .unknown:
        // Fail open: a push too many is better than none.
        return channels.contains(.push) ? pushing(facts) : [.wait(.presenceUnknown)]
    }
}

private func pushing(_ facts: DecisionFacts) -> [Step] {
    let channels = facts.notification.channels
    if isExpired(facts) { return [.settle(status: .expired, reason: .expired, via: nil)] }
    if channels.contains(.push), facts.deviceCount > 0 { return [.push] }
    let reason = channels.contains(.push) ? Reason.noDevice : .offline
    return channels.contains(.inApp)
        ? [.settle(status: .sent, reason: reason, via: "inbox")]
        : [.settle(status: .failed, reason: reason, via: nil)]
}

private func isExpired(_ facts: DecisionFacts) -> Bool {
    facts.notification.expiresAt.map { $0 <= facts.now } ?? false
}
