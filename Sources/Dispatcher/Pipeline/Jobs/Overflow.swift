// Carillon · Overflow.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Operations
import ServiceLifecycle
import Storage
import Synchronization

/// When jobs of an organisation go to its overflow.
package struct OverflowPolicy: Sendable {
    /// The length of a lane from which jobs are moved.
    var backlog: Int
    /// How many jobs a minute an organisation may have at each dispatcher, however busy the others
    /// are.
    var leastShare: Int
    /// The number of jobs that an organisation's overflow holds in all parts together.
    var bound = OverflowStreams.bound

    package init(backlog: Int, leastShare: Int = 1_000) {
        self.backlog = backlog
        self.leastShare = leastShare
    }
}

/// Moves jobs of an organisation that exceeds its share out of a long lane, so that the jobs behind
/// them get their turn.
///
/// A job is in the overflow before it leaves its lane. A crash in between leaves it in both, with
/// the same origin and so the same ids. Jobs without an organisation stay.
final class OverflowGuard: Sendable {
    private static let interval: Duration = .seconds(1)
    /// A lane that gave no full batch for this long has no backlog.
    private static let rest: Duration = .milliseconds(50)

    /// A job that goes to the overflow of its organisation.
    struct Excess: Sendable {
        let org: String
        let entry: StreamEntry
    }

    private struct State {
        var windows: [Lane: OrgWindow] = [:]
        var backlogs: [Lane: Int] = [:]
        /// Organisations with jobs in their overflow at the last look, and those in `moved`.
        ///
        /// Their excess is moved even while the lane is short. Otherwise a flood would come back as
        /// soon as its first part has been moved.
        var overflowing: Set<ExactText> = []
        /// Organisations whose jobs were moved since the last look began; it may have missed them.
        var moved: Set<ExactText> = []
        /// Organisations whose overflow became full since the last look.
        var full: Set<ExactText> = []
        /// Whether a batch came since the last look.
        var isInUse = true
        /// When a lane last gave a full batch.
        var backlog: ContinuousClock.Instant?
    }

    private let dispatcher: Dispatcher
    private let policy: OverflowPolicy
    private let state = Mutex(State())

    init(dispatcher: Dispatcher, policy: OverflowPolicy) {
        self.dispatcher = dispatcher
        self.policy = policy
    }

    /// Polls lanes and overflows while batches come, until the process shuts down.
    func watch() async {
        while isRunning {
            let isInUse = self.state.withLock { state in
                defer { state.isInUse = false }
                return state.isInUse
            }
            if isInUse {
                do {
                    try await self.look()
                } catch {
                    // Look again without waiting for a batch: old lengths would move the jobs of
                    // the next flood too early.
                    self.state.withLock { $0.isInUse = true }
                }
            }
            // Redis does not signal the length of a stream, so poll.
            await pause(for: Self.interval)
        }
    }

    /// Reads the length of the lanes, and the organisations with an overflow.
    func look() async throws(RedisError) {
        self.state.withLock { $0.moved = [] }
        let lengths = try await self.dispatcher.live.jobs.lengths()
        var found: Set<ExactText> = []
        var isComplete = true
        for result in try await self.dispatcher.live.overflows.orgs(in: self.dispatcher.keys.jobSources) {
            switch result {
            case .success(let orgs): found.formUnion(orgs.map { ExactText($0) })
            // One server of a cluster is away, which may have overflows.
            case .failure: isComplete = false
            }
        }
        let (orgs, knowsAll) = (found, isComplete)
        self.state.withLock { state in
            state.backlogs = lengths
            state.full = []
            if knowsAll { state.overflowing = state.moved }
            state.overflowing.formUnion(orgs)
        }
    }

    /// Records that a lane gave a full batch, so more jobs wait there.
    func recordBacklog() {
        self.state.withLock { $0.backlog = self.dispatcher.clock.instant() }
    }

    /// Waits until no lane has a backlog, but no longer than `most`.
    ///
    /// The processor time that an overflow takes would delay the lanes.
    func waitForLanes(atMost most: Duration) async {
        let start = self.dispatcher.clock.instant()
        while isRunning {
            let now = self.dispatcher.clock.instant()
            guard let backlog = self.state.withLock({ $0.backlog }), now < backlog + Self.rest, now < start + most
            else { return }
            // Nothing signals the end of a backlog; full batches only stop coming, so poll.
            await pause(for: Self.rest)
        }
    }

