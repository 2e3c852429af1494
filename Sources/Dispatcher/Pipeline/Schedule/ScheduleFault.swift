// Carillon · ScheduleFault.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Operations
import Storage

/// Why a schedule fires no more.
struct ScheduleFault: Error, CustomStringConvertible {
    /// How a reason begins that goes when the zone is there again.
    static let zone = "zone: "

    let description: String
}

extension Schedule {
    /// How it recurs, by the zone rules of now.
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
    /// Notes that a schedule fires no more.
    func fail(_ schedule: Schedule, _ fault: ScheduleFault) async throws {
        self.logger.error(
            "schedule has failed",
            metadata: ["schedule.id": "\(schedule.id)", "reason": "\(fault)"]
        )
        try await self.schedules.fail(schedule.id, reason: fault.description)
        PipelineMetrics.failedSchedules.increment()
    }
}
