// Carillon · Simulation.swift
// SPDX-License-Identifier: Apache-2.0

/// What would be done about a notification from its arrival on, by the rules alone.
package struct Simulation: Sendable {
    /// A step and its moment.
    package struct Event: Sendable, Equatable {
        package let at: Timestamp
        package let step: Step
    }

    /// However long a notification is put off again and again, a simulation ends.
    private static let mostEvents = 64

    private let facts: DecisionFacts
    /// As they were asked for.
    var arrival: DecisionFacts { self.facts }
    private let isProven: Bool

    /// - Parameters:
    ///   - facts: as of the notification's arrival, its progress aside.
    ///   - isProven: whether sockets prove receipt, where there are any.
    package init(_ facts: DecisionFacts, isProven: Bool) {
        self.facts = facts
        self.isProven = isProven
    }

    /// The steps in the order of their moments.
    ///
    /// The notification stays unread.
    package func run() -> [Event] {
        var facts = self.facts
        facts.progress = .arrived
        var events: [Event] = []
        for step in decide(facts) {
            events.append(Event(at: facts.now, step: step))
            guard case .store(.pending, _, let channels) = step else { return events }
            facts.notification.channels = channels
        }
        var isPushed = false
        var later: [(at: Timestamp, progress: DecisionFacts.Progress)] = [(facts.now, .stored)]
        while let next = later.min(by: { $0.at < $1.at }), events.count < Self.mostEvents {
            later.removeAll { $0.at == next.at && $0.progress == next.progress }
            // Whom a push has reached nobody calls for attention, as the gate has it.
            if next.progress == .due(.attention), isPushed { continue }
            facts.now = next.at
            facts.progress = next.progress
            for step in decide(facts) {
                events.append(Event(at: facts.now, step: step))
                switch step {
                case .awaitProof(let deadline) where !self.isProven: later.append((facts.now + deadline, .unproven))
                case .push: isPushed = true
                case .postpone(let kind, let until, _): later.append((until, .due(kind)))
                default: break
                }
            }
        }
        return events
    }
}