    /// Moves jobs from a lane to the overflows of their organisations.
    ///
    /// - Throws: ``RedisError`` with code `notReplicated` if the overflows are on another master,
    ///   and too few of its replicas have the jobs. They must then take their turn in the lane.
    func move(_ excess: [Excess], of lane: ConsumerGroup) async throws {
        let jobs: [OverflowStreams.Job] = excess.map { item in
            let origin = JobOrigin(stream: lane.stream, entry: item.entry.id, fields: item.entry.fields ?? [])
            return (org: item.org, fields: origin.movedFields)
        }
        // Part by part: with replicas a batch fails as a whole, and a retry would copy the other
        // parts.
        let shares = Dictionary(grouping: jobs) { lane.keys.overflowPart(of: $0.org).overflows }.values
        var lengths: [ExactText: Int] = [:]
        var session: Int
        repeat {
            session = self.dispatcher.redis.session
            for share in shares {
                // Redis tells names apart by their bytes.
                let orgs = Set(share.map { ExactText($0.org) })
                var rest = share
                let appended = try await self.dispatcher.untilDone(
                    "move jobs to the overflow", isFinal: { ($0 as? RedisError)?.code == .notReplicated }
                ) {
                    try await self.dispatcher.live.with(lane.keys).overflows.append(&rest, of: orgs)
                }
                lengths.merge(appended) { $1 }
            }
            try await self.dispatcher.acknowledge(excess.map(\.entry.id), lane)
            // Redis may have come back with the lane's entries, but without those of the overflow.
        } while self.dispatcher.redis.session != session
        self.dispatcher.alarms.overflows.note(self.dispatcher.now())
        let bound = self.policy.bound / self.dispatcher.keys.parts.count
        self.state.withLock { state in
            for (org, length) in lengths {
                if length >= bound { state.full.insert(org) }
                state.overflowing.insert(org)
                state.moved.insert(org)
            }
        }
        PipelineMetrics.overflowed.increment(by: excess.count)
    }

    /// Counts a batch's jobs, and returns those that exceed their organisation's share of a long
    /// lane.
    func excess(of batch: LaneBatch) -> [Excess] {
        let now = self.dispatcher.now()
        return self.state.withLock { state in
            state.isInUse = true
            let isLong = state.backlogs[batch.lane, default: 0] >= self.policy.backlog
            guard isLong || !state.overflowing.isEmpty else { return [] }
            var window = state.windows[batch.lane] ?? OrgWindow(leastShare: self.policy.leastShare)
            // Removed while it changes, so that its dictionaries are not copied.
            state.windows[batch.lane] = nil
            defer { state.windows[batch.lane] = window }
            return batch.entries.compactMap { entry in
                guard let org = Self.org(entry), !window.admit(org, at: now) else { return nil }
                let name = ExactText(org)
                guard !state.full.contains(name), isLong || state.overflowing.contains(name) else { return nil }
                return Excess(org: org, entry: entry)
            }
        }
    }

    /// Returns the organisation that a job names; nil for none or an invalid one.
    ///
    /// An entry with too many fields is no job. It may have as many as Redis takes, and a move,
    /// which adds one, would always fail.
    private static func org(_ entry: StreamEntry) -> String? {
        guard let fields = entry.fields, fields.count <= JobLimits.fields else { return nil }
        guard let bytes = entry["org"], !bytes.isEmpty, bytes.count <= 4 * JobLimits.org else { return nil }
        return String(validating: bytes, as: UTF8.self)
    }
}

/// The jobs of each organisation in the last minute, in steps of five seconds.
struct OrgWindow {
    private static let step: Int64 = 5
    private static let steps: Int64 = 12
    /// Organisations beyond this number are not counted or limited.
    private static let mostOrgs = 10_000

    /// How many jobs an organisation may have at least.
    private let leastShare: Int
    private var counts: [ExactText: Int] = [:]
    private var total = 0
    private var buckets: [(step: Int64, counts: [ExactText: Int])] = []

    init(leastShare: Int) {
        self.leastShare = leastShare
    }

