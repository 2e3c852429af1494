// Carillon · SimulationAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The result of a simulation.
package struct SimulationAnswer: Sendable {
    package let user: String
    package let at: Timestamp
    package let zone: String?
    package let locale: String?
    /// In the user's locale.
    package let title: String
    package let body: String
    package let presence: Presence
    /// The user's active devices, reachable or not.
    package let devices: [SimulatedDevice]
    /// The cap that the user has reached.
    package let cap: CapScope?
    package let quietUntil: Timestamp?
    /// Each channel, whether it is used, and why.
    package let channels: [ChannelFate]
    /// The steps before the user's rules apply.
    package let holds: [SimulatedHold]
    package let steps: [Simulation.Event]

    /// The devices that a push reaches.
    var reached: [SimulatedDevice] { self.devices.filter(\.isReachable) }

    package static let shape = Shape<SimulationAnswer>(
        "SimulatedSteps",
        [
            "user_id": .value(.string) { $0.user },
            "at": .value(.time) { $0.at },
            "zone": .value(.string) { $0.zone },
            "locale": .value(.string) { $0.locale },
            "title": .value(.string, "In the user's locale.") { $0.title },
            "body": .value(.string) { $0.body },
            "devices": .value(.count, "Active devices.") { $0.devices.count },
            "reachable": .value(
                .count, "Active devices with a provider on a running dispatcher; all if no dispatcher reports."
            ) { $0.reached.count },
            "push_devices": .list(
                of: [
                    "id": .value(.uuid) { $0.device.id },
                    "platform": .value(.string) { $0.device.platform.rawValue },
                    "provider": .value(.string) { $0.device.provider.rawValue },
                    "app": .value(.string) { $0.device.app },
                    "name": .value(.string) { $0.device.name },
                    "reachable": .value(.bool) { $0.isReachable },
                ], max: 100
            ) { $0.devices },
            "cap": .value(
                .cases(of: CapScope.self),
                "The cap that the user has reached, or in quiet hours will have reached at their end."
            ) { $0.cap?.rawValue },
            "quiet_until": .value(.string) { $0.quietUntil },
            "channels": .list(
                of: [
                    "channel": .value(.channel) { $0.channel.rawValue },
                    "used": .value(.bool) { $0.isUsed },
                    "reason": .value(.string) { $0.reason },
                    "text": .value(.string, "The reason in words.") { ReasonText.of($0) },
                    "at": .value(.time) { $0.at },
                ], max: 3, "Whether each channel is used, and why."
            ) { $0.channels },
            "steps": .written(.list(of: Self.stepSchema, max: 100)) { $0.writeSteps(to: &$1) },
        ])

    private static let stepSchema = Schema.object([
        "at": .time,
        "step": .choice(
            "schedule", "gather", "replace", "store", "publish", "publish_silently", "await_proof", "push",
            "email", "postpone", "hold_back", "settle", "wait"),
        "status?": .string.orNull,
        "reason?": .string.orNull,
        "channels?": .string.orNull,
        "within?": .string.orNull,
        "what?": .string.orNull,
        "until?": .string.orNull,
        "via?": .string.orNull,
        "devices?": .string,
    ])

    private func writeSteps(to writer: inout JSONWriter) {
        writer.beginArray()
        for hold in self.holds { Self.write(hold.at, hold.kind.rawValue, hold.members, to: &writer) }
        for event in self.steps {
            Self.write(event.at, StepDescription(event.step).word, self.members(event), to: &writer)
        }
        writer.endArray()
    }

    /// Returns the details of a step by name; a push lists its devices.
    package func members(_ event: Simulation.Event) -> [(name: String, value: String?)] {
        var members = StepDescription(event.step).members
        guard event.step == .push else { return members }
        members.append(("devices", self.reached.map(\.label).joined(separator: ", ")))
        return members
    }

    private static func write(
        _ moment: Timestamp,
        _ word: String,
        _ members: [(name: String, value: String?)],
        to writer: inout JSONWriter
    ) {
        writer.beginObject()
        writer.member("at", moment.rfc3339)
        writer.member("step", word)
        for (name, value) in members {
            writer.key(escaping: name)
            writer.string(value)
        }
        writer.endObject()
    }
}

/// A device that a push would go to.
package struct SimulatedDevice: Sendable {
    let device: Device
    /// Whether a dispatcher serves its provider for its app; true if no dispatcher reports.
    package let isReachable: Bool

    /// The device's label for people.
    package var label: String {
        let name = self.device.name.map { " (\($0))" } ?? ""
        return "\(self.device.provider.rawValue) \(self.device.id)\(name)"
    }
}

/// A step before the user's rules apply.
package struct SimulatedHold: Sendable, Equatable {
    /// The effect of a step.
    package enum Kind: String, Sendable, CaseIterable {
        /// It waits until it is due.
        case schedule
        /// A digest collects it.
        case gather
        /// It replaces older notifications with its collapse key.
        case replace
    }

    package let kind: Kind
    package let at: Timestamp
    /// The end of the wait; nil for none.
    package let until: Timestamp?
    /// `deliver_at`, `deliver_local`, or the key of the digest or collapse.
    package let what: String

    /// Details by name.
    package var members: [(name: String, value: String?)] { [("what", self.what), ("until", self.until?.rfc3339)] }
}

/// A decision step in words, for JSON and for people.
package struct StepDescription: Sendable {
    /// The name of the step.
    package let word: String
    /// Details by name.
    let members: [(name: String, value: String?)]

    package init(_ step: Step) {
        switch step {
        case .store(let stored):
            let names = DeliveryChannel.allCases.filter { stored.channels.contains(Channels($0)) }.map(\.rawValue)
            self.word = "store"
            self.members = [
                ("status", stored.status.rawValue), ("reason", stored.reason?.rawValue),
                ("channels", names.joined(separator: ",")),
            ]
        case .publish(let isSilent):
            self.word = isSilent ? "publish_silently" : "publish"
            self.members = []
        case .awaitProof(let deadline):
            self.word = "await_proof"
            self.members = [("within", "\(deadline.components.seconds)s")]
        case .push:
            self.word = "push"
            self.members = []
        case .email:
            self.word = "email"
            self.members = []
        case .skipUnserved:
            self.word = "skip_unserved"
            self.members = []
        case .skipEmail(let reason, _):
            self.word = "skip_email"
            self.members = [("reason", reason.rawValue)]
        case .postpone(let kind, let until, let reason, _):
            self.word = "postpone"
            self.members = [("what", kind.rawValue), ("until", until.rfc3339), ("reason", reason.rawValue)]
        case .note(let reason):
            self.word = "hold_back"
            self.members = [("reason", reason.rawValue)]
        case .settle(let status, let reason, let via):
            self.word = "settle"
            self.members = [("status", status.rawValue), ("reason", reason.rawValue), ("via", via?.rawValue)]
        case .settleWithMail(let reason):
            self.word = "settle"
            self.members = [("status", "sent"), ("reason", reason.rawValue), ("via", "email")]
        case .wait(let reason):
            self.word = "wait"
            self.members = [("reason", reason.rawValue)]
        }
    }
}
