// Carillon · ProofService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import ServiceLifecycle
import Storage

/// Falls back to push for notifications that no socket proved in time, whichever dispatcher
/// published them.
package struct ProofService: Service {
    /// Deadlines that pass within this time are handled together.
    private static let interval: Duration = .milliseconds(250)
    /// The longest time until the deadlines of a dispatcher that died are found.
    private static let longestInterval: Duration = .seconds(10)
    /// The wait after a failure.
    private static let pause: Duration = .seconds(1)
    private static let hold: Duration = .seconds(30)
    private static let batchSize = 128

    private let dispatcher: Dispatcher

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
    }

    package func run() async throws {
        await self.dispatcher.untilShutdown("cannot check proofs; retrying") {
            try await self.poll()
        } wait: {
            await self.dispatcher.alarms.proofs.wait(
                atLeast: Self.interval, atMost: Self.longestInterval, now: self.dispatcher.clock.now)
        }
    }

    /// Handles all that is due, and schedules the next look.
    ///
    /// One server of a cluster may be away; the shards of the others go on.
    ///
    /// - Throws: an error of a shard that failed, once the others are done.
    func poll() async throws {
        let now = self.dispatcher.now()
        let watched = self.dispatcher.share.takeShards()
        var failure: (any Error)?
        var shards: [Int] = []
        var kept: [Int] = []
        var next: Timestamp?
        let deadlines = await self.deadlines(of: watched)
        for (shard, result) in zip(watched, deadlines) {
            switch result {
            case .success(.none): continue
            case .success(.some(let deadline)):
                if deadline <= now { shards.append(shard) }
                next = min(next ?? deadline, deadline)
            case .failure(let error): failure = error
            }
            kept.append(shard)
        }
        self.dispatcher.share.watch(kept)
        if failure != nil { next = min(next ?? now + Self.pause, now + Self.pause) }
        if let next { self.dispatcher.alarms.proofs.schedule(at: max(next, now)) }
        // A batch of each shard in turn, so that a full shard delays no other.
        while !shards.isEmpty, isRunning {
            var full: [Int] = []
            for shard in shards {
                do {
                    if try await self.fallBack(shard) == Self.batchSize { full.append(shard) }
                } catch {
                    failure = error
                }
            }
            shards = full
        }
        if let failure { throw failure }
    }

    /// Returns the earliest deadline of each shard; if Redis is away, its error for each.
    private func deadlines(of shards: [Int]) async -> [Result<Timestamp?, RedisError>] {
        do throws(RedisError) {
            return try await self.dispatcher.live.proofDeadlines.earliest(of: shards)
        } catch {
            return Array(repeating: .failure(error), count: shards.count)
        }
    }

    /// Falls back for the due notifications of one shard.
    ///
    /// - Returns: how many were due.
    func fallBack(_ shard: Int) async throws -> Int {
        let set = self.dispatcher.live.proofDeadlines
        let fence = self.dispatcher.fence(for: Self.hold)
        let due = try await set.claimDue(
            shard: shard,
            now: self.dispatcher.now(),
            hold: Self.hold,
            limit: Self.batchSize
        )
        guard !due.isEmpty else { return 0 }
        // Retries, because claimed notifications are due again only after 30 s.
        let notifications = try await self.dispatcher.retrying("look up unproven notifications") {
            try await self.dispatcher.database.notifications.load(due.map { NotificationKey(user: $0.user, id: $0.id) })
        }
        let unproven = notifications.filter { notification in
            notification.status == .pending && notification.readAt == nil && notification.deletedAt == nil
        }
        try await self.settleSeen(notifications)
        let moment = self.dispatcher.now()
        // Another dispatcher may have claimed them; otherwise they are due again.
        guard fence.isOpen else { return due.count }
        try await self.dispatcher.retrying("record missing proofs") {
            try await self.dispatcher.database.deliveries.recordUnproven(unproven.map { $0.key }, at: moment)
        }
        try await Router(dispatcher: self.dispatcher).fallBack(unproven)
        // Removed only now that the deliveries stream has them.
        var batch = RedisBatch()
        set.remove(due, in: &batch)
        try await self.dispatcher.redis.run(batch)
        PipelineMetrics.unproven.increment(by: unproven.count)
        return due.count
    }

    /// Settles notifications that were read or deleted without proof; they need no push.
    private func settleSeen(_ notifications: [Notification]) async throws {
        let seen = notifications.filter { notification in
            notification.status == .pending && notification.statusReason == nil
                && (notification.readAt != nil || notification.deletedAt != nil)
        }
        guard !seen.isEmpty else { return }
        var plan = RoutePlan(for: self.dispatcher)
        for notification in seen {
            let reason: GateRefusal = notification.readAt != nil ? .read : .deleted
            plan.end(notification, .sent, reason: reason.rawValue, via: .socket, at: self.dispatcher.now())
        }
        try await Router(dispatcher: self.dispatcher).carryOut(plan)
        await self.dispatcher.report(plan.lifecycle)
    }
}
