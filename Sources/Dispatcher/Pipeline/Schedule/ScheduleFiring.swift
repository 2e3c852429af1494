// Carillon · ScheduleFiring.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Operations
import Storage

/// Fires jobs that are due, as if they had just been read from a stream.
///
/// A schedule is claimed while it fires, and the claim is renewed. If it expires, another
/// dispatcher fires the same entry, with the same ids.
struct ScheduleFiring: Sendable {
    /// The stream that fired jobs seem to come from.
    static let stream = Keyspace.schedules
    private static let hold: Duration = .seconds(30)
    private static let renewal: Duration = .seconds(10)
    /// As ``Schedule/attempts`` counts: one claim in a batch, one with others, and three alone.
    private static let mostAttempts = 2 + 3

    /// A schedule and the occurrence that fires.
    private struct Firing: Sendable {
        let schedule: Schedule
        let occurrence: Recurrence.Occurrence
        /// The next occurrence; nil if it is done.
        let next: Recurrence.Occurrence?
        /// The wall time of the next occurrence.
        var nextWall: WallTime?

        /// Occurrences of a schedule differ in time, and its number is unique.
        var entryID: String { "\(self.occurrence.at.milliseconds)-\(self.schedule.number)" }

        var entry: StreamEntry {
            var fields = self.schedule.fields.map { (name: $0.name, value: $0.value[...]) }
            if self.schedule.isRecurring {
                let id = "\(self.schedule.id)/\(self.occurrence.at.milliseconds)"
                fields.append(("id", Array(id.utf8)[...]))
                if let wall = self.occurrence.wall {
                    fields.append(("deliver_local", Array(wall.description.utf8)[...]))
                }
            }
            return StreamEntry(id: self.entryID, fields: fields)
        }
    }

    let dispatcher: Dispatcher

    /// Fires a batch of a lane, and returns how many were due.
    ///
    /// - Parameter hasRoom: whether the lane has room for pages of broadcasts; otherwise they wait.
    func fireDue(_ lane: Lane, hasRoom: Bool = true) async throws -> Int {
        let store = self.dispatcher.database.schedules
        // First, so that nothing is claimed while all masters are away.
        let absent = try await AbsentParts.find(self.dispatcher)
        let fence = self.dispatcher.fence(for: Self.hold)
        let now = self.dispatcher.now()
        if !hasRoom { try await store.holdPages(of: lane, now: now, missedAfter: Recurrence.missedLimit) }
        let claimed = try await store.claim(lane, now: now, hold: Self.hold, hasRoom: hasRoom)
        guard !claimed.isEmpty else { return 0 }
        var firings = try await self.firings(claimed)
        let waiting = firings.filter { self.concerns(absent, $0) }
        if !waiting.isEmpty {
            // These are due again after `hold`. If they kept the attempt, each would then fire
            // alone.
            try await self.dispatcher.retrying("withdraw attempts") {
                try await store.withdrawAttempts(waiting.map(\.schedule))
            }
            let ids = Set(waiting.map(\.schedule.id))
            firings.removeAll { ids.contains($0.schedule.id) }
        }
        var open = firings.map { firing in
            var schedule = firing.schedule
            // A schedule that skipped occurrences has moved on since it was claimed.
            schedule.dueAt = firing.occurrence.at
            return schedule
        }
        // A schedule that was claimed before fires alone, so that one that kills its dispatcher
        // takes no other with it.
        let fresh = firings.filter { $0.schedule.attempts <= 1 }
        let batches = (fresh.isEmpty ? [] : [fresh]) + firings.filter { $0.schedule.attempts > 1 }.map { [$0] }
        for batch in batches {
            // Another dispatcher may have claimed the rest; otherwise it is due again.
            guard isRunning, fence.isOpen else { break }
            if let firing = batch.first, firing.schedule.attempts >= Self.mostAttempts {
                try await self.setAside(firing)
            } else if try await self.begin(batch) {
                let (fired, outcomes) = try await self.whileRenewing(open) {
                    try await self.handOn(batch, lane, in: fence.term)
                }
                try await self.settle(fired, outcomes: outcomes)
            }
            let ended = Set(batch.map(\.schedule.id))
            open.removeAll { ended.contains($0.id) }
        }
        return claimed.count
    }

