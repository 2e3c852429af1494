// Carillon · OverflowGuard.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Operations
import Storage
import Synchronization

/// When jobs of an organisation go to its overflow.
package struct OverflowPolicy: Sendable {
    /// How many recipients wait in a lane from which jobs are moved.
    var backlog: Int
    /// How many recipients a minute an organisation may have at each dispatcher, however busy the
    /// others are.
    var leastShare: Int

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
    /// How many batches of a flood a lane moves at once, because one alone mostly waits for Redis.
    static let mostMoves = 4

    private static let interval: Duration = .seconds(1)
    /// A lane that gave no full batch for this long has no backlog.
    private static let backlogTimeout: Duration = .milliseconds(50)

    /// A job that goes to the overflow of its organisation.
    struct Excess: Sendable {
        let org: String
        let entry: StreamEntry
    }

    /// The mean number of recipients of a lane's last jobs.
    private struct Mean {
        /// About a batch; then what came before counts half.
        private static let most = 256

        private var jobs = 0
        private var recipients = 0

        mutating func add(_ batch: LaneBatch) {
            if self.jobs >= Self.most {
                self.jobs /= 2
                self.recipients /= 2
            }
            self.jobs += batch.entries.count
            self.recipients += batch.recipients
        }

        /// Returns about how many recipients so many jobs have.
        func recipients(of jobs: Int) -> Int { self.jobs == 0 ? jobs : jobs * self.recipients / self.jobs }
    }

    private struct State {
        var windows: [Lane: OrgWindow] = [:]
        /// The number of jobs in each lane.
        var lengths: [Lane: Int] = [:]
        var means: [Lane: Mean] = [:]
        /// Organisations with jobs in their overflow at the last refresh, and those in `moved`.
        ///
        /// Their excess is moved even while the lane is short. Otherwise a flood would come back as
        /// soon as its first part has been moved.
        var overflowing: Set<ExactText> = []
        /// Organisations whose jobs were moved since the last refresh began, which may have missed
        /// them.
        var moved: Set<ExactText> = []
        /// Whether a batch came since the last refresh.
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
                    try await self.refresh()
                } catch {
                    // Refresh again without waiting for a batch: old lengths would move the jobs
                    // of the next flood too early.
                    self.state.withLock { $0.isInUse = true }
                }
            }
            // Redis does not signal the length of a stream, so poll.
            await pause(for: Self.interval)
        }
    }

    /// Reads the length of the lanes, and the organisations with an overflow.
    func refresh() async throws(RedisError) {
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
            state.lengths = lengths
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
            guard now < start + most, let backlog = self.state.withLock({ $0.backlog }),
                now < backlog + Self.backlogTimeout
            else { return }
            // Nothing signals the end of a backlog; full batches only stop coming, so poll.
            await pause(for: Self.backlogTimeout)
        }
    }

    /// Starts to move the jobs of a batch that exceed their organisation's share.
    ///
    /// Jobs that cannot be moved go to the queue of the lane.
    ///
    /// - Returns: the other jobs, which need not wait for the move.
    func divert(
        _ batch: LaneBatch,
        in moves: inout ThrowingTaskGroup<Void, any Error>,
        orInto queue: LaneQueue<LaneBatch>
    ) -> LaneBatch {
        let excess = self.excess(of: batch)
        guard !excess.isEmpty else { return batch }
        moves.addTask {
            do {
                try await self.move(excess, of: batch.group)
            } catch let error as RedisError where error.code == .notReplicated {
                // Replicas may be missing for long, so these jobs take their turn in the lane.
                await queue.send(batch.with(excess.map(\.entry)), lane: batch.lane)
            }
        }
        return batch.without(excess.map(\.entry.id))
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
        var session: Int
        repeat {
            session = self.dispatcher.redis.session
            for share in shares {
                // Redis tells names apart by their bytes.
                let orgs = Set(share.map { ExactText($0.org) })
                var rest = share
                try await self.dispatcher.retrying(
                    "move jobs to the overflow", isFinal: { ($0 as? RedisError)?.code == .notReplicated }
                ) {
                    try await self.dispatcher.live.with(lane.keys).overflows.append(&rest, of: orgs)
                }
            }
            try await self.dispatcher.acknowledge(excess.map(\.entry.id), lane)
            // Redis may have come back with the lane's entries, but without those of the overflow.
        } while self.dispatcher.redis.session != session
        self.dispatcher.alarms.overflows.schedule(at: self.dispatcher.now())
        let orgs = Set(excess.map { ExactText($0.org) })
        self.state.withLock { state in
            state.overflowing.formUnion(orgs)
            state.moved.formUnion(orgs)
        }
        PipelineMetrics.overflowed.increment(by: excess.count)
    }

    /// Counts a batch's jobs, and returns those that exceed their organisation's share of a long
    /// lane.
    func excess(of batch: LaneBatch) -> [Excess] {
        let now = self.dispatcher.now()
        return self.state.withLock { state in
            state.isInUse = true
            state.means[batch.lane, default: Mean()].add(batch)
            let length = state.lengths[batch.lane, default: 0]
            let waiting = state.means[batch.lane]?.recipients(of: length) ?? length
            let isLong = waiting >= self.policy.backlog
            guard isLong || !state.overflowing.isEmpty else { return [] }
            var window = state.windows[batch.lane] ?? OrgWindow(leastShare: self.policy.leastShare)
            // Removed while it changes, so that its dictionaries are not copied.
            state.windows[batch.lane] = nil
            defer { state.windows[batch.lane] = window }
            return batch.entries.compactMap { entry in
                guard let org = Self.org(entry),
                    !window.admit(org, recipients: LaneBatch.recipients(entry), at: now)
                else { return nil }
                guard isLong || state.overflowing.contains(ExactText(org)) else { return nil }
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
