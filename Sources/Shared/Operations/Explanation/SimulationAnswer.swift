// Carillon · SimulationAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a simulation found.
package struct SimulationAnswer: Sendable {
    package let user: String
    package let at: Timestamp
    package let zone: String?
    package let locale: String?
    /// In the user's locale.
    package let title: String
    package let body: String
    package let presence: Presence
    /// Those that are active, be they reachable or not.
    package let devices: [SimulatedDevice]
    /// The cap that the user has reached.
    package let cap: CapScope?
    package let quietUntil: Timestamp?
    /// Which channels are used, and why.
    package let channels: [ChannelFate]
    /// What comes before the steps.
    package let holds: [SimulatedHold]
    package let steps: [Simulation.Event]

    /// What a push goes to.
    package var reached: [SimulatedDevice] { self.devices.filter(\.isReachable) }

    /// Writes the members of an object.
    package func write(to writer: inout JSONWriter) {
        let texts: [(String, String?)] = [
            ("user_id", self.user), ("at", self.at.rfc3339), ("zone", self.zone), ("locale", self.locale),
            ("title", self.title), ("body", self.body),
        ]
        for (name, text) in texts {
            writer.key(escaping: name)
            writer.string(text)
        }
        writer.member("devices", self.devices.count)
        writer.member("reachable", self.reached.count)
        writer.key("push_devices")
        writer.beginArray()
        for device in self.devices { Self.write(device, to: &writer) }
        writer.endArray()
        writer.member("cap", self.cap?.rawValue)
        writer.member("quiet_until", self.quietUntil?.rfc3339)
        writer.key("channels")
        writer.beginArray()
        for fate in self.channels {
            writer.beginObject()
            writer.member("channel", fate.channel.rawValue)
            writer.member("used", fate.isUsed)
            writer.member("reason", fate.reason)
            writer.member("at", fate.at?.rfc3339)
            writer.endObject()
        }
        writer.endArray()
        writer.key("steps")
        writer.beginArray()
        for hold in self.holds { Self.write(hold.at, hold.kind.rawValue, hold.members, to: &writer) }
        for event in self.steps {
            Self.write(event.at, StepDescription(event.step).word, self.members(event), to: &writer)
        }
        writer.endArray()
    }

    /// What a step carries, by name; a push names its devices.
    package func members(_ event: Simulation.Event) -> [(name: String, value: String?)] {
        var members = StepDescription(event.step).members
        guard event.step == .push else { return members }
        members.append(("devices", self.reached.map(\.label).joined(separator: ", ")))
        return members
    }

    private static func write(_ simulated: SimulatedDevice, to writer: inout JSONWriter) {
        let device = simulated.device
        writer.beginObject()
        writer.member("id", device.id.description)
        writer.member("platform", device.platform.rawValue)
        writer.member("provider", device.provider.rawValue)
        writer.member("app", device.app)
        writer.member("name", device.name)
        writer.member("reachable", simulated.isReachable)
        writer.endObject()
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
