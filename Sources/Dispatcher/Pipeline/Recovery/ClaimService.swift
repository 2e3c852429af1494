// Carillon · ClaimService.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Logging
import Model
import ServiceLifecycle
import Streams

/// Takes over the work of dispatchers whose lease is void, one entry at a time; and its own whose reply got lost.
///
/// An entry that was handed out before is worked on alone, so that one that kills its dispatcher takes no other with it;
/// after three such deaths it is set aside.
package struct ClaimService: Service {
    private static let interval: Duration = .seconds(3)
    /// Two that claim at once: the second finds the entry handed out just now, and lets it be.
    private static let idle: Duration = .seconds(5)
    /// No reply arrives this late: the call that would take it has ended (``LaneReader``).
    private static let lostReply: Duration = .seconds(10)
    private static let batchSize = 100
    /// The first time in a batch, then three times alone.
    private static let mostDeliveries = 4

    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]

    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
    }

    package func run() async throws {
        while goesOn {
            let overflows = OverflowStreams(connection: self.dispatcher.redis, keys: self.dispatcher.keys)
            for org in (try? await overflows.orgs()) ?? [] {
                let stream = self.dispatcher.keys.overflow(org)
                await self.claim(stream) { try await self.finishJob($0, .bulk, of: stream) }
            }
            for lane in Lane.allCases {
                let stream = self.dispatcher.keys.jobs(lane)
                await self.claim(stream) { try await self.finishJob($0, lane, of: stream) }
                for service in self.deliveries {
                    let stream = self.dispatcher.keys.deliveries(service.provider, lane)
                    await self.claim(stream) { entry in
                        try await service.sendAlone(
                            LaneBatch(lane: lane, group: self.dispatcher.group(stream), entries: [entry])
                        )
                    }
                }
            }
            // A lease that lapses tells nobody, so leases are looked at; well within the 30 s in which work is taken over.
            await pause(for: Self.interval)
        }
    }

    private func finishJob(_ entry: StreamEntry, _ lane: Lane, of stream: String) async throws {
        let group = self.dispatcher.group(stream)
        let batch = LaneBatch(lane: lane, group: group, entries: [entry])
        let stored = try await JobIntake(dispatcher: self.dispatcher).take(batch, areRepeats: true)
        try await Router(dispatcher: self.dispatcher).finish(stored)
    }

    private func claim(_ stream: String, _ work: (StreamEntry) async throws -> Void) async {
        let group = self.dispatcher.group(stream)
        do {
            for consumer in try await group.consumers() {
                if consumer.name == self.dispatcher.name {
                    try await self.findLost(consumer.pending, group, work)
                    continue
                }
                let lease = self.dispatcher.keys.dispatcherLease(consumer.name)
                if try await Lease.isHeld(lease, connection: self.dispatcher.redis) { continue }
                if try await self.takeOver(consumer.name, group, work) { try await group.remove(consumer.name) }
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
        _ work: (StreamEntry) async throws -> Void
    ) async throws -> Bool {
        while true {
            let pending = try await group.pending(of: consumer, count: Self.batchSize)
            guard !pending.isEmpty else { return true }
            var isProgressing = false
            for item in pending {
                if !goesOn { return false }
                guard let entry = try await group.claim(item.id, idle: Self.idle) else { continue }
                isProgressing = true
                PipelineMetrics.claimed.increment()
                if item.deliveries >= Self.mostDeliveries {
                    try await self.setAside(entry, group)
                } else {
                    try await work(entry)
                }
            }
            // What cannot be claimed now was handed out a moment ago; the next round sees.
            if !isProgressing { return false }
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
