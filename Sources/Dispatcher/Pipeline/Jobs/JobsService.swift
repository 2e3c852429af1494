// Carillon · JobsService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import ServiceLifecycle
import Storage

/// Processes the jobs of the three lanes until a shutdown, then finishes the batches that it has.
///
/// Three stages overlap: one batch is acknowledged while the next is routed and the one after that
/// is stored. Each stage is sequential, so a user's notifications go out in the order of their
/// versions.
package struct JobsService: Service {
    private static let batchSize = 256

    private let dispatcher: Dispatcher
    private let readers: [PartLane]
    private let executor: (any TaskExecutor)?
    private let overflow: OverflowGuard?

    /// - Parameters:
    ///   - readers: the lanes of all parts.
    ///   - overflow: when an organisation's jobs move to its overflow; nil for never.
    ///   - executor: where the stages run; nil for the cooperative pool.
    package init(
        dispatcher: Dispatcher,
        readers: [PartLane],
        executor: (any TaskExecutor)? = nil,
        overflow: OverflowPolicy? = nil
    ) {
        self.dispatcher = dispatcher
        self.readers = readers
        self.executor = executor
        self.overflow = overflow.map { OverflowGuard(dispatcher: dispatcher, policy: $0) }
    }

    package func run() async throws {
        try await withGracefulShutdownHandler {
            try await withTaskExecutorPreference(self.executor) { try await self.work() }
        } onGracefulShutdown: {
            self.dispatcher.leaveParts()
        }
    }

    private func work() async throws {
        // With room for one batch: after a flooded batch, its remaining jobs wait here and the next
        // read begins.
        let batches = LaneQueue<LaneBatch>(capacity: 1)
        // No room: under load, a queued batch stays small and only adds latency. All batches use
        // one lane of the queue, so that an inbox's versions go out in the order in which they were
        // stored.
        let stored = LaneQueue<StoredBatch>(capacity: 0)
        let routed = LaneQueue<StoredBatch>(capacity: 0)
        try await withThrowingDiscardingTaskGroup { group in
            group.addTask { try await self.read(into: batches) }
            if let overflow { group.addTask { await overflow.watch() } }
            group.addTask {
                // If this stage fails, releases the senders that wait for it.
                defer { batches.finish() }
                defer { stored.finish() }
                let intake = JobIntake(dispatcher: self.dispatcher)
                while let batch = await batches.receive() {
                    let batch = try await self.dispatcher.owned(batch)
                    guard !batch.entries.isEmpty else { continue }
                    await stored.send(try await intake.store(batch), lane: .critical)
                }
            }
            let router = Router(dispatcher: self.dispatcher)
            group.addTask {
                defer { stored.finish() }
                defer { routed.finish() }
                while let batch = await stored.receive() {
                    await routed.send(try await router.route(batch), lane: .critical)
                }
            }
            group.addTask {
                defer { routed.finish() }
                while let batch = await routed.receive() { try await router.acknowledge(batch) }
            }
        }
    }

    private func read(into queue: LaneQueue<LaneBatch>) async throws {
        defer { queue.finish() }
        try await withThrowingDiscardingTaskGroup { group in
            for one in self.readers {
                group.addTask { try await self.read(one, into: queue) }
            }
            // Always, because other dispatchers may have moved jobs.
            let reader = OverflowReader(dispatcher: self.dispatcher, lanes: self.overflow, queue: queue)
            group.addTask { await reader.run() }
        }
    }

    /// Reads a lane, and moves jobs that exceed their organisation's share to its overflow.
    ///
    /// Moves them before the queue, so that a flood takes up no stage.
    ///
    /// After a full batch, or a batch with jobs to move, it reads the next at once. Otherwise it
    /// waits until a stage is free, because a batch that is read too early is small and only waits.
    private func read(_ one: PartLane, into queue: LaneQueue<LaneBatch>) async throws {
        let group = self.dispatcher.group(one.keys.jobs(one.lane), in: one.keys)
        let reader = LaneReader(
            lane: one.lane, group: group, connection: one.connection, count: Self.batchSize,
            dispatcher: self.dispatcher)
        try await interruptible(one.connection, through: reader.group.connection) {
            try await withThrowingTaskGroup(of: Void.self) { moves in
                var reader = reader
                var moving = 0
                await queue.awaitNeed(of: one.lane)
                while let batch = await reader.next() {
                    if reader.isBehind { self.overflow?.recordBacklog() }
                    let batch = try await self.dispatcher.owned(batch)
                    let rest = self.overflow?.divert(batch, in: &moves, orInto: queue) ?? batch
                    if !rest.entries.isEmpty { await queue.send(rest, lane: one.lane) }
                    if rest.entries.count < batch.entries.count {
                        moving += 1
                        if moving == OverflowGuard.mostMoves {
                            try await moves.next()
                            moving -= 1
                        }
                    } else if !reader.isBehind, reader.unsent.isEmpty {
                        await queue.awaitNeed(of: one.lane)
                    }
                }
                try await moves.waitForAll()
            }
        }
    }
}
