// Carillon · DeliveriesService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import ServiceLifecycle
import Storage

/// Sends one provider's deliveries until the process shuts down, and finishes what it took.
package struct DeliveriesService: Service {
    private static let largestBatch = 256
    private static let settleBatch = 256
    /// The most recorded batches that are finished at once.
    private static let mostFinished = 16

    private let dispatcher: Dispatcher
    private let readers: [Lane: [PartLane]]
    private let calls: Int
    /// Half of the calls in flight: two more batches wait, and other dispatchers need work too.
    private var batchSize: Int { min(Self.largestBatch, self.calls / 2) }
    private let sender: DeliverySender
    private let settler: DeliverySettler

    /// - Parameters:
    ///   - calls: the most calls to the provider in flight.
    ///   - readers: the lanes of all parts.
    package init(
        dispatcher: Dispatcher,
        provider: Provider,
        calls: Int,
        readers: [PartLane]
    ) {
        self.dispatcher = dispatcher
        self.calls = calls
        self.readers = Dictionary(grouping: readers, by: \.lane)
        self.sender = DeliverySender(dispatcher: dispatcher, provider: provider, calls: calls)
        self.settler = DeliverySettler(dispatcher: dispatcher, provider: provider, metrics: self.sender.metrics)
    }

    package func run() async throws {
        let outcomes = BatchQueue<DeliveryOutcome>(capacity: 2 * self.calls)
        // Has room for all outcomes, so that calls are recorded while Redis is away.
        let recorded = BatchQueue<DeliverySettler.Recorded>(capacity: 2 * self.calls)
        let permits = LanePermits(self.calls)
        try await withThrowingDiscardingTaskGroup { group in
            group.addTask {
                defer { outcomes.finish() }
                try await withThrowingDiscardingTaskGroup { lanes in
                    for (lane, readers) in self.readers {
                        let batches = LaneQueue<LaneBatch>(capacity: 0)
                        // One batch is looked up while another waits for its calls, so that no
                        // permit stays unused.
                        let prepared = LaneQueue<DeliverySender.Prepared>(capacity: 0)
                        lanes.addTask { try await self.read(readers, into: batches) }
                        lanes.addTask {
                            try await self.prepare(batches, into: prepared, lane: lane, outcomes: outcomes)
                        }
                        lanes.addTask { await self.send(prepared, permits: permits, outcomes: outcomes) }
                    }
                }
            }
            group.addTask {
                defer { outcomes.finish() }
                defer { recorded.finish() }
                while let batch = await outcomes.next(limit: Self.settleBatch) {
                    await recorded.send(try await self.settler.record(batch))
                }
            }
            group.addTask {
                defer { recorded.finish() }
                while let batches = await recorded.next(limit: Self.mostFinished) {
                    try await self.settler.finish(batches)
                }
            }
        }
    }

    /// Sends the entries of a batch that was taken over one after the other, and settles them.
    func sendAlone(_ batch: LaneBatch) async throws {
        let outcomes = try await self.sender.sendAlone(batch)
        guard !outcomes.isEmpty else { return }
        try await self.settler.settle(outcomes)
    }

    /// Settles an entry whose dispatchers died, without a call.
    ///
    /// - Parameter isFirst: whether no dispatcher has tried this before. The second try skips the
    ///   lookup, because that may be what kills the dispatchers.
    func setAside(_ batch: LaneBatch, isFirst: Bool) async throws {
        try await self.settler.settle(try await self.sender.poisonOutcomes(batch, looksUp: isFirst))
    }

    var provider: Provider { self.settler.provider }
    var health: ProviderHealth { self.sender.health }
    var pauses: AccountPauses { self.sender.pauses }
    /// The most deliveries that ``RetryService`` lets wait in a stream: work for the calls until it
    /// looks again.
    var mostWaiting: Int { max(self.fewestRetries, 4 * self.calls / self.dispatcher.keys.parts.count) }
    /// The number of retries that even a full stream gets at a time.
    var fewestRetries: Int { max(1, self.calls / 8) }
    /// Whether deliveries are in flight or an account pauses.
    var isBusy: Bool {
        self.pauses.areKnown
            || self.readers.values.joined().contains { reader in
                self.dispatcher.inFlight.count(of: reader.keys.deliveries(self.provider, reader.lane)) > 0
            }
    }
    /// The results of calls since the process began.
    var counts: [ProviderCounts] { self.settler.tally.all }

    private func prepare(
        _ batches: LaneQueue<LaneBatch>,
        into prepared: LaneQueue<DeliverySender.Prepared>,
        lane: Lane,
        outcomes: BatchQueue<DeliveryOutcome>
    ) async throws {
        // If this stage fails, releases the senders that wait for it.
        defer { batches.finish() }
        defer { prepared.finish() }
        while let batch = await batches.receive() {
            let batch = try await self.sender.prepare(batch)
            for outcome in batch.ended { await outcomes.send(outcome) }
            await prepared.send(batch, lane: lane)
        }
    }

    /// Sends one lane's batches.
    private func send(
        _ prepared: LaneQueue<DeliverySender.Prepared>,
        permits: LanePermits,
        outcomes: BatchQueue<DeliveryOutcome>
    ) async {
        await withDiscardingTaskGroup { sends in
            while let batch = await prepared.receive() {
                await self.sender.send(batch, permits: permits, group: &sends) { await outcomes.send($0) }
            }
        }
    }

    /// Reads one lane of all parts.
    private func read(_ readers: [PartLane], into queue: LaneQueue<LaneBatch>) async throws {
        defer { queue.finish() }
        try await withThrowingDiscardingTaskGroup { group in
            for one in readers {
                let stream = one.keys.deliveries(self.provider, one.lane)
                let reader = LaneReader(
                    lane: one.lane, group: self.dispatcher.group(stream, in: one.keys), connection: one.connection,
                    count: self.batchSize, dispatcher: self.dispatcher)
                group.addTask { try await reader.run(into: queue) }
            }
        }
    }
}
