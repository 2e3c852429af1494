// Carillon · ChannelFate.swift
// SPDX-License-Identifier: Apache-2.0

/// Whether a channel is used for a notification, and why, or why not.
package struct ChannelFate: Sendable, Equatable {
    package let channel: DeliveryChannel
    package let isUsed: Bool
    /// A word of its own or that of the step that decided it.
    package let reason: String
    /// When it is, or would be, used.
    package let at: Timestamp?

    package init(_ channel: DeliveryChannel, isUsed: Bool, reason: String, at: Timestamp? = nil) {
        self.channel = channel
        self.isUsed = isUsed
        self.reason = reason
        self.at = at
    }
}

extension Simulation {
    /// What becomes of each channel, by the facts of the notification's arrival and the steps that ``run()`` gave.
    package func fates(_ events: [Event]) -> [ChannelFate] {
        DeliveryChannel.allCases.map { channel in
            if let reason = self.arrival.exclusion(of: channel) {
                return ChannelFate(channel, isUsed: false, reason: reason.rawValue)
            }
            if let refusal = events.first.flatMap({ Self.refusal($0.step) }) {
                return ChannelFate(channel, isUsed: false, reason: refusal)
            }
            switch channel {
            case .inApp: return Self.inApp(events)
            case .push: return Self.push(events)
            case .email: return Self.email(events)
            }
        }
    }

    private static func refusal(_ step: Step) -> String? {
        guard case .store(let status, let reason, _) = step, status != .pending else { return nil }
        return reason?.rawValue ?? status.rawValue
    }

    private static func inApp(_ events: [Event]) -> ChannelFate {
        for event in events {
            guard case .publish(let isSilent) = event.step else { continue }
            return ChannelFate(.inApp, isUsed: true, reason: isSilent ? "online_silently" : "online", at: event.at)
        }
        return ChannelFate(.inApp, isUsed: true, reason: "waits_in_inbox")
    }

    private static func push(_ events: [Event]) -> ChannelFate {
        var fate: ChannelFate?
        var postponed: String?
        for event in events {
            switch event.step {
            case .push: return ChannelFate(.push, isUsed: true, reason: postponed ?? "due", at: event.at)
            case .awaitProof: fate = fate ?? ChannelFate(.push, isUsed: false, reason: "proven_by_socket")
            case .note(let reason), .wait(let reason), .settle(_, let reason, _):
                fate = ChannelFate(.push, isUsed: false, reason: reason.rawValue)
            case .postpone(.email, _, _), .publish, .email, .store: break
            case .postpone(_, _, let reason): postponed = reason.rawValue
            }
        }
        return fate ?? ChannelFate(.push, isUsed: false, reason: postponed ?? "not_needed")
    }

    private static func email(_ events: [Event]) -> ChannelFate {
        var postponed: String?
        for event in events {
            switch event.step {
            case .email: return ChannelFate(.email, isUsed: true, reason: postponed ?? "due", at: event.at)
            case .postpone(.email, _, let reason): postponed = reason.rawValue
            default: break
            }
        }
        return ChannelFate(.email, isUsed: false, reason: postponed ?? "not_needed")
    }
}

/// Why a channel is out of the question before anything else is asked.
package enum Exclusion: String, Sendable, CaseIterable {
    case notOfType = "not_of_type"
    case notOfJob = "not_of_job"
    case deliveryInApp = "delivery_in_app"
    case refused
    case notAskedFor = "not_asked_for"
}

extension DecisionFacts {
    /// Why a channel is left out when the notification is stored; nil if it is not, or if the whole notification is refused.
    ///
    /// The same rules as ``decide(_:)`` goes by, said of one channel.
    package func exclusion(of channel: DeliveryChannel) -> Exclusion? {
        let one = Channels(channel)
        guard self.type.channels.contains(one) else { return .notOfType }
        guard self.notification.channels.contains(one) else { return .notOfJob }
        if channel == .push, self.notification.delivery == .inApp { return .deliveryInApp }
        guard !self.type.isRequired else { return nil }
        let wish: Bool? =
            switch channel {
            case .inApp: self.preference.inApp
            case .push: self.preference.push
            case .email: self.preference.email
            }
        if wish == false { return .refused }
        if wish == nil, channel == .email, !self.type.isEmailOnByDefault { return .notAskedFor }
        return wish == nil && !self.type.isOnByDefault ? .notAskedFor : nil
    }
}
