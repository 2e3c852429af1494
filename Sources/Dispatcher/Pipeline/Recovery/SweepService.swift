// Carillon · SweepService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Storage
import Synchronization

/// Routes notifications again that had no owner for two minutes, and enqueues again what Redis may
/// have lost.
///
/// So even an emptied Redis loses nothing that PostgreSQL has. The service also creates the audit's
/// partitions for the days ahead, and ends the database sessions of stalled processes.
package struct SweepService: Service {
    private static let age: Duration = .seconds(120)
    private static let batchSize = 256
    /// The notifications that a statement of the repair inspects for lost deliveries; few have any.
    private static let lostBatchSize = 512
    /// How far back deliveries may have waited in Redis.
    private static let memory: Duration = .seconds(7 * 24 * 3_600)
    /// Redis has lost nothing from before a heartbeat that it still has, but clocks differ by
    /// seconds, and a row's moment may be `NotificationSQL.handOver` (30 s) before its enqueue.
    private static let slack: Duration = .seconds(15 + 30)
    /// How far back a push may still be retried for a device; bulk gives up after a day.
    private static let tries: Duration = .seconds(2 * 24 * 3_600)
    /// The most waiting deliveries that a repair or a sweep remembers, in about 40 MB.
    private static let mostWaiting = 2_000_000
    /// How often a dispatcher creates the audit's partitions, and how long none tries after one has
    /// failed.
    private static let partsInterval: Duration = .seconds(3_600)
    private static let partsPause: Duration = .seconds(600)
    /// How often a dispatcher looks for sessions of stalled processes.
    private static let sessionsInterval: Duration = .seconds(10)

    private let dispatcher: Dispatcher
    private let interval: Duration
    private let sessionLimit: Duration
    private let firstUnknownRun = FirstTime()
    /// When to create the audit's partitions next.
    private let partsDue = DueTime()

    /// - Parameter sessionLimit: how long a session may wait for its process in a transaction.
    package init(dispatcher: Dispatcher, sessionLimit: Duration = SessionStore.longestWait) {
        self.dispatcher = dispatcher
        self.sessionLimit = sessionLimit
        // 20 s with the usual lease.
        self.interval = dispatcher.clock.lease * 4 / 3
    }

    package func run() async throws {
        // Apart from the sweep, which may itself wait for the locks of such a session.
        async let sessions: Void = self.watchSessions()
        await self.dispatcher.untilShutdown("sweep failed; retrying at the next interval") {
            try await self.sweep()
        } wait: {
            // Nothing signals that a row has lost its owner, so poll.
            await pause(for: self.interval)
        }
        await sessions
    }

    /// Ends the database sessions of stalled processes as long as the service runs.
    ///
    /// All dispatchers do so, without Redis; two at once do no harm.
    private func watchSessions() async {
        await self.dispatcher.untilShutdown(
            "cannot end the database sessions of stalled processes; retrying every 10 s"
        ) {
            do throws(PostgresError) {
                try await self.endStalledSessions()
            } catch {
                // Other services report a PostgreSQL that does not answer.
                if !error.isTransient { throw error }
            }
        } wait: {
            // PostgreSQL does not signal that a client has stalled, so poll.
            await pause(for: Self.sessionsInterval)
        }
    }

    /// Ends the database sessions of stalled processes, whose locks hold up the others.
    func endStalledSessions() async throws(PostgresError) {
        for session in try await self.dispatcher.database.sessions.endStalled(after: self.sessionLimit) {
            self.dispatcher.logger.warning(
                "a process stalled in a transaction; ended its database session",
                metadata: [
                    "session": "\(session.program), process \(session.process)",
                    "session.seconds": "\(session.seconds)",
                ])
        }
    }

    /// Creates the audit's partitions for the days ahead if they are due, unless a dispatcher has
    /// just failed to.
    ///
    /// A dump prevents this while it reads, which does no harm: they exist seven days ahead. Each
    /// try may keep the audit from being written, so all dispatchers pause after a failure.
    private func makeParts() async throws {
        guard isRunning, self.partsDue.isOver else { return }
        try await self.holdTurn()
        let (redis, failure) = (self.dispatcher.redis, RedisArgument.text(self.dispatcher.keys.partsFailure))
        let pause = Self.partsPause.inMilliseconds
        let left = try await redis.send("PTTL", failure).integer()
        // A longer pause counts as over: Redis's clock has stepped back.
        guard left <= 0 || left > pause else { return }
        do {
            try await self.dispatcher.database.deliveries.makeAttemptParts()
            self.partsDue.set(in: Self.partsInterval)
        } catch {
            self.dispatcher.logger.warning(
                "cannot create the audit's partitions; retrying in ten minutes", metadata: ["error": "\(error)"])
            try await redis.send("SET", failure, "", "PX", .integer(pause))
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
        guard try await self.takeTurn() else { return }
        // Partitions come last, as they may take long and exist seven days ahead.
        do {
            try await self.route(sliceSize: sliceSize, repairSize: repairSize)
        } catch {
            // A lasting failure must not keep the audit without partitions.
            try? await self.makeParts()
            throw error
        }
        try await self.makeParts()
    }

    /// Repairs what Redis or PostgreSQL may have lost, and routes unowned notifications again.
    private func route(sliceSize: Int, repairSize: Int) async throws {
        let now = try await self.dispatcher.database.notifications.clock()
        let finding = try await self.look(now: now)
        // At once: the later it looks, the more it finds that was being handed on at `now`.
        try await self.repair(finding, now: now, sliceSize: repairSize)
        try await self.routeUnowned(before: now - Self.age, sliceSize: sliceSize, but: finding.absent)
    }

    /// Routes all unowned notifications again, slice by slice.
    private func routeUnowned(before: Timestamp, sliceSize: Int, but absent: AbsentParts) async throws {
        let notifications = self.dispatcher.database.notifications
        // Shared, so that all pages together read the waiting deliveries once.
        let router = Router(
            dispatcher: self.dispatcher, waiting: WaitingRetries(self.dispatcher.live, most: Self.mostWaiting))
        var slice = try await notifications.sweepSlice(before: before, size: sliceSize)
        var isClear = true
        while isRunning {
            try await self.route(slice, router, but: absent)
            // Stops before the first row that still has no owner.
            if isClear { isClear = try await notifications.advanceSweep(before: slice.end) }
            guard slice.end < before else { break }
            slice = try await notifications.sweepSlice(after: slice, before: before, size: sliceSize)
            // All slices together may take longer than a turn lasts.
            try await self.holdTurn()
        }
    }

    /// Routes the unowned notifications of a slice again, page by page.
    private func route(
        _ slice: NotificationStore.SweepSlice,
        _ router: Router,
        but absent: AbsentParts
    ) async throws {
        var last: NotificationStore.Unowned?
        while isRunning {
            // Another dispatcher may sweep once the turn is over.
            let fence = self.dispatcher.fence(for: self.turn)
            let page = try await self.dispatcher.database.notifications.unowned(
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
                self.note(
                    "found unowned notifications; routed them again",
                    reachable.count { $0.notification.channels != .inApp })
            }
            try await self.holdTurn()
        }
    }

    /// Counts and logs rows that were enqueued again.
    private func note(_ message: Logger.Message, _ count: Int) {
        guard count > 0 else { return }
        PipelineMetrics.swept.increment(by: count)
        self.dispatcher.logger.info(message, metadata: ["count": "\(count)"])
    }

    // MARK: A store that went back

    /// The state of Redis and PostgreSQL, compared with the notes of the last sweep.
    private struct Finding {
        /// The moment since which something may be lost; nil if nothing is.
        let lostSince: Timestamp?
        /// A lost span ahead of now; nil unless PostgreSQL's clock has stepped back.
        let lostAhead: (since: Timestamp, until: Timestamp)?
        /// The notes to write once that is repaired.
        let notes: RedisBatch
        /// The parts whose master in a cluster is away.
        ///
        /// Their notes stay, so the first sweep that finds it again repairs them.
        let absent: AbsentParts
    }

    /// Enqueues again what Redis may have lost, if a server is not the process that the last sweep
    /// saw.
    ///
    /// One that restarted or failed over may lack its last second. The attempts tell what a
    /// provider has accepted meanwhile. Another dispatcher may write to the former master for some
    /// seconds more, so a later sweep repairs these once again.
    ///
    /// A PostgreSQL that went back lacks the ends of deliveries that Redis has finished, so
    /// everything that it has as queued is enqueued again.
    private func repair(_ finding: Finding, now: Timestamp, sliceSize: Int) async throws {
        if let lostSince = finding.lostSince {
            try await self.enqueueAgain(
                since: lostSince, ahead: finding.lostAhead, now: now, sliceSize: sliceSize, but: finding.absent)
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
        let epoch = try await self.dispatcher.database.notifications.epoch()
        let redis = self.dispatcher.redis
        let oldest = now - Self.memory
        var lostSince: [Timestamp] = []
        var ahead: [Timestamp] = []
        var notes = RedisBatch()
        self.dispatcher.live.noteParts(in: &notes)
        // An emptied Redis would let in the dispatchers of another database.
        if let identity = try await self.dispatcher.database.outbox.identity() {
            self.dispatcher.live.noteInstallation(identity, in: &notes)
        }
        var absent = AbsentParts(self.dispatcher.keys)
        // Asks an absent master once: each call may take seconds, and the turn does not last.
        var errors: [String: RedisError] = [:]
        for key in self.dispatcher.keys.memories {
            let master = redis.master(of: key)
            if let error = errors[master] {
                absent.add(key, error)
                continue
            }
            let run: RedisRun
            do throws(RedisError) {
                run = try await RedisRun.ask(redis, memory: key)
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
                "a master of the cluster is away; the sweep leaves out its parts until it is back",
                metadata: ["error": "\(error)"])
        }
        // PostgreSQL's clock has stepped back if it is behind a note. What was stored between that
        // note and the step has a later moment.
        let first = (ahead.min() ?? now) - Self.slack
        let last = (ahead.max() ?? now) + self.interval + Self.slack
        return Finding(
            lostSince: lostSince.min().map { max($0 - Self.slack, oldest) },
            lostAhead: ahead.isEmpty ? nil : (since: max(first, now), until: last),
            notes: notes, absent: absent)
    }

    /// Enqueues again what may have been lost since a moment, and in a span ahead of now.
    private func enqueueAgain(
        since: Timestamp,
        ahead: (since: Timestamp, until: Timestamp)?,
        now: Timestamp,
        sliceSize: Int,
        but absent: AbsentParts
    ) async throws {
        self.dispatcher.logger.notice(
            "Redis or PostgreSQL has changed or went back; enqueueing again what may have been lost",
            metadata: ["since": "\(since.rfc3339)"]
        )
        var spans = [(since: since, until: now)]
        // First, because what is enqueued again gets a moment after `now`, inside this span, and
        // would be found again.
        if let ahead { spans.insert(ahead, at: 0) }
        let waiting = WaitingRetries(self.dispatcher.live, most: Self.mostWaiting)
        let router = Router(dispatcher: self.dispatcher, waiting: waiting)
        for (since, until) in spans {
            try await self.recallFollowUps(since: since, until: until, now: now)
            try await self.pushQueued(since: since, until: until, sliceSize: sliceSize, router, but: absent)
            try await self.repeatLost(
                since: max(since, now - Self.tries), until: until, now: now, sliceSize: sliceSize, router, but: absent)
        }
        let unread = await waiting.unread
        if unread > 0 {
            self.dispatcher.logger.warning(
                "too many deliveries wait for a retry or are held back; the repair may have sent some of them early",
                metadata: ["count": "\(unread)"])
        }
    }

    /// Enqueues pushes again that wait for a provider, page by page, oldest first.
    private func pushQueued(
        since: Timestamp,
        until: Timestamp,
        sliceSize: Int,
        _ router: Router,
        but absent: AbsentParts
    ) async throws {
        try await self.inSlices(since: since, until: until, size: sliceSize) { start, end, place in
            let (page, last) = try await self.dispatcher.database.notifications.queued(
                handedOnSince: start, until: end, after: place, limit: Self.batchSize)
            let reachable = page.filter { !absent.contains($0.user) }
            try await router.pushAgain(reachable)
            self.note("found queued notifications; enqueued them again", reachable.count)
            return last
        }
    }

    /// Makes follow-ups due again that were handed to a provider, page by page, oldest first.
    private func recallFollowUps(since: Timestamp, until: Timestamp, now: Timestamp) async throws {
        let followUps = self.dispatcher.database.followUps
        try await followUps.recallExpected(now: now)
        var place: Timestamp? = since
        while let from = place {
            // The next sweep starts over.
            guard isRunning else { throw CancellationError() }
            place = try await followUps.recall(handedOnSince: from, until: until, now: now)
            try await self.holdTurn()
        }
    }

    /// Enqueues deliveries again that waited for one device while another had ended the
    /// notification.
    private func repeatLost(
        since: Timestamp,
        until: Timestamp,
        now: Timestamp,
        sliceSize: Int,
        _ router: Router,
        but absent: AbsentParts
    ) async throws {
        try await self.inSlices(since: since, until: until, size: sliceSize) { start, end, place in
            let (lost, last) = try await self.dispatcher.database.deliveries.lost(
                handedOnSince: start, until: end, after: place, now: now, limit: Self.lostBatchSize)
            let reachable = lost.filter { !absent.contains($0.user) }
            try await router.deliverAgain(reachable)
            self.note("found lost deliveries; enqueued them again", reachable.count)
            return last
        }
    }

    /// Reads pages of one slice after the other.
    ///
    /// One statement can read all rows of a slice. All slices together may take long, so the turn
    /// is renewed. If it is lost, another dispatcher appends the same again, which claims and
    /// attempts tell.
    private func inSlices(
        since: Timestamp,
        until: Timestamp,
        size: Int,
        _ page: (_ start: Timestamp, _ end: Timestamp, _ after: RepairPlace) async throws -> RepairPlace?
    ) async throws {
        var start = since
        while start <= until {
            let end = try await self.dispatcher.database.notifications.repairEnd(
                from: start, until: until, size: size)
            var place: RepairPlace? = RepairPlace(start)
            while let after = place {
                // The next sweep starts over.
                guard isRunning else { throw CancellationError() }
                place = try await page(start, end, after)
                try await self.holdTurn()
            }
            start = end + .microseconds(1)
        }
    }

    // MARK: Turns

    /// Takes the turn to sweep.
    ///
    /// Two sweeps at once would be harmless but publish and push twice.
    private func takeTurn() async throws -> Bool {
        try await self.dispatcher.takeTurn(self.dispatcher.keys.sweepTurn, lifetime: self.turn)
    }

    /// Renews the turn.
    private func holdTurn() async throws {
        try await self.dispatcher.redis.send(
            "SET", .text(self.dispatcher.keys.sweepTurn), .text(self.dispatcher.name), "XX", "PX",
            .integer(self.turn.inMilliseconds))
    }

    private var turn: Duration { self.interval - .seconds(1) }
}

/// The parts of a cluster whose master is away.
private struct AbsentParts {
    private let keys: Keyspace
    /// The memories that could not be asked.
    private var memories: Set<String> = []
    /// Why the first could not; nil if no master is away.
    private(set) var error: RedisError?

    init(_ keys: Keyspace) { self.keys = keys }

    mutating func add(_ memory: String, _ error: RedisError) {
        self.memories.insert(memory)
        self.error = self.error ?? error
    }

    /// Whether a user's keys are in one of these parts.
    func contains(_ user: String) -> Bool {
        !self.memories.isEmpty && self.memories.contains(self.keys.part(of: user).memory)
    }
}

/// Lets one caller through.
private final class FirstTime: Sendable {
    private let isOver = Atomic(false)

    /// Whether this is the first call.
    func take() -> Bool { !self.isOver.exchange(true, ordering: .relaxed) }
}