    /// Whether a job names a user in one of these parts.
    private func concerns(_ absent: AbsentParts, _ firing: Firing) -> Bool {
        guard absent.error != nil, let job = try? self.dispatcher.catalog.job(firing.entry.fields ?? []) else {
            return false
        }
        return JobIntake.users(job).contains { absent.contains($0) }
    }

    /// Counts the attempt of a schedule that fires alone, before it can do harm.
    ///
    /// - Returns: false if it was cancelled since it was claimed.
    private func begin(_ batch: [Firing]) async throws -> Bool {
        guard let firing = batch.first, firing.schedule.attempts > 1 else { return true }
        return try await self.dispatcher.retrying("begin a schedule alone") {
            try await self.dispatcher.database.schedules.beginAlone(firing.schedule)
        }
    }

    /// Stores and routes the jobs; at a shutdown the rest is due again.
    ///
    /// - Returns: the schedules that fired, and the counts of ``StoredBatch/pageOutcomes``.
    private func handOn(
        _ firings: [Firing],
        _ lane: Lane,
        in term: LeaseClock.Term
    ) async throws -> (fired: [Firing], outcomes: [String: PageCounts]) {
        let entries = firings.map(\.entry)
        let areRepeats = firings.contains { $0.schedule.attempts > 1 }
        var batch = LaneBatch(
            lane: lane, group: self.dispatcher.group(Self.stream), entries: entries, term: term, areRepeats: areRepeats)
        for (firing, entry) in zip(firings, entries) where firing.schedule.source.contains("/") {
            batch.firstEntries[entry.id] = firing.schedule.source
            batch.pages[entry.id] = firing.schedule.page
        }
        var outcomes: [String: PageCounts] = [:]
        var count = 0
        for slice in batch.slices() where isRunning {
            var stored = try await JobIntake(dispatcher: self.dispatcher).store(slice)
            // No stream waits for an acknowledgement.
            stored.toAcknowledge = []
            // No entry is in two slices.
            outcomes.merge(stored.pageOutcomes) { first, _ in first }
            try await Router(dispatcher: self.dispatcher).routeAndAcknowledge(stored)
            count += slice.entries.count
        }
        PipelineMetrics.fired.increment(by: count)
        return (Array(firings.prefix(count)), outcomes)
    }

    /// Moves schedules to their next occurrence, or removes them.
    ///
    /// - Parameter outcomes: the counts of ``StoredBatch/pageOutcomes``.
    private func settle(_ firings: [Firing], outcomes: [String: PageCounts] = [:]) async throws {
        let done = firings.filter { $0.next == nil }.map(\.schedule)
        let counts = firings.flatMap { firing in
            (outcomes[firing.entryID] ?? [:]).map {
                ScheduleStore.PageOutcome(firing.schedule, reason: $0.key, users: $0.value)
            }
        }
        let steps = firings.compactMap { firing in
            firing.next.map { next in
                ScheduleStore.Step(
                    firing.schedule, from: firing.occurrence.at, to: next.at, wall: firing.nextWall,
                    firedAt: firing.occurrence.at, wakeAt: next.at)
            }
        }
        try await self.dispatcher.retrying("settle schedules") {
            try await self.dispatcher.database.schedules.remove(done, outcomes: counts)
            try await self.dispatcher.database.schedules.advance(steps)
        }
    }

    /// Renews the claims while `work` runs.
    private func whileRenewing<Value: Sendable>(
        _ schedules: [Schedule],
        _ work: @Sendable () async throws -> Value
    ) async throws -> Value {
        try await withThrowingTaskGroup(of: Void.self, returning: Value.self) { group in
            group.addTask {
                while true {
                    // Renew well before the claim expires; the end of the work cancels this.
                    try await Task.sleep(for: Self.renewal)
                    try? await self.dispatcher.database.schedules.extendClaims(
                        of: schedules, until: self.dispatcher.now() + Self.hold)
                }
            }
            defer { group.cancelAll() }
            return try await work()
        }
    }

    // MARK: Which occurrence fires

