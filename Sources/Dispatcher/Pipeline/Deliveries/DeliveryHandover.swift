// Carillon · DeliveryHandover.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Operations
import Storage

/// The Redis part of a settlement: schedules later tries, releases claims, and acknowledges
/// entries.
///
/// Touches only entries that still belong to this process. A dispatcher that took an entry over
/// releases the claim and acknowledges the entry.
struct DeliveryHandover: Sendable {
    /// A delivery that is tried later.
    struct Waiting: Sendable {
        let outcome: DeliveryOutcome
        let work: DeliveryWork
        let due: Timestamp
        /// The app or service that it is held back for; nil for a retry.
        var scope: BreakerScope?
    }

    let dispatcher: Dispatcher
    let provider: Provider

    /// Returns the outcomes whose entries belong to this process.
    func owned(_ outcomes: [DeliveryOutcome]) async throws -> [DeliveryOutcome] {
        var outcomes = outcomes
        while true {
            let term = self.dispatcher.leaseClock.term
            guard outcomes.contains(where: { $0.term != term }) else { return outcomes }
            var owned = outcomes.filter { $0.term == term }
            let unsure = Dictionary(grouping: outcomes.lazy.filter { $0.term != term }, by: \.group.stream)
            for entries in unsure.values {
                let kept = try await self.dispatcher.keep(entries.map(\.entry.id), of: entries[0].group)
                for var outcome in entries where kept.ids.contains(outcome.entry.id) {
                    outcome.term = kept.term
                    owned.append(outcome)
                }
            }
            outcomes = owned
        }
    }

    /// Schedules deliveries, then releases the claims of all outcomes and acknowledges their
    /// entries, with their events in the same write.
    ///
    /// Retries until that succeeds.
    func scheduleAndAcknowledge(
        _ outcomes: [DeliveryOutcome],
        waiting: [Waiting],
        reporting events: [LifecycleEvent]
    ) async throws {
        var (owned, unreported) = (outcomes, events)
        var unscheduled = waiting
        var scheduledIn: Int?
        var acknowledgedIn: [String: Int] = [:]
        try await self.dispatcher.retrying("settle deliveries") {
            owned = try await self.owned(owned)
            let ownedEntries = owned.count < outcomes.count ? Set(owned.map(\.entryKey)) : nil
            var session: Int
            repeat {
                session = self.dispatcher.redis.session
                // Once a session: a due retry leaves its set, so a second call would add it again.
                if scheduledIn != session { unscheduled = waiting }
                scheduledIn = session
                if let ownedEntries { unscheduled.removeAll { !ownedEntries.contains($0.outcome.entryKey) } }
                try await self.schedule(&unscheduled)
                for (stream, entries) in Dictionary(grouping: owned, by: \.group.stream)
                where acknowledgedIn[stream] != session {
                    try await self.dispatcher.acknowledgeOnce(
                        entries.map(\.entry.id), entries[0].group, reporting: &unreported
                    ) { self.releaseClaims(of: entries, in: &$0) }
                    acknowledgedIn[stream] = session
                }
                // Redis may have come back with the entries, but without what was scheduled.
            } while self.dispatcher.redis.session != session
        }
        await self.dispatcher.report(unreported)
    }

    /// Releases the claims of deliveries, then schedules them; keeps those that failed.
    ///
    /// The claim goes first, because a retry that comes at once would count as a duplicate of its
    /// first try. The member of a set is the work itself, so a repeat adds nothing while it waits.
    private func schedule(_ waiting: inout [Waiting]) async throws {
        guard let due = waiting.lazy.map(\.due).min() else { return }
        let parts = Array(Dictionary(grouping: waiting, by: \.outcome.group.keys.index).values)
        var releases = RedisBatch()
        // One command for each part, as each delivery that waits has its work.
        for part in parts { self.releaseClaims(of: part.map(\.outcome), in: &releases) }
        // A batch of its own: a script that Redis has forgotten runs after the rest of its batch.
        let released = try await self.dispatcher.redis.send(releases)
        var batch = RedisBatch()
        // The entry of each command's delivery; one that is held back has two commands.
        var entries: [DeliveryOutcome.EntryKey] = []
        for one in zip(parts, released).filter({ !$1.isError }).flatMap(\.0) {
            self.dispatcher.live.retries.add(
                one.work, due: one.due, provider: self.provider, lane: one.outcome.lane, scope: one.scope, in: &batch)
            while entries.count < batch.count { entries.append(one.outcome.entryKey) }
        }
        let added = try await self.dispatcher.redis.send(batch)
        self.dispatcher.alarms.retries.schedule(at: due)
        // The other masters of a cluster have theirs while one is away.
        var failed = entries
        failed.keepFailed(by: added)
        let scheduled = Set(entries).subtracting(failed)
        waiting.removeAll { scheduled.contains($0.outcome.entryKey) }
        for reply in released + added { _ = try reply.checked() }
    }

    /// Adds the release of the claims of one part's deliveries to a batch.
    private func releaseClaims(of outcomes: [DeliveryOutcome], in batch: inout RedisBatch) {
        // A claim is in the part of its entry.
        self.dispatcher.live.with(outcomes[0].group.keys).sendClaims.release(
            outcomes.compactMap { one in one.work.map { (work: $0, entry: one.entry.id, lane: one.lane) } },
            provider: self.provider, in: &batch)
    }
}
