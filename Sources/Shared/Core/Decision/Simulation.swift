// Carillon · Simulation.swift
// SPDX-License-Identifier: Apache-2.0

/// A dry run of the decision rules for one notification, from its arrival on.
package struct Simulation: Sendable {
    /// A step and its moment.
    package struct Event: Sendable, Equatable {
        package let at: Timestamp
        package let step: Step
    }

    /// The most events; ends a run that postpones the notification again and again.
    private static let mostEvents = 64

    private let facts: DecisionFacts
    private let isProven: Bool

    /// - Parameters:
    ///   - facts: the facts at the notification's arrival; their progress is ignored.
    ///   - isProven: whether the sockets that can prove receipt do so.
    package init(_ facts: DecisionFacts, isProven: Bool) {
        self.facts = facts
        self.isProven = isProven
    }

    /// Returns the steps in order of time, assuming that the notification stays unread.
    package func run() -> [Event] {
        var facts = self.facts
        let stored = storing(facts)
        var events = [Event(at: facts.now, step: .store(stored))]
        guard stored.status == .pending else { return events }
        facts.notification.channels = stored.channels
        var isPushed = false
        var later: [(at: Timestamp, progress: DecisionFacts.Progress)] = [(facts.now, .stored)]
        while let next = later.min(by: { $0.at < $1.at }), events.count < Self.mostEvents {
            later.removeAll { $0.at == next.at && $0.progress == next.progress }
            // A user who got the push gets no second one (same rule as ``gate(_:now:)``).
            if isPushed, next.progress == .due(.attention) || next.progress == .unproven { continue }
            facts.now = next.at
            facts.progress = next.progress
            for step in decide(facts) {
                switch step {
                // The fates of the channels say why.
                case .skipEmail, .skipUnserved: continue
                default: break
                }
                events.append(Event(at: facts.now, step: step))
                switch step {
                case .awaitProof(let deadline) where !(self.isProven && facts.mayBeProven):
                    later.append((facts.now + deadline, .unproven))
                case .push: isPushed = true
                case .postpone(let kind, let until, _, _): later.append((until, .due(kind)))
                default: break
                }
            }
        }
        return events
    }

    /// Returns what happens on each channel, by the steps of ``run()``.
    package func fates(_ events: [Event]) -> [ChannelFate] {
        DeliveryChannel.allCases.map { channel in
            if let reason = self.facts.exclusion(of: channel) {
                return ChannelFate(channel, isUsed: false, reason: reason.rawValue)
            }
            if let refusal = events.first.flatMap({ Self.refusal($0.step) }) {
                return ChannelFate(channel, isUsed: false, reason: refusal)
            }
            switch channel {
            case .inApp: return Self.inApp(events)
            case .push: return self.push(events)
            case .email:
                let obstacle = self.facts.mailObstacle
                return obstacle.map { ChannelFate(.email, isUsed: false, reason: $0.rawValue) } ?? Self.email(events)
            }
        }
    }

    private static func refusal(_ step: Step) -> String? {
        guard case .store(let stored) = step, stored.status != .pending else { return nil }
        return stored.reason?.rawValue ?? stored.status.rawValue
    }

    private static func inApp(_ events: [Event]) -> ChannelFate {
        for event in events {
            guard case .publish(let isSilent) = event.step else { continue }
            return ChannelFate(.inApp, isUsed: true, reason: isSilent ? "online_silently" : "online", at: event.at)
        }
        return ChannelFate(.inApp, isUsed: true, reason: "waits_in_inbox")
    }

    private func push(_ events: [Event]) -> ChannelFate {
        var fate: ChannelFate?
        var postponed: String?
        for event in events {
            switch event.step {
            case .push: return ChannelFate(.push, isUsed: true, reason: postponed ?? "due", at: event.at)
            case .awaitProof:
                let reason = self.facts.deviceCount > 0 ? "proven_by_socket" : Reason.noDevice.rawValue
                fate = fate ?? ChannelFate(.push, isUsed: false, reason: reason)
            case .note(let reason), .wait(let reason), .settle(_, let reason, _), .settleWithMail(let reason):
                fate = ChannelFate(.push, isUsed: false, reason: reason.rawValue)
            case .postpone(.email, _, _, _), .publish, .email, .skipEmail, .skipUnserved, .store: break
            case .postpone(_, _, let reason, _): postponed = reason.rawValue
            }
        }
        // Only a user without a device gets no step for push.
        return fate ?? ChannelFate(.push, isUsed: false, reason: postponed ?? Reason.noDevice.rawValue)
    }

    private static func email(_ events: [Event]) -> ChannelFate {
        var postponed: String?
        for event in events {
            switch event.step {
            case .email: return ChannelFate(.email, isUsed: true, reason: postponed ?? "due", at: event.at)
            case .postpone(.email, _, let reason, _): postponed = reason.rawValue
            default: break
            }
        }
        // Mail that can go out is dropped only if the notification expires first.
        return ChannelFate(.email, isUsed: false, reason: postponed == nil ? "not_needed" : Reason.expired.rawValue)
    }
}

/// Whether a channel is used for a notification, and why, or why not.
package struct ChannelFate: Sendable, Equatable {
    package let channel: DeliveryChannel
    package let isUsed: Bool
    /// An ``Exclusion``, a ``Reason``, or one of the simulation's own, such as `due`.
    package let reason: String
    /// When it is used.
    package let at: Timestamp?

    package init(_ channel: DeliveryChannel, isUsed: Bool, reason: String, at: Timestamp? = nil) {
        self.channel = channel
        self.isUsed = isUsed
        self.reason = reason
        self.at = at
    }
}