    /// Returns the occurrences that fire; moves the other schedules on.
    private func firings(_ claimed: [Schedule]) async throws -> [Firing] {
        let now = self.dispatcher.now()
        var firings: [Firing] = []
        var steps: [ScheduleStore.Step] = []
        var ended: [Schedule] = []
        var moving: Set<ScheduleID> = []
        var missed: [String: Int] = [:]
        var late: [ScheduleStore.PageOutcome] = []
        for schedule in claimed {
            guard schedule.isRecurring else {
                if Self.isMissed(schedule, now: now) {
                    ended.append(schedule)
                    let users = Self.userCount(schedule)
                    missed[schedule.jobID ?? schedule.source, default: 0] += users
                    late.append(
                        ScheduleStore.PageOutcome(schedule, reason: PageOutcomeReason.missed.rawValue, users: users))
                } else {
                    firings.append(
                        Firing(schedule: schedule, occurrence: .init(at: schedule.dueAt, wall: nil), next: nil))
                }
                continue
            }
            guard let recurrence = try await self.recurrence(schedule) else { continue }
            let (fires, next) = recurrence.resume(from: schedule.dueAt, wall: schedule.wall, now: now)
            if let fires {
                firings.append(
                    Firing(
                        schedule: schedule, occurrence: fires, next: next,
                        nextWall: next.flatMap { recurrence.wall(of: $0) }))
                guard fires.at != schedule.dueAt else { continue }
                // If this dispatcher dies, the next one starts with the same occurrence.
                moving.insert(schedule.id)
                steps.append(
                    ScheduleStore.Step(
                        schedule, to: fires.at, wall: recurrence.wall(of: fires), firedAt: nil, wakeAt: now + Self.hold)
                )
                continue
            }
            // A schedule that was woken early has missed nothing.
            if schedule.dueAt <= now { self.logMissed(schedule, next: next) }
            if let next {
                steps.append(
                    ScheduleStore.Step(
                        schedule, to: next.at, wall: recurrence.wall(of: next), firedAt: nil, wakeAt: next.at))
            } else {
                ended.append(schedule)
            }
        }
        let (skips, done, outcomes) = (steps, ended, late)
        let moved = try await self.dispatcher.retrying("move schedules") {
            try await self.dispatcher.database.schedules.remove(done, outcomes: outcomes)
            return try await self.dispatcher.database.schedules.advance(skips)
        }
        for (job, count) in missed {
            self.dispatcher.logger.notice(
                "job is over an hour late for some users; they do not get it",
                metadata: ["job.id": "\(job)", "users.count": "\(count)"])
        }
        return firings.filter { !moving.contains($0.schedule.id) || moved.contains($0.schedule.id) }
    }

    /// Whether the part of an occurrence for one of the recipients' zones comes too late.
    ///
    /// A part that was stored after its time is not missed: an operator has replayed its job, or
    /// its page was stored late. Held pages count as stored late
    /// (``ScheduleStore/holdPages(of:now:missedAfter:)``).
    private static func isMissed(_ schedule: Schedule, now: Timestamp) -> Bool {
        let isLate = now > schedule.dueAt + Recurrence.missedLimit
        return schedule.source.hasPrefix("\(Self.stream)/") && isLate && schedule.createdAt <= schedule.dueAt
    }

    private func logMissed(_ schedule: Schedule, next: Recurrence.Occurrence?) {
        self.dispatcher.logger.notice(
            "schedule is over an hour late; skipped to its next occurrence",
            metadata: [
                "schedule.id": "\(schedule.id)", "due": "\(schedule.dueAt.rfc3339)",
                "next": "\(next?.at.rfc3339 ?? "none")",
            ])
    }

    private static func userCount(_ schedule: Schedule) -> Int {
        let users = schedule.fields.first { $0.name == "users" }.flatMap { try? JSONParser.parse($0.value) }
        return users?.array?.count ?? 0
    }

    /// Returns a schedule's recurrence; records the fault and returns nil if it has none.
    private func recurrence(_ schedule: Schedule) async throws -> Recurrence? {
        do throws(ScheduleFault) {
            return try schedule.recurrence(self.dispatcher.zones.database)
        } catch {
            try await self.dispatcher.retrying("fail schedule") { try await self.dispatcher.fail(schedule, error) }
            return nil
        }
    }

    private func setAside(_ firing: Firing) async throws {
        let entry = firing.entry
        let letter = DeadLetter(
            stream: Self.stream,
            entry: entry.id,
            reason: ClaimService.deadlyReason,
            at: self.dispatcher.now(),
            fields: entry.fields ?? []
        )
        try await DeadLetterQueue(dispatcher: self.dispatcher).setAside([letter])
        try await self.settle([firing])
    }
}
