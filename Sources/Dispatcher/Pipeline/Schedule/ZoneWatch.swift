// Carillon · ZoneWatch.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import Operations
import ServiceLifecycle
import Storage

/// Follows the machine's time-zone data: when it changes, moments that depend on it are computed anew.
struct ZoneWatch: Sendable {
    private static let interval: Duration = .seconds(60)
    private static let pageSize = 500
    private static let releaseSpan: Duration = .seconds(300)

    let dispatcher: Dispatcher

    func run() async {
        self.dispatcher.logger.info("time-zone data", metadata: ["zones.version": "\(self.dispatcher.zones.version)"])
        // Nil until it is known whether moments were computed with these data.
        var isStale: Bool?
        while goesOn {
            do {
                if self.dispatcher.zones.refresh() {
                    isStale = true
                    self.dispatcher.logger.notice(
                        "time-zone data has changed",
                        metadata: ["zones.version": "\(self.dispatcher.zones.version)"]
                    )
                }
                if isStale == nil {
                    isStale = try await self.dispatcher.schedules.zoneVersion() != self.dispatcher.zones.version
                }
                if isStale == true {
                    try await self.recompute()
                    // What waits for the end of quiet hours is looked at anew, and put off again where it is quiet still.
                    try await self.dispatcher.followUps.reconsiderReleases(
                        now: self.dispatcher.now(), over: Self.releaseSpan)
                    isStale = false
                }
            } catch {
                self.dispatcher.logger.warning("moments cannot be computed anew", metadata: ["error": "\(error)"])
            }
            // A package update tells nobody, so the files are looked at.
            await pause(for: Self.interval)
        }
    }

    /// Computes the moments of all that follows a zone's clocks, page by page.
    private func recompute() async throws {
        let version = self.dispatcher.zones.version
        let now = self.dispatcher.now()
        var last: NotificationID?
        var count = 0
        while goesOn {
            let page = try await self.dispatcher.schedules.zoned(after: last, now: now, limit: Self.pageSize)
            guard let end = page.last else {
                try await self.dispatcher.schedules.noteZoneVersion(version)
                break
            }
            last = end.id
            var steps: [ScheduleStore.Step] = []
            for schedule in page {
                guard let moment = try await self.moment(schedule, now: now), moment != schedule.dueAt else { continue }
                steps.append(
                    ScheduleStore.Step(schedule, to: moment, wall: schedule.wall, firedAt: nil, wakeAt: moment))
            }
            count += try await self.dispatcher.schedules.advance(steps).count
        }
        if count > 0 {
            self.dispatcher.logger.notice("moments were computed anew", metadata: ["count": "\(count)"])
        }
    }

    /// When a schedule is due by the rules of now; nil to leave it as it is.
    private func moment(_ schedule: Schedule, now: Timestamp) async throws -> Timestamp? {
        if let wall = schedule.wall, let day = wall.day, !schedule.isRecurring {
            guard let rules = schedule.zone.flatMap({ self.dispatcher.zones.rules($0) }) else { return nil }
            return rules.instant(CivilDate(daysSinceEpoch: day), minutes: wall.time.minutes)
        }
        guard schedule.isRecurring else { return nil }
        let recurrence: Recurrence
        do throws(ScheduleFault) {
            recurrence = try schedule.recurrence(self.dispatcher.zones)
        } catch {
            if schedule.state == .waiting { try await self.dispatcher.fail(schedule, error) }
            return nil
        }
        if schedule.state == .waiting { return recurrence.moved(schedule.wall, now: now) }
        // What it missed meanwhile it does not make good for.
        if let next = recurrence.next(after: now)?.at, schedule.stateReason?.hasPrefix(ScheduleFault.zone) == true {
            try await self.dispatcher.schedules.revive(schedule.id, at: next)
        }
        return nil
    }
}