    /// Counts a job, and returns whether it is within its organisation's share.
    ///
    /// The share is the average of the other organisations, but at least `leastShare`.
    mutating func admit(_ org: String, at moment: Timestamp) -> Bool {
        var step = moment.seconds / Self.step
        if let last = self.buckets.last?.step, last > step {
            // The clock was set back: wait out a small step, start over after a large one.
            if last - step < Self.steps { step = last } else { self = OrgWindow(leastShare: self.leastShare) }
        }
        self.forget(before: step - Self.steps + 1)
        let org = ExactText(org)
        let own = self.counts[org] ?? 0
        if own == 0, self.counts.count >= Self.mostOrgs { return true }
        let others = self.counts.count - (own > 0 ? 1 : 0)
        let average = others > 0 ? (self.total - own) / others : 0
        self.counts[org] = own + 1
        self.total += 1
        if self.buckets.last?.step != step { self.buckets.append((step, [:])) }
        self.buckets[self.buckets.count - 1].counts[org, default: 0] += 1
        return own < max(self.leastShare, average)
    }

    private mutating func forget(before step: Int64) {
        while let first = self.buckets.first, first.step < step {
            for (org, count) in first.counts {
                let left = (self.counts[org] ?? 0) - count
                self.counts[org] = left > 0 ? left : nil
                self.total -= count
            }
            self.buckets.removeFirst()
        }
    }
}

/// Reads a batch of each organisation's overflow in turn, with the weight of the bulk lane.
struct OverflowReader: Sendable {
    private static let interval: Duration = .milliseconds(500)
    /// Finds overflows that only other dispatchers have filled.
    private static let longestInterval: Duration = .seconds(5)
    /// How long an overflow waits for its turn while lanes have a backlog.
    private static let longestWait: Duration = .seconds(1)
    private static let batchSize = 64

    let dispatcher: Dispatcher
    /// The guard of the lanes, which go first; nil if floods stay in their lanes.
    let lanes: OverflowGuard?
    let queue: LaneQueue<LaneBatch>

    func run() async {
        var count = 0
        await self.dispatcher.untilShutdown("cannot read overflows; retrying") {
            let round = await self.roundOfAll()
            count = round.count
            guard let failure = round.failure else { return }
            self.dispatcher.alarms.overflows.note(self.dispatcher.now())
            throw failure
        } wait: {
            guard count == 0 else { return }
            // There may be many streams, and usually there are none, so poll their names rather
            // than block on each.
            await self.dispatcher.alarms.overflows.wait(
                atLeast: Self.interval, atMost: Self.longestInterval, now: self.dispatcher.clock.now)
        }
    }

    /// Reads a batch of each overflow of every part.
    ///
    /// One server of a cluster may be away; the parts of the others go on.
    ///
    /// - Returns: the number of entries, and an error of a part; nil if none failed.
    func roundOfAll() async -> (count: Int, failure: (any Error)?) {
        let parts = self.dispatcher.share.parts + self.dispatcher.keys.otherSources
        var count = 0
        var failure: (any Error)?
        do {
            for (keys, orgs) in zip(parts, try await self.dispatcher.live.overflows.orgs(in: parts)) {
                do {
                    count += try await self.round(keys, try orgs.get())
                } catch {
                    failure = error
                }
            }
        } catch {
            failure = error
        }
        return (count, failure)
    }

    /// Reads a batch of each of these overflows of a part, and returns the number of entries.
    private func round(_ keys: Keyspace, _ orgs: [String]) async throws -> Int {
        let streams = self.dispatcher.live.with(keys).overflows
        var count = 0
        if !orgs.isEmpty { self.dispatcher.alarms.overflows.note(self.dispatcher.now()) }
        for org in orgs {
            await self.lanes?.waitForLanes(atMost: Self.longestWait)
            // As for the lanes, nothing is read without a lease.
            guard isRunning, let term = self.dispatcher.leaseClock.term else { break }
            let group = self.dispatcher.group(keys.overflow(org), in: keys)
            let entries = try await group.takeWaiting(count: Self.batchSize)
            guard !entries.isEmpty else {
                try await streams.dropIfEmpty(org)
                continue
            }
            count += entries.count
            self.dispatcher.inFlight.take(entries.lazy.map(\.id), of: group.stream)
            let batch = LaneBatch(lane: .bulk, group: group, entries: entries, term: term)
            for slice in batch.slices() { await self.queue.send(slice, lane: .bulk) }
        }
        return count
    }
}
