// Carillon · SweepService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import ServiceLifecycle
import Storage

/// Routes notifications again that had no owner for two minutes, and enqueues again what Redis may
/// have lost.
///
/// So even an emptied Redis loses nothing that PostgreSQL has. The service also creates the audit's
/// partitions for the days ahead.
package struct SweepService: Service {
    private static let age: Duration = .seconds(120)
    private static let batchSize = 256
    /// How far back deliveries may have waited in Redis.
    private static let memory: Duration = .seconds(7 * 24 * 3_600)
    /// How long before the last known heartbeat a loss may begin: clocks differ by seconds, and a
    /// row's moment may be `NotificationSQL.handOver` (30 s) before its enqueue.
    private static let slack: Duration = .seconds(15 + 30)
    /// The most waiting deliveries that a repair or a sweep remembers, in about 40 MB.
    static let mostWaiting = 2_000_000

    private let dispatcher: Dispatcher
    private let interval: Duration
    private let turn: SweepTurn
    private let partitions: AuditPartitions
    private let firstUnknownRun = FirstTime()

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
        // 20 s with the usual lease.
        self.interval = dispatcher.clock.lease * 4 / 3
        self.turn = SweepTurn(dispatcher: dispatcher, lifetime: self.interval - .seconds(1))
        self.partitions = AuditPartitions(dispatcher: dispatcher)
    }

    package func run() async throws {
        await self.dispatcher.untilShutdown("sweep failed; retrying at the next interval") {
            try await self.sweep()
        } wait: {
            // Nothing signals that a row has lost its owner, so poll.
            await pause(for: self.interval)
        }
    }

    /// Sweeps once, and creates the audit's partitions if they are due; one dispatcher at a time.
    ///
    /// All rows are routed in one round, in slices that one statement can read; after a long
    /// outage, or a loss of Redis, there may be millions. The next round finds what still waits for
    /// its proof, or for a master of a cluster that is away.
    ///
    /// - Parameters:
    ///   - sliceSize: the rows that a statement of the sweep reads at most.
    ///   - repairSize: the rows of either kind that a statement of the repair reads at most. It is
    ///     lower, as rows handed on together may be far apart on disk.
    func sweep(sliceSize: Int = 50_000, repairSize: Int = 10_000) async throws {
        guard try await self.turn.take() else { return }
        // Partitions come last, as they may take long and exist seven days ahead.
        do {
            try await self.route(sliceSize: sliceSize, repairSize: repairSize)
        } catch {
            // A lasting failure must not keep the audit without partitions.
            try? await self.createPartitions()
            throw error
        }
        try await self.createPartitions()
    }

    /// Creates the audit's partitions if they are due.
    private func createPartitions() async throws {
        guard isRunning, self.partitions.areDue else { return }
        try await self.turn.renew()
        try await self.partitions.create()
    }

    /// Repairs what Redis or PostgreSQL may have lost, and routes unowned notifications again.
    private func route(sliceSize: Int, repairSize: Int) async throws {
        let now = try await self.dispatcher.database.clock()
        let finding = try await self.look(now: now)
        // Repair first: work that was being enqueued at `now` looks lost, and more of it does the
        // later the repair reads.
        try await self.repair(finding, now: now, sliceSize: repairSize)
        try await self.routeUnowned(before: now - Self.age, sliceSize: sliceSize, but: finding.absent)
    }

    /// Routes all unowned notifications again, slice by slice.
    private func routeUnowned(before: Timestamp, sliceSize: Int, but absent: AbsentParts) async throws {
        let store = self.dispatcher.database.sweep
        // Shared, so that all pages together read the waiting deliveries once.
        let router = Router(
            dispatcher: self.dispatcher, waiting: WaitingRetries(self.dispatcher.live, most: Self.mostWaiting))
        var slice = try await store.slice(before: before, size: sliceSize)
        var isClear = true
        while isRunning {
            try await self.route(slice, router, but: absent)
            // The watermark stops before the first row that still has no owner.
            if isClear { isClear = try await store.advance(before: slice.end) }
            guard slice.end < before else { break }
            slice = try await store.slice(after: slice, before: before, size: sliceSize)
            // All slices together may take longer than a turn lasts.
            try await self.turn.renew()
        }
    }

    /// Routes the unowned notifications of a slice again, page by page.
    private func route(
        _ slice: SweepStore.Slice,
        _ router: Router,
        but absent: AbsentParts
    ) async throws {
        var last: SweepStore.Unowned?
        while isRunning {
            // Another dispatcher may sweep once the turn is over.
            let fence = self.dispatcher.fence(for: self.turn.lifetime)
            let page = try await self.dispatcher.database.sweep.unowned(
                in: slice,
                after: last,
                limit: Self.batchSize
            )
            last = page.last
            guard last != nil else { break }
            let reachable = page.filter { !absent.contains($0.notification.user) }
            if !reachable.isEmpty {
                try await router.route(
                    reachable.map { RoutedNotification($0.notification, .stored, unread: $0.unread, isRepeat: true) },
                    within: fence)
                // Those that only sockets can get stay unowned in normal operation if none proves
                // receipt.
                self.dispatcher.recordSwept(
                    "found unowned notifications; routed them again",
                    reachable.count { $0.notification.channels != .inApp })
            }
            try await self.turn.renew()
        }
    }

    // MARK: A store that went back

    /// The state of Redis and PostgreSQL, compared with the notes of the last sweep.
    private struct Finding {
        /// The span in which something may be lost; nil if nothing is.
        let lost: Repair.Span?
        /// A lost span ahead of now; nil unless PostgreSQL's clock has stepped back.
        let lostAhead: Repair.Span?
        /// The notes to write once that is repaired.
        let notes: RedisBatch
        /// The parts whose master in a cluster is away.
        ///
        /// Their notes stay unchanged, so the first sweep that reaches the master again repairs
        /// them.
        let absent: AbsentParts
    }

    /// Enqueues again what Redis may have lost, if a server is not the process that the last sweep
    /// saw.
    ///
    /// A server that restarted or failed over may lack its last second of writes. The attempts show
    /// what a provider has accepted meanwhile. Another dispatcher may write to the former master
    /// for some seconds more, so a later sweep repairs once more.
    ///
    /// A PostgreSQL that was restored to an earlier state lacks the ends of deliveries that Redis
    /// has finished, so everything that it still has as queued is enqueued again.
    private func repair(_ finding: Finding, now: Timestamp, sliceSize: Int) async throws {
        if let lost = finding.lost {
            try await Repair(
                dispatcher: self.dispatcher, turn: self.turn, absent: finding.absent, now: now, sliceSize: sliceSize
            ).run(lost, ahead: finding.lostAhead)
        }
        let redis = self.dispatcher.redis
        // Last, so that an interrupted round starts over.
        for reply in try await redis.send(finding.notes, isPatient: false) {
            if redis.isCluster, case .error(let error) = reply, error.isOfAbsentServer { continue }
            _ = try reply.checked()
        }
    }

    /// Asks all masters of Redis which process they are, and compares that with their notes.
    private func look(now: Timestamp) async throws -> Finding {
        let epoch = try await self.dispatcher.database.epoch()
        let redis = self.dispatcher.redis
        let oldest = now - Self.memory
        var lostSince: [Timestamp] = []
        var ahead: [Timestamp] = []
        var notes = RedisBatch()
        self.dispatcher.live.writeParts(in: &notes)
        // Without this note, an emptied Redis would let in the dispatchers of another database.
        if let identity = try await self.dispatcher.database.layout.identity() {
            self.dispatcher.live.claim(for: identity, in: &notes)
        }
        var absent = AbsentParts(self.dispatcher.keys)
        // Asks an absent master once: each call may take seconds, and the turn does not last.
        var errors: [String: RedisError] = [:]
        for key in self.dispatcher.keys.runNotes {
            let master = redis.master(of: key)
            if let error = errors[master] {
                absent.add(key, error)
                continue
            }
            let run: RedisRun
            do throws(RedisError) {
                run = try await RedisRun.ask(redis, note: key)
            } catch {
                guard redis.isCluster, error.isOfAbsentServer else { throw error }
                errors[master] = error
                absent.add(key, error)
                continue
            }
            if run.id == nil, self.firstUnknownRun.take() {
                self.dispatcher.logger.warning(
                    "Redis hides its run_id, so the dispatcher cannot notice lost data; allow INFO for its user")
            }
            let finding = run.finding(now: now, epoch: epoch, oldest: oldest)
            if let moment = finding.lostSince { lostSince.append(moment) }
            ahead += (run.note?.moments ?? []).filter { $0 > now && $0 < now + Self.memory }
            notes.append("SET", .text(key), .text(finding.note))
        }
        if let error = absent.error {
            self.dispatcher.logger.notice(
                "a cluster master is unreachable; the sweep skips its parts until it returns",
                metadata: ["error": "\(error)"])
        }
        // PostgreSQL's clock has stepped back if it is behind a note. Rows that were stored between
        // that note and the step have moments ahead of now.
        let first = (ahead.min() ?? now) - Self.slack
        let last = (ahead.max() ?? now) + self.interval + Self.slack
        return Finding(
            lost: lostSince.min().map { Repair.Span(since: max($0 - Self.slack, oldest), until: now) },
            lostAhead: ahead.isEmpty ? nil : Repair.Span(since: max(first, now), until: last),
            notes: notes, absent: absent)
    }
}

/// The turn to sweep, which one dispatcher at a time has.
///
/// Two sweeps at once would be harmless but publish and push twice.
struct SweepTurn: Sendable {
    let dispatcher: Dispatcher
    let lifetime: Duration

    /// Takes the turn, unless another dispatcher has it.
    func take() async throws -> Bool {
        try await self.dispatcher.takeTurn(self.dispatcher.keys.sweepTurn, lifetime: self.lifetime)
    }

    /// Renews the turn.
    func renew() async throws {
        try await self.dispatcher.redis.send(
            "SET", .text(self.dispatcher.keys.sweepTurn), .text(self.dispatcher.name), "XX", "PX",
            .integer(self.lifetime.inMilliseconds))
    }
}

extension Dispatcher {
    /// Counts and logs rows that were enqueued again.
    func recordSwept(_ message: Logger.Message, _ count: Int) {
        guard count > 0 else { return }
        PipelineMetrics.swept.increment(by: count)
        self.logger.info(message, metadata: ["count": "\(count)"])
    }
}
