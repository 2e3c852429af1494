// Carillon · ScheduleService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Operations
import ServiceLifecycle
import Storage

/// Fires jobs that are due; any number of dispatchers may do so at once.
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
        while isRunning {
            do {
                try await self.fireAllThatIsDue()
            } catch {
                self.dispatcher.logger.warning(
                    "cannot fire schedules; retrying", metadata: ["error": "\(error)"])
            }
            await self.dispatcher.wait(for: self.dispatcher.alarms.schedules, atLeast: Self.interval)
        }
    }

    /// Fires until nothing is due; with much due, one batch is claimed while another is stored.
    private func fireAllThatIsDue() async throws {
        let firing = ScheduleFiring(dispatcher: self.dispatcher)
        try await withThrowingTaskGroup(of: (lane: Lane, isFull: Bool).self) { group in
            var turns = LaneTurns()
            var atOnce = 1
            var underWay = 0
            do {
                while true {
                    while underWay < atOnce, isRunning, let lane = turns.next() {
                        underWay += 1
                        group.addTask { (lane, try await firing.fireDue(lane) == ScheduleStore.claimSize) }
                    }
                    guard let done = try await group.next() else { return }
                    underWay -= 1
                    turns.note(done.lane, isFull: done.isFull)
                    if done.isFull { atOnce = 2 }
                }
            } catch {
                // An error that leaves the group cancels the other batch in the middle of its work.
                try? await group.waitForAll()
                throw error
            }
        }
    }
}

/// The order in which batches are taken from lanes until none has more.
///
/// The most urgent lane goes first, again after each full batch of another, and as often as its
/// weight while others have more. So urgent work does not wait, and nothing starves.
struct LaneTurns {
    private var credits = LaneCredits()
    private var empty: Set<Lane> = []

    /// Returns the next lane; nil when none has more.
    mutating func next() -> Lane? {
        self.credits.pick(among: Lane.allCases.filter { !self.empty.contains($0) })
    }

    /// Records whether a lane's batch was full.
    mutating func note(_ lane: Lane, isFull: Bool) {
        guard isFull else {
            self.empty.insert(lane)
            return
        }
        self.credits.charge(lane)
        // Urgent work may have come due meanwhile.
        self.empty = []
    }
}

/// Why a schedule can no longer fire.
struct ScheduleFault: Error, CustomStringConvertible {
    /// The prefix of faults that end when the zone exists again.
    static let zone = "zone: "

    let description: String
}

extension Schedule {
    /// Returns the recurrence by the current zone rules.
    func recurrence(_ zones: ZoneDatabase) throws(ScheduleFault) -> Recurrence {
        var rules: ZoneRules?
        if let zone = self.zone, zone != Self.recipientZone {
            rules = zones.rules(zone)
            if rules == nil {
                throw ScheduleFault(description: "\(ScheduleFault.zone)\(zone) is not in the machine's time-zone data")
            }
        }
        do throws(CronFault) {
            let cron = try CronExpression(self.cron ?? "")
            return try Recurrence(cron, in: rules, startsAt: self.startsAt, endsAt: self.endsAt)
        } catch {
            throw ScheduleFault(description: "cron: \(error)")
        }
    }
}

extension Dispatcher {
    /// Records that a schedule can no longer fire.
    func fail(_ schedule: Schedule, _ fault: ScheduleFault) async throws {
        self.logger.error(
            "recurring schedule failed; update tzdata, or cancel it and send it again",
            metadata: ["schedule.id": "\(schedule.id)", "reason": "\(fault)"]
        )
        try await self.database.schedules.fail(schedule, reason: fault.description)
        PipelineMetrics.failedSchedules.increment()
    }
}
