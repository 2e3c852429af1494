// Carillon · ClaimService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Storage

/// Takes over the work of dispatchers whose lease is void; and its own whose reply got lost.
///
/// The stream counts how often an entry was handed out. After the first time, entries go together:
/// jobs in batches, as a backlog would take seconds one by one, and deliveries several at once,
/// each by itself, as each waits for a provider. After that, an entry is worked on alone, so that
/// one that kills its dispatcher takes no other with it; after three such deaths it is set aside.
/// Each provider has a task of its own, so that one that hangs holds up no other.
package struct ClaimService: Service {
    /// How the entries of a stream are worked on.
    private struct Pace {
        /// How many that were handed out once go at the same time, each by itself; nil for one
        /// batch.
        let width: Int?

        static let jobs = Pace(width: nil)
        static let deliveries = Pace(width: 16)
    }

    /// Works on entries as one batch.
    private typealias Work = @Sendable (_ entries: [StreamEntry], LeaseClock.Term) async throws -> Void

    /// Sets an entry aside that kills its dispatchers.
    ///
    /// - Parameter isFirst: whether no dispatcher has tried to set it aside before.
    private typealias SetAside =
        @Sendable (_ entry: StreamEntry, _ isFirst: Bool, LeaseClock.Term) async throws -> Void

    /// How often an entry is handed out until it is set aside: in a batch, with others, thrice
    /// alone.
    private static let mostDeliveries = 5

    /// The reason of the dead letters of what kills its dispatchers.
    static let deadlyReason = "three dispatchers died while they worked on it alone"

    private static let interval: Duration = .seconds(3)
    /// Two that claim at once: the second finds the entry handed out just now, and lets it be.
    private static let idle: Duration = .seconds(5)
    /// No reply arrives this late: the call that would take it has ended (``LaneReader``).
    private static let lostReply: Duration = .seconds(10)
    private static let batchSize = 100

    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]

    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
    }

    package func run() async throws {
        await withTaskGroup { group in
            group.addTask { await self.repeatedly { await self.claimJobs() } }
            for service in self.deliveries {
                group.addTask { await self.repeatedly { await self.claimDeliveries(service) } }
            }
        }
    }

    private func repeatedly(_ round: () async -> Void) async {
        while goesOn {
            await round()
            // A lease that lapses tells nobody, so leases are looked at; well within the 30 s in which work is taken over.
            await pause(for: Self.interval)
        }
    }

    private func claimJobs() async {
        for lane in Lane.allCases {
            let stream = self.dispatcher.keys.jobs(lane)
            await self.claimJobs(stream, lane)
        }
        let overflows = self.dispatcher.live.overflows
        for org in (try? await overflows.orgs()) ?? [] {
            await self.claimJobs(self.dispatcher.keys.overflow(org), .bulk)
        }
    }

    private func claimJobs(_ stream: String, _ lane: Lane) async {
        await self.claim(stream, .jobs) {
            try await self.finishJobs($0, lane, of: stream, in: $1)
        } setAside: { entry, _, _ in
            try await self.setAside(entry, self.dispatcher.group(stream))
        }
    }

    private func claimDeliveries(_ service: DeliveriesService) async {
        for lane in Lane.allCases {
            let stream = self.dispatcher.keys.deliveries(service.provider, lane)
            let group = self.dispatcher.group(stream)
            await self.claim(stream, .deliveries) { entries, term in
                try await service.sendAlone(LaneBatch(lane: lane, group: group, entries: entries, term: term))
            } setAside: { entry, isFirst, term in
                let batch = LaneBatch(lane: lane, group: group, entries: [entry], term: term)
                try await service.setAside(batch, isFirst: isFirst)
            }
        }
    }

    private func finishJobs(
        _ entries: [StreamEntry],
        _ lane: Lane,
        of stream: String,
        in term: LeaseClock.Term
    ) async throws {
        let batch = LaneBatch(
            lane: lane, group: self.dispatcher.group(stream), entries: entries, term: term, areRepeats: true)
        for part in batch.parts() {
            let stored = try await JobIntake(dispatcher: self.dispatcher).take(part)
            try await Router(dispatcher: self.dispatcher).finish(stored)
        }
    }

    private func claim(
        _ stream: String,
        _ pace: Pace,
        _ work: @escaping Work,
        setAside: SetAside
    ) async {
        let group = self.dispatcher.group(stream)
        do {
            for consumer in try await group.consumers() {
                if consumer.name == self.dispatcher.name {
                    try await self.findLost(consumer.pending, group, work)
                } else if try await self.takeOver(consumer.name, group, pace, work, setAside) {
                    try await group.remove(consumer.name)
                }
            }
        } catch {
            self.dispatcher.logger.warning(
                "work cannot be taken over",
                metadata: ["redis.stream": "\(stream)", "error": "\(error)"]
            )
        }
    }

    /// The term in which a consumer's work may be taken over.
    ///
    /// Nil while its dispatcher holds its lease, as one that stood still comes back at any moment
    /// and goes on; and nil while this one does not.
    private func term(toTakeOver consumer: String) async throws -> LeaseClock.Term? {
        guard let term = self.dispatcher.leaseClock.term else { return nil }
        let lease = self.dispatcher.keys.dispatcherLease(consumer)
        return try await Lease.isHeld(lease, connection: self.dispatcher.redis) ? nil : term
    }

    /// Takes over what a consumer left.
    ///
    /// - Returns: whether nothing is left of it.
    private func takeOver(
        _ consumer: String,
        _ group: ConsumerGroup,
        _ pace: Pace,
        _ work: @escaping Work,
        _ setAside: SetAside
    ) async throws -> Bool {
        while goesOn, let term = try await self.term(toTakeOver: consumer) {
            let pending = try await group.pending(of: consumer, count: Self.batchSize)
            guard !pending.isEmpty else { return true }
            let first = pending.filter { $0.deliveries <= 1 }
            var isProgressing =
                if first.isEmpty {
                    false
                } else if let width = pace.width {
                    try await self.takeOver(first, from: consumer, group, width: width, work)
                } else {
                    try await self.takeOverTogether(first, group, in: term, work)
                }
            for item in pending where item.deliveries > 1 {
                guard goesOn, let term = try await self.term(toTakeOver: consumer) else { return false }
                guard let entry = try await group.claim(item.id, idle: Self.idle) else { continue }
                isProgressing = true
                PipelineMetrics.claimed.increment()
                if item.deliveries >= Self.mostDeliveries {
                    try await setAside(entry, item.deliveries == Self.mostDeliveries, term)
                } else {
                    try await work([entry], term)
                }
            }
            // What cannot be claimed now was handed out a moment ago; the next round sees.
            if !isProgressing { return false }
        }
        return false
    }

    /// Takes over several as one batch.
    ///
    /// - Returns: whether there was anything to claim.
    private func takeOverTogether(
        _ items: [ConsumerGroup.Pending],
        _ group: ConsumerGroup,
        in term: LeaseClock.Term,
        _ work: Work
    ) async throws -> Bool {
        let entries = try await group.claim(items.map(\.id), idle: Self.idle)
        guard !entries.isEmpty else { return false }
        PipelineMetrics.claimed.increment(by: entries.count)
        try await work(entries, term)
        return true
    }

    /// Takes over several at once, each as a batch of its own.
    ///
    /// - Returns: whether there was anything to claim.
    private func takeOver(
        _ items: [ConsumerGroup.Pending],
        from consumer: String,
        _ group: ConsumerGroup,
        width: Int,
        _ work: @escaping Work
    ) async throws -> Bool {
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            var isProgressing = false
            var running = 0
            for item in items where goesOn {
                // Claimed only when its turn has come, so that it is not idle, and others may have it, while it waits.
                if running == width {
                    try await tasks.next()
                    running -= 1
                }
                guard let term = try await self.term(toTakeOver: consumer) else { break }
                guard let entry = try await group.claim(item.id, idle: Self.idle) else { continue }
                isProgressing = true
                running += 1
                PipelineMetrics.claimed.increment()
                tasks.addTask { try await work([entry], term) }
            }
            try await tasks.waitForAll()
            return isProgressing
        }
    }

    /// Works on what was handed out to this process in a reply that never arrived.
    private func findLost(_ pendingCount: Int, _ group: ConsumerGroup, _ work: Work) async throws {
        let known = self.dispatcher.inHand.count(of: group.stream)
        guard pendingCount > known else { return }
        for item in try await group.pending(of: self.dispatcher.name, count: known + Self.batchSize) {
            guard goesOn, let term = self.dispatcher.leaseClock.term else { return }
            if self.dispatcher.inHand.contains(item.id, of: group.stream) { continue }
            // Still idle if it really is lost; if the reply is only on its way, nothing is claimed.
            guard let entry = try await group.claim(item.id, idle: Self.lostReply) else { continue }
            PipelineMetrics.claimed.increment()
            try await work([entry], term)
        }
    }

    private func setAside(_ entry: StreamEntry, _ group: ConsumerGroup) async throws {
        let origin = JobOrigin(stream: group.stream, entry: entry.id, fields: entry.fields ?? [])
        let letter = DeadLetter(
            stream: origin.latestStream,
            entry: origin.latestEntry,
            reason: Self.deadlyReason,
            at: self.dispatcher.now(),
            fields: origin.latestFields
        )
        try await DeadLetterOffice(dispatcher: self.dispatcher).setAside([letter])
        try await self.dispatcher.acknowledge([entry.id], group)
    }
}
