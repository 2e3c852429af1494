// Carillon · RetentionService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import Operations
import ServiceLifecycle
import Storage

/// Deletes data that is older than the retention periods, in bounded steps, one dispatcher at a
/// time.
///
/// The turn only saves work: two dispatchers at once would find each other's rows deleted.
package struct RetentionService: Service {
    private static let interval: Duration = .seconds(60)
    static let batchSize = 500
    /// The most steps of one kind before the others get their turn.
    static let mostSteps = 100
    /// The most pages of broadcasts that one step deletes; a page is for 1,000 users.
    private static let mostBroadcastPages = 20_000
    private static let mostDeadLetters = 100_000
    static let deadLetterBatchSize = 5_000
    /// The most rows outside the audit's daily partitions that one step deletes.
    private static let strayBatchSize = 5_000
    /// The items of digests and their job ids are kept this long, or as long as notifications and
    /// their tombstones if that is shorter: they hold the same texts.
    private static let longestDigestItems: Duration = .seconds(90 * 86_400)
    /// A device that was switched off keeps its id this long, in case its token is registered
    /// again.
    private static let switchedOffDevices: Duration = .seconds(30 * 86_400)
    /// How long after its cancellation a job may arrive.
    ///
    /// It may then become a dead letter, so cancellations are kept for this much longer than dead
    /// letters.
    private static let lateJobs: Duration = .seconds(7 * 86_400)

    private let dispatcher: Dispatcher
    private let periods: RetentionSettings
    private let machine: @Sendable () -> Timestamp
    private let metrics: any MetricsFactory
    private let partitions: AuditPartitions
    private var store: RetentionStore { self.dispatcher.database.retention }

    /// - Parameter machine: this machine's clock, so that nothing is deleted early if PostgreSQL's
    ///   is wrong.
    package init(
        dispatcher: Dispatcher,
        periods: RetentionSettings,
        machine: @escaping @Sendable () -> Timestamp,
        metrics: any MetricsFactory = MetricsSystem.factory
    ) {
        self.dispatcher = dispatcher
        self.partitions = AuditPartitions(dispatcher: dispatcher)
        self.periods = periods
        self.machine = machine
        self.metrics = metrics
    }

    package func run() async throws {
        while isRunning {
            let next = ContinuousClock.now + Self.interval
            do {
                if try await self.takeTurn() {
                    let database = try await self.dispatcher.database.clock()
                    await self.remove(min(database, self.machine()), until: next)
                }
            } catch {
                self.warn(error)
            }
            // Nothing signals that data has grown old, so poll.
            await pause(for: next - ContinuousClock.now)
        }
    }

    /// Removes expired data of all kinds, until none is left or the time is over.
    private func remove(_ now: Timestamp, until end: ContinuousClock.Instant) async {
        var kinds = self.kinds
        while isRunning, !kinds.isEmpty, ContinuousClock.now < end {
            var unfinished: [Kind] = []
            for kind in kinds {
                // One kind that fails must not stop the others: a part of the audit may be in use.
                do {
                    if try await kind(now) { unfinished.append(kind) }
                } catch {
                    self.warn(error)
                }
            }
            kinds = unfinished
        }
    }

    private func warn(_ error: any Error) {
        self.dispatcher.logger.warning("retention failed; retrying in 60 s", metadata: ["error": "\(error)"])
    }

    private func takeTurn() async throws -> Bool {
        try await self.dispatcher.takeTurn(
            self.dispatcher.keys.retentionTurn, lifetime: Self.interval - .seconds(1))
    }

    /// Repeats a step until it removes less than a full batch.
    ///
    /// - Parameters:
    ///   - kind: the kind of data, as the metric names it.
    ///   - step: returns how much it has removed.
    /// - Returns: whether the steps were used up, so that more may be left.
    private func inSteps(
        _ kind: String,
        of size: Int = Self.batchSize,
        _ step: () async throws -> Int
    ) async throws -> Bool {
        for _ in 0..<Self.mostSteps where isRunning {
            let count = try await step()
            self.count(count, kind)
            if count < size { return false }
        }
        return true
    }

    /// Counts what was removed.
    private func count(_ count: Int, _ kind: String) {
        Counter(label: "carillon.retention.removed", dimensions: [("kind", kind)], factory: self.metrics)
            .increment(by: count)
    }

    // MARK: Kinds

    /// Removes data of one kind, and returns whether more may be left.
    private typealias Kind = (_ now: Timestamp) async throws -> Bool

    private var kinds: [Kind] {
        [
            self.audit, self.inboxes, self.tombstones, self.devices, self.cancellations, self.digestItems,
            self.broadcasts, self.deadLetters,
        ]
    }

    private func cancellations(_ now: Timestamp) async throws -> Bool {
        try await self.inSteps("cancellations") {
            try await self.store.dropCancellations(
                before: now - (Self.lateJobs + self.periods.deadLetters), limit: Self.batchSize)
        }
    }

    private func digestItems(_ now: Timestamp) async throws -> Bool {
        let kept = min(Self.longestDigestItems, self.periods.inbox + self.periods.tombstones)
        return try await self.inSteps("digest_items") {
            try await self.dispatcher.database.digests.forget(before: now - kept, limit: Self.batchSize)
        }
    }

    private func broadcasts(_ now: Timestamp) async throws -> Bool {
        // Bounded by pages, so only a step that deletes nothing is the last.
        try await self.inSteps("broadcasts", of: 1) {
            try await self.dispatcher.database.broadcasts.forget(
                before: now - .seconds(90 * 86_400), limit: Self.batchSize, pages: Self.mostBroadcastPages)
        }
    }

    private func audit(_ now: Timestamp) async throws -> Bool {
        let firstKept = now - self.periods.audit
        while isRunning, try await self.partitions.drop(firstKept: firstKept) { self.count(1, "audit_days") }
        return try await self.inSteps("audit_rows", of: Self.strayBatchSize) {
            try await self.store.dropStrayAttempts(firstKept: firstKept, limit: Self.strayBatchSize)
        }
    }

    private func inboxes(_ now: Timestamp) async throws -> Bool {
        let hasStored = try await self.inSteps("notifications") {
            let step = try await self.store.expireInboxes(
                storedBefore: now - self.periods.inbox, now: now, limit: Self.batchSize)
            try await self.publish(step)
            return step.found
        }
        let hasKept = try await self.inSteps("notifications") {
            let step = try await self.store.expireKept(now: now, limit: Self.batchSize)
            try await self.publish(step)
            return step.found
        }
        return hasStored || hasKept
    }

    /// Publishes deletions to sockets; one that misses them sees a gap at its next frame, and fills
    /// it.
    private func publish(_ step: RetentionStore.Step) async throws {
        guard !step.removals.isEmpty else { return }
        let now = self.dispatcher.now()
        let frames = step.removals.map { removal in
            NodeFrame.change(
                .deleted, user: removal.user, version: removal.version, unread: removal.unread, .ids(removal.ids),
                at: now)
        }
        let publisher = FramePublisher(self.dispatcher.live, presence: self.dispatcher.presence)
        do throws(RedisError) {
            try await publisher.publish(frames)
        } catch {
            self.dispatcher.logger.warning(
                "cannot publish deletions; sockets resync at the next frame", metadata: ["error": "\(error)"])
        }
    }

    private func tombstones(_ now: Timestamp) async throws -> Bool {
        try await self.inSteps("tombstones") {
            try await self.store.removeTombstones(
                deletedBefore: now - self.periods.tombstones, limit: Self.batchSize)
        }
    }

    private func devices(_ now: Timestamp) async throws -> Bool {
        let hasStale = try await self.inSteps("devices") {
            try await self.store.deactivateDevices(
                unseenSince: now - self.periods.devices, now: now, limit: Self.batchSize)
        }
        let hasSwitchedOff = try await self.inSteps("switched_off_devices") {
            try await self.store.dropDevices(
                switchedOffBefore: now - Self.switchedOffDevices, limit: Self.batchSize)
        }
        return hasStale || hasSwitchedOff
    }

    private func deadLetters(_ now: Timestamp) async throws -> Bool {
        let hasOld = try await self.inSteps("dead_letters", of: Self.deadLetterBatchSize) {
            try await self.store.dropDeadLetters(
                before: now - self.periods.deadLetters, limit: Self.deadLetterBatchSize)
        }
        let hasExcess = try await self.inSteps("excess_dead_letters", of: Self.deadLetterBatchSize) {
            try await self.store.dropDeadLetters(keeping: Self.mostDeadLetters, limit: Self.deadLetterBatchSize)
        }
        return hasOld || hasExcess
    }
}
