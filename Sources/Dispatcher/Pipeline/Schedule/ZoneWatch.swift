// Carillon · ZoneWatch.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Operations
import ServiceLifecycle
import Storage

/// Recomputes due times at the start and when the machine's time-zone data changes, and shows how
/// many schedules have failed.
struct ZoneWatch: Sendable {
    private static let interval: Duration = .seconds(60)
    private static let pageSize = 500
    private static let releaseSpan: Duration = .seconds(300)

    /// How the stored due times relate to this dispatcher's rules.
    struct State {
        /// The zones whose due times are known to follow the rules; nil for all.
        fileprivate var current: Set<String>? = []
        /// Whether the rules changed while this dispatcher ran.
        fileprivate var hasChanged = false
    }

    let dispatcher: Dispatcher

    func run() async {
        self.dispatcher.logger.info(
            "time-zone data loaded", metadata: ["zones.version": "\(self.dispatcher.zones.database.version)"])
        var state = State()
        await self.dispatcher.untilShutdown("cannot check the due times of schedules; retrying every minute") {
            try await self.look(&state)
            let failed = try await self.dispatcher.database.schedules.failed(now: self.dispatcher.now())
            PipelineMetrics.failedSchedules.record(failed)
        } wait: {
            // A package update sends no signal, so poll the files.
            await pause(for: Self.interval)
        }
    }

    /// Recomputes due times that do not follow the current rules.
    func look(_ state: inout State) async throws {
        let zones = self.dispatcher.zones.database
        let schedules = self.dispatcher.database.schedules
        if let unchanged = zones.refresh() {
            state.current = state.current?.intersection(unchanged) ?? unchanged
            state.hasChanged = true
            self.dispatcher.logger.notice("time-zone data changed", metadata: ["zones.version": "\(zones.version)"])
        }
        guard let current = state.current else { return }
        let version = zones.version
        let isNew = try await schedules.zoneVersion() != version
        let haveRulesChanged = isNew || state.hasChanged
        // Also at every start: a dispatcher with other data of the same version, or one that an
        // update replaces, may have stored or failed schedules since.
        try await self.recompute(haveRulesChanged: haveRulesChanged)
        // Even if another dispatcher has done this: since then, this one may have stored releases
        // by the old rules.
        if haveRulesChanged {
            try await self.dispatcher.database.followUps.reconsiderReleases(
                now: self.dispatcher.now(), over: Self.releaseSpan, except: current,
                fallback: self.dispatcher.zones.fallback)
        }
        // A shutdown may have ended the work early.
        if isNew, isRunning { try await schedules.recordZoneVersion(version) }
        state = State(current: nil)
    }

    /// Recomputes the due times of all schedules that follow a zone, page by page.
    ///
    /// - Parameter haveRulesChanged: whether a recurring schedule whose zone is missing fails now;
    ///   otherwise this machine may be the only one that lacks it.
    private func recompute(haveRulesChanged: Bool) async throws {
        var last: ScheduleID?
        var count = 0
        while isRunning {
            // Schedules that have come due since the last page are being fired.
            let now = self.dispatcher.now()
            let page = try await self.dispatcher.database.schedules.zoned(after: last, now: now, limit: Self.pageSize)
            guard let end = page.last else { break }
            last = end.id
            var steps: [ScheduleStore.Step] = []
            for schedule in page {
                guard let moment = try await self.moment(schedule, now: now, haveRulesChanged: haveRulesChanged),
                    moment != schedule.dueAt
                else { continue }
                steps.append(
                    ScheduleStore.Step(schedule, to: moment, wall: schedule.wall, firedAt: nil, wakeAt: moment))
            }
            count += try await self.dispatcher.database.schedules.advance(steps).count
        }
        if count > 0 {
            self.dispatcher.logger.notice("due times recomputed", metadata: ["count": "\(count)"])
        }
    }

    /// Returns when a schedule is due by the current rules; nil to leave it.
    private func moment(
        _ schedule: Schedule,
        now: Timestamp,
        haveRulesChanged: Bool
    ) async throws -> Timestamp? {
        if let wall = schedule.wall, let day = wall.day, !schedule.isRecurring {
            guard let rules = schedule.zone.flatMap({ self.dispatcher.zones.database.rules($0) }) else { return nil }
            return rules.instant(CivilDate(daysSinceEpoch: day), minutes: wall.time.minutes)
        }
        guard schedule.isRecurring else { return nil }
        let recurrence: Recurrence
        do throws(ScheduleFault) {
            recurrence = try schedule.recurrence(self.dispatcher.zones.database)
        } catch {
            if haveRulesChanged, schedule.state == .waiting { try await self.dispatcher.fail(schedule, error) }
            return nil
        }
        if schedule.state == .waiting {
            // It may have fired since `now` was read.
            return recurrence.moved(schedule.wall, now: max(now, schedule.lastFiredAt ?? now))
        }
        guard schedule.stateReason?.hasPrefix(ScheduleFault.zone) == true else { return nil }
        // Drop the occurrences that it missed meanwhile, which may have been its last.
        if let next = recurrence.next(after: now)?.at {
            try await self.dispatcher.database.schedules.revive(schedule.id, at: next)
        } else {
            try await self.dispatcher.database.schedules.remove([schedule])
        }
        return nil
    }
}
