// Carillon · StepJSON.swift
// SPDX-License-Identifier: Apache-2.0

import Decision
import JSON
import Model

/// A step of a decision as JSON.
enum StepJSON {
    static func write(_ event: Simulation.Event, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.key("at")
        writer.string(event.at.rfc3339)
        writer.key("step")
        for (index, (name, value)) in self.members(event.step).enumerated() {
            if index > 0 { writer.key(escaping: name) }
            writer.string(value)
        }
        writer.endObject()
    }

    /// The step's word first, then what it carries.
    private static func members(_ step: Step) -> [(name: String, value: String?)] {
        switch step {
        case .store(let status, let reason, let channels):
            let names = Channel.allCases.filter { channels.contains(Channels($0)) }.map(\.rawValue)
            return [
                ("step", "store"), ("status", status.rawValue), ("reason", reason?.rawValue),
                ("channels", names.joined(separator: ",")),
            ]
        case .publish(let isSilent): return [("step", isSilent ? "publish_silently" : "publish")]
        case .awaitProof(let deadline): return [("step", "await_proof"), ("within", "\(deadline.components.seconds)s")]
        case .push: return [("step", "push")]
        case .email: return [("step", "email")]
        case .postpone(let kind, let until, let reason):
            return [
                ("step", "postpone"), ("what", kind.rawValue), ("until", until.rfc3339), ("reason", reason.rawValue),
            ]
        case .note(let reason): return [("step", "hold_back"), ("reason", reason.rawValue)]
        case .settle(let status, let reason, let via):
            return [("step", "settle"), ("status", status.rawValue), ("reason", reason.rawValue), ("via", via)]
        case .wait(let reason): return [("step", "wait"), ("reason", reason.rawValue)]
        }
    }
}
