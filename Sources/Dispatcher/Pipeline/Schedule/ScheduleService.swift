// Carillon · ScheduleService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Operations
import ServiceLifecycle
import Storage

/// Fires jobs that are due; any number of dispatchers may do so at once.
package struct ScheduleService: Service {
    private static let interval: Duration = .milliseconds(250)
    /// How often to look for room in a lane for pages of broadcasts.
    private static let patience: Duration = .seconds(1)

    private let dispatcher: Dispatcher
    private let highWaterMark: Int64

    /// - Parameter highWaterMark: pages of broadcasts wait while this many deliveries of their lane
    ///   wait.
    package init(dispatcher: Dispatcher, highWaterMark: Int64) {
        self.dispatcher = dispatcher
        self.highWaterMark = highWaterMark
    }

    package func run() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { await ZoneWatch(dispatcher: self.dispatcher).run() }
            // A task for each lane, so that no lane waits for the batches of another.
            for lane in Lane.allCases { group.addTask { await self.fire(lane) } }
            try await group.waitForAll()
        }
    }

    private func fire(_ lane: Lane) async {
        var interval = Self.interval
        await self.dispatcher.untilShutdown(
            "cannot fire schedules; retrying", metadata: ["job.lane": "\(lane.rawValue)"]
        ) {
            interval = Self.interval
            let hasRoom = try await self.fireAllThatIsDue(in: lane)
            if !hasRoom { interval = Self.patience }
        } wait: {
            await self.dispatcher.wait(for: self.dispatcher.alarms.schedules[lane.rank], atLeast: interval)
        }
    }

    /// Fires until nothing is due; with much due, one batch is claimed while another is stored.
    ///
    /// - Returns: whether the lane has room for the pages of broadcasts that are due.
    private func fireAllThatIsDue(in lane: Lane) async throws -> Bool {
        let firing = ScheduleFiring(dispatcher: self.dispatcher)
        return try await withThrowingTaskGroup(of: Int.self, returning: Bool.self) { group in
            var hasRoom = true
            var atOnce = 1
            var underWay = 0
            do {
                while true {
                    while underWay < atOnce, isRunning {
                        hasRoom = try await self.hasRoom(in: lane)
                        underWay += 1
                        group.addTask { [hasRoom] in try await firing.fireDue(lane, hasRoom: hasRoom) }
                    }
                    guard let count = try await group.next() else { return hasRoom }
                    underWay -= 1
                    // A smaller batch was all that was due.
                    atOnce = count >= ScheduleStore.pageClaimSize ? 2 : 0
                }
            } catch {
                // An error that leaves the group would cancel the other batch in the middle of its
                // work.
                try? await group.waitForAll()
                throw error
            }
        }
    }

    private func hasRoom(in lane: Lane) async throws -> Bool {
        // Jobs need no room, so ask Redis only if a page is due.
        guard try await self.dispatcher.database.schedules.isPageDue(in: lane, now: self.dispatcher.now()) else {
            return true
        }
        do {
            let isFull = try await self.dispatcher.isFull(lane, above: self.highWaterMark, isPatient: false)
            return !isFull
        } catch {
            // Pages wait for the answer; jobs must not.
            self.dispatcher.logger.warning(
                "cannot read the delivery backlog; scheduled broadcast pages wait",
                metadata: ["job.lane": "\(lane.rawValue)", "error": "\(error)"])
            return false
        }
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
    /// Records that a schedule can no longer fire, unless another dispatcher has.
    func fail(_ schedule: Schedule, _ fault: ScheduleFault) async throws {
        guard try await self.database.schedules.fail(schedule, reason: fault.description) else { return }
        self.logger.error(
            "recurring schedule failed; update tzdata, or cancel it and send it again",
            metadata: ["schedule.id": "\(schedule.id)", "reason": "\(fault)"]
        )
    }
}
