// Carillon · ScheduleService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import ServiceLifecycle
import Storage

/// Fires jobs that have come due; any number of dispatchers may do so at once, each takes what no other has claimed.
package struct ScheduleService: Service {
    private static let interval: Duration = .milliseconds(250)

    private let dispatcher: Dispatcher

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
    }

    package func run() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { await ZoneWatch(dispatcher: self.dispatcher).run() }
            group.addTask { await self.fire() }
            try await group.waitForAll()
        }
    }

    private func fire() async {
        while goesOn {
            do {
                try await self.fireAllThatIsDue()
            } catch {
                self.dispatcher.logger.warning("schedules cannot be fired", metadata: ["error": "\(error)"])
            }
            // Nothing tells that a moment has come, so it is asked; four looks a second fire within one.
            await pause(for: Self.interval)
        }
    }

    /// Where much has come due, a batch is claimed while another is stored.
    private func fireAllThatIsDue() async throws {
        let firing = ScheduleFiring(dispatcher: self.dispatcher)
        try await withThrowingTaskGroup(of: (lane: Lane, isFull: Bool).self) { group in
            var turns = LaneTurns()
            var atOnce = 1
            var underWay = 0
            while true {
                while underWay < atOnce, goesOn, let lane = turns.next() {
                    underWay += 1
                    group.addTask { (lane, try await firing.fireDue(lane) == ScheduleStore.claimSize) }
                }
                guard let done = try await group.next() else { return }
                underWay -= 1
                turns.note(done.lane, isFull: done.isFull)
                if done.isFull { atOnce = 2 }
            }
        }
    }
}
