// Carillon · ClaimService.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Logging
import Model
import ServiceLifecycle
import Streams

/// Takes over the work of dispatchers whose lease is void; and its own whose reply got lost.
///
/// A job that was handed out before is worked on alone, so that one that kills its dispatcher takes no other with it; after
/// three such deaths it is set aside. A delivery waits for a provider, so that one by one would take minutes: the first time
/// it is taken over, several go at once, each by itself; from then on it is worked on alone as well. Each provider is seen to
/// by itself, so that one that hangs keeps nobody else's work waiting.
package struct ClaimService: Service {
    /// How the entries of a stream are worked on.
    private struct Pace {
        /// How many that were handed out once go at the same time.
        let width: Int
        /// How often an entry is handed out before it is set aside.
        let mostDeliveries: Int

        /// The first time in a batch, then three times alone.
        static let jobs = Pace(width: 1, mostDeliveries: 4)
        /// The first time in a batch, then beside others, then three times alone.
        static let deliveries = Pace(width: 16, mostDeliveries: 5)
    }

    private typealias Work = @Sendable (StreamEntry) async throws -> Void

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
            await self.claim(stream, .jobs) { try await self.finishJob($0, lane, of: stream) }
        }
        let overflows = OverflowStreams(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
        for org in (try? await overflows.orgs()) ?? [] {
            let stream = self.dispatcher.keys.overflow(org)
            await self.claim(stream, .jobs) { try await self.finishJob($0, .bulk, of: stream) }
        }
    }

    private func claimDeliveries(_ service: DeliveriesService) async {
        for lane in Lane.allCases {
            let stream = self.dispatcher.keys.deliveries(service.provider, lane)
            await self.claim(stream, .deliveries) { entry in
                try await service.sendAlone(
                    LaneBatch(lane: lane, group: self.dispatcher.group(stream), entries: [entry])
                )
            }
        }
    }

    private func finishJob(_ entry: StreamEntry, _ lane: Lane, of stream: String) async throws {
        let group = self.dispatcher.group(stream)
        let batch = LaneBatch(lane: lane, group: group, entries: [entry])
        let stored = try await JobIntake(dispatcher: self.dispatcher).take(batch, areRepeats: true)
        try await Router(dispatcher: self.dispatcher).finish(stored)
    }

    private func claim(_ stream: String, _ pace: Pace, _ work: @escaping Work) async {
        let group = self.dispatcher.group(stream)
        do {
            for consumer in try await group.consumers() {
                if consumer.name == self.dispatcher.name {
                    try await self.findLost(consumer.pending, group, work)
                    continue
                }
                let lease = self.dispatcher.keys.dispatcherLease(consumer.name)
                if try await Lease.isHeld(lease, connection: self.dispatcher.redis) { continue }
                if try await self.takeOver(consumer.name, group, pace, work) { try await group.remove(consumer.name) }
            }
        } catch {
            self.dispatcher.logger.warning(
                "work cannot be taken over",
                metadata: ["redis.stream": "\(stream)", "error": "\(error)"]
            )
        }
    }

    /// Takes over what a consumer left; whether nothing is left of it.
    private func takeOver(
        _ consumer: String,
        _ group: ConsumerGroup,
        _ pace: Pace,
        _ work: @escaping Work
    ) async throws -> Bool {
        while true {
            let pending = try await group.pending(of: consumer, count: Self.batchSize)
            guard !pending.isEmpty else { return true }
            var isProgressing = false
            let besideOthers = pace.width > 1 ? pending.filter { $0.deliveries <= 1 } : []
            if !besideOthers.isEmpty {
                isProgressing = try await self.takeOver(besideOthers, group, width: pace.width, work)
            }
            for item in pending where pace.width == 1 || item.deliveries > 1 {
                if !goesOn { return false }
                guard let entry = try await group.claim(item.id, idle: Self.idle) else { continue }
                isProgressing = true
                PipelineMetrics.claimed.increment()
                if item.deliveries >= pace.mostDeliveries {
                    try await self.setAside(entry, group)
                } else {
                    try await work(entry)
                }
            }
            // What cannot be claimed now was handed out a moment ago; the next round sees.
            if !isProgressing { return false }
        }
    }

    /// Takes over several at once, each as a batch of its own; whether there was anything to claim.
    private func takeOver(
        _ items: [ConsumerGroup.Pending],
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
                guard let entry = try await group.claim(item.id, idle: Self.idle) else { continue }
                isProgressing = true
                running += 1
                PipelineMetrics.claimed.increment()
                tasks.addTask { try await work(entry) }
            }
            try await tasks.waitForAll()
            return isProgressing
        }
    }

    /// Works on what was handed out to this process in a reply that never arrived.
    private func findLost(
        _ pendingCount: Int,
        _ group: ConsumerGroup,
        _ work: (StreamEntry) async throws -> Void
    ) async throws {
        let known = self.dispatcher.inHand.count(of: group.stream)
        guard pendingCount > known else { return }
        for item in try await group.pending(of: self.dispatcher.name, count: known + Self.batchSize) {
            if !goesOn { return }
            if self.dispatcher.inHand.contains(item.id, of: group.stream) { continue }
            // Still idle if it really is lost; if the reply is only on its way, nothing is claimed.
            guard let entry = try await group.claim(item.id, idle: Self.lostReply) else { continue }
            PipelineMetrics.claimed.increment()
            try await work(entry)
        }
    }

    private func setAside(_ entry: StreamEntry, _ group: ConsumerGroup) async throws {
        let origin = JobOrigin(stream: group.stream, entry: entry.id, fields: entry.fields ?? [])
        let letter = DeadLetter(
            stream: origin.latestStream,
            entry: origin.latestEntry,
            reason: "three dispatchers died while they worked on it alone",
            at: self.dispatcher.now(),
            fields: origin.latestFields
        )
        try await DeadLetterOffice(dispatcher: self.dispatcher).setAside([letter])
        try await self.dispatcher.acknowledge([entry.id], group)
    }
}
