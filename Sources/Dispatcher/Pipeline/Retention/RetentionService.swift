// Carillon · RetentionService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Storage

/// Takes away what has been kept long enough, in bounded steps, one dispatcher at a time.
///
/// Two that do so at once would find each other's work done, so the turn only spares them the looking.
package struct RetentionService: Service {
    /// For how long what is kept.
    package struct Periods: Sendable {
        package var audit: Duration
        package var inbox: Duration
        package var tombstones: Duration
        package var devices: Duration
        package var deadLetters: Duration

        /// - Parameters: days.
        package init(audit: Int, inbox: Int, tombstones: Int, devices: Int, deadLetters: Int) {
            func days(_ count: Int) -> Duration { .seconds(count * 86_400) }
            self.audit = days(audit)
            self.inbox = days(inbox)
            self.tombstones = days(tombstones)
            self.devices = days(devices)
            self.deadLetters = days(deadLetters)
        }
    }

    private static let interval: Duration = .seconds(60)
    private static let batchSize = 500
    /// Steps of one kind in a round; what is left waits for the next.
    private static let mostSteps = 100
    private static let mostDeadLetters = 100_000
    /// How long a device that was switched off keeps its id, in case its token is registered again.
    private static let switchedOffDevices: Duration = .seconds(30 * 86_400)

    private let dispatcher: Dispatcher
    private let store: RetentionStore
    private let periods: Periods

    package init(dispatcher: Dispatcher, store: RetentionStore, periods: Periods) {
        self.dispatcher = dispatcher
        self.store = store
        self.periods = periods
    }

    package func run() async throws {
        while goesOn {
            do {
                if try await self.takeTurn() {
                    let now = try await self.dispatcher.notifications.clock()
                    for work in self.kinds {
                        // One kind that fails, as a part of the audit is being read, holds up no other.
                        do { try await work(now) } catch { self.warn(error) }
                    }
                }
            } catch {
                self.warn(error)
            }
            // Age comes by itself and tells nobody.
            await pause(for: Self.interval)
        }
    }

    private func warn(_ error: any Error) {
        self.dispatcher.logger.warning("retention failed", metadata: ["error": "\(error)"])
    }

    private func takeTurn() async throws -> Bool {
        let milliseconds = Self.interval.inMicroseconds / 1_000 - 1_000
        let reply = try await self.dispatcher.redis.send(
            "SET", .text(self.dispatcher.keys.retentionTurn), .text(self.dispatcher.name), "NX", "PX",
            .integer(milliseconds)
        )
        return try reply.string() != nil
    }

    /// Repeats a step until it finds less than it asked for.
    private func inSteps(_ step: () async throws -> Int) async throws {
        for _ in 0..<Self.mostSteps where goesOn {
            if try await step() < Self.batchSize { return }
        }
    }

    // MARK: Kinds

    private var kinds: [(_ now: Timestamp) async throws -> Void] {
        [self.audit, self.inboxes, self.tombstones, self.devices, self.cancellations, self.deadLetters]
    }

    private func cancellations(_ now: Timestamp) async throws {
        try await self.inSteps {
            try await self.store.dropCancellations(
                before: now + (.zero - .seconds(7 * 86_400)), limit: Self.batchSize)
        }
    }

    private func audit(_ now: Timestamp) async throws {
        while goesOn, let part = try await self.store.dropAttemptPart(firstKept: now + (.zero - self.periods.audit)) {
            RetentionMetrics.parts.increment()
            self.dispatcher.logger.info("part of the audit dropped", metadata: ["part": "\(part)"])
        }
    }

    private func inboxes(_ now: Timestamp) async throws {
        try await self.inSteps {
            let step = try await self.store.expireInboxes(
                storedBefore: now + (.zero - self.periods.inbox), limit: Self.batchSize)
            try await self.tell(step)
            return step.found
        }
        try await self.inSteps {
            let step = try await self.store.expireKept(now: now, limit: Self.batchSize)
            try await self.tell(step)
            return step.found
        }
    }

    /// Tells the sockets; one that misses it finds a hole before its next frame, and fills it.
    private func tell(_ step: RetentionStore.Step) async throws {
        RetentionMetrics.notifications.increment(by: step.found)
        guard !step.removals.isEmpty else { return }
        let now = self.dispatcher.now()
        let frames = step.removals.map { removal in
            NodeFrame(
                kind: .deleted,
                user: removal.user,
                previous: removal.version - 1,
                version: removal.version,
                unread: removal.unread,
                body: InboxChangeShape.encode(.ids(removal.ids), at: now)
            )
        }
        let publisher = FramePublisher(
            self.dispatcher.live, presence: self.dispatcher.presence)
        do throws(RedisError) {
            try await publisher.publish(frames)
        } catch {
            self.dispatcher.logger.warning("deletions not told to sockets", metadata: ["error": "\(error)"])
        }
    }

    private func tombstones(_ now: Timestamp) async throws {
        try await self.inSteps {
            let count = try await self.store.removeTombstones(
                deletedBefore: now + (.zero - self.periods.tombstones), limit: Self.batchSize)
            RetentionMetrics.tombstones.increment(by: count)
            return count
        }
    }

    private func devices(_ now: Timestamp) async throws {
        try await self.inSteps {
            let count = try await self.store.deactivateDevices(
                unseenSince: now + (.zero - self.periods.devices), now: now, limit: Self.batchSize)
            RetentionMetrics.devices.increment(by: count)
            return count
        }
        try await self.inSteps {
            try await self.store.dropDevices(
                switchedOffBefore: now + (.zero - Self.switchedOffDevices), limit: Self.batchSize)
        }
    }

    private func deadLetters(_ now: Timestamp) async throws {
        let count = try await self.store.dropDeadLetters(
            before: now + (.zero - self.periods.deadLetters), keeping: Self.mostDeadLetters)
        RetentionMetrics.deadLetters.increment(by: count)
    }
}
