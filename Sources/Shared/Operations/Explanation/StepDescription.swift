// Carillon · StepDescription.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A step of a decision in words, for JSON and for people.
package struct StepDescription: Sendable {
    /// What is done.
    package let word: String
    /// What it carries, by name.
    package let members: [(name: String, value: String?)]

    package init(_ step: Step) {
        switch step {
        case .store(let status, let reason, let channels):
            let names = DeliveryChannel.allCases.filter { channels.contains(Channels($0)) }.map(\.rawValue)
            self.word = "store"
            self.members = [
                ("status", status.rawValue), ("reason", reason?.rawValue), ("channels", names.joined(separator: ",")),
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
        case .postpone(let kind, let until, let reason):
            self.word = "postpone"
            self.members = [("what", kind.rawValue), ("until", until.rfc3339), ("reason", reason.rawValue)]
        case .note(let reason):
            self.word = "hold_back"
            self.members = [("reason", reason.rawValue)]
        case .settle(let status, let reason, let via):
            self.word = "settle"
            self.members = [("status", status.rawValue), ("reason", reason.rawValue), ("via", via)]
        case .wait(let reason):
            self.word = "wait"
            self.members = [("reason", reason.rawValue)]
        }
    }
}
