// Carillon · ScheduleService.swift
// SPDX-License-Identifier: Apache-2.0

import Logging
import ServiceLifecycle
import Stores

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
        let firing = ScheduleFiring(dispatcher: self.dispatcher)
        while goesOn {
            do {
                var turns = LaneTurns()
                while goesOn, let lane = turns.next() {
                    turns.note(lane, isFull: try await firing.fireDue(lane) == ScheduleStore.claimSize)
                }
            } catch {
                self.dispatcher.logger.warning("schedules cannot be fired", metadata: ["error": "\(error)"])
            }
            // Nothing tells that a moment has come, so it is asked; four looks a second fire within one.
            await pause(for: Self.interval)
        }
    }
}
