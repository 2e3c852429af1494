// Carillon · SimulationAnswer.swift
// SPDX-License-Identifier: Apache-2.0

package import Decision
package import JSON
package import Model

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
    package let devices: Int
    /// The cap that the user has reached.
    package let cap: CapScope?
    package let quietUntil: Timestamp?
    /// Which channels are used, and why.
    package let channels: [ChannelFate]
    package let steps: [Simulation.Event]

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
        writer.member("devices", self.devices)
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
        for event in self.steps { Self.write(event, to: &writer) }
        writer.endArray()
    }

    private static func write(_ event: Simulation.Event, to writer: inout JSONWriter) {
        let step = StepDescription(event.step)
        writer.beginObject()
        writer.member("at", event.at.rfc3339)
        writer.member("step", step.word)
        for (name, value) in step.members {
            writer.key(escaping: name)
            writer.string(value)
        }
        writer.endObject()
    }
}
