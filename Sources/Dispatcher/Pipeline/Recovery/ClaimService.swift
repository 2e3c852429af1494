// Carillon · ClaimService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import ServiceLifecycle
import Storage
import Synchronization

/// Takes over the entries of dispatchers whose lease has expired, and its own entries whose reply
/// got lost.
///
/// The stream counts how often an entry was handed out. The second time, jobs are processed in
/// batches, because one by one a backlog would take long. Deliveries are processed several at once,
/// but each alone, because each waits for a provider. From the third time on, each entry is
/// processed alone, so that one that kills its dispatcher takes no other with it. After three such
/// deaths it is set aside. Each provider has its own task, so one that hangs delays no other.
package struct ClaimService: Service {
    /// An entry that was handed out this often is set aside: once in a batch, once with others, and
    /// three times alone.
    private static let mostDeliveries = 5

    /// The reason of dead letters that killed their dispatchers.
    static let deadlyReason = "three dispatchers died while they worked on it alone"

    /// The number of intervals between two looks at all streams while no dispatcher dies.
    private static let idleIntervals = 3
    private static let batchSize = 100

    private let dispatcher: Dispatcher
    private let deliveries: [DeliveriesService]
    private let peers: Peers
    private let interval: Duration
    /// An entry delivered more recently belongs to a dispatcher that has just resumed.
    private let idle: Duration
    /// No reply arrives this late, because the read that waits for it has ended (``LaneReader``).
    private let lostReply: Duration

    package init(dispatcher: Dispatcher, deliveries: [DeliveriesService]) {
        self.dispatcher = dispatcher
        self.deliveries = deliveries
        // Longer than two looks at all streams are apart.
        self.peers = Peers(memory: dispatcher.clock.lease * 4 / 3)
        self.interval = dispatcher.clock.lease / 5
        self.idle = dispatcher.clock.lease / 3
        // A read waits at most twice as long for its reply, and as long again behind another call.
        self.lostReply = dispatcher.leaseClock.block * 3 + .seconds(1)
    }

    package func run() async throws {
        await withTaskGroup { group in
            group.addTask { await self.watch() }
            group.addTask { await self.repeatedly { await self.claimJobs() } }
            for service in self.deliveries {
                group.addTask { await self.repeatedly { await self.claimDeliveries(service) } }
            }
        }
    }

    /// Finds out which other dispatchers have lost their lease.
    private func watch() async {
        while isRunning {
            // Poll leases often: work waits until the look that finds one expired.
            await pause(for: self.interval)
            let names = self.peers.all
            let leases = names.map { self.dispatcher.keys.dispatcherLease($0) }
            // If Redis does not answer, nothing can be taken over either.
            guard let held = try? await Lease.areHeld(leases, connection: self.dispatcher.redis) else { continue }
            self.peers.setLost(Set(zip(names, held).lazy.filter { !$1 }.map { $0.0 }))
        }
    }

    /// Looks at streams soon after a dispatcher has lost its lease, and at an interval in case a
    /// reply got lost.
    private func repeatedly(_ round: () async -> Void) async {
        while isRunning {
            await round()
            var intervals = 0
            repeat {
                await pause(for: self.interval)
                intervals += 1
            } while isRunning && intervals < Self.idleIntervals && self.peers.lost.isEmpty
        }
    }

    /// Looks at all streams of jobs.
    func claimJobs() async {
        let sources = self.dispatcher.share.knownParts + self.dispatcher.keys.otherSources
        for lane in Lane.allCases {
            for keys in sources where isRunning {
                await self.claim(.jobs(self.dispatcher.group(keys.jobs(lane), in: keys), lane, self.dispatcher))
            }
        }
        let overflows = (try? await self.dispatcher.live.overflows.orgs(in: sources)) ?? []
        for (keys, orgs) in zip(sources, overflows) {
            for org in (try? orgs.get()) ?? [] where isRunning {
                await self.claim(.jobs(self.dispatcher.group(keys.overflow(org), in: keys), .bulk, self.dispatcher))
            }
        }
    }

    private func claimDeliveries(_ service: DeliveriesService) async {
        let parts = self.dispatcher.share.knownParts
        for lane in Lane.allCases {
            for keys in parts where isRunning {
                let group = self.dispatcher.group(keys.deliveries(service.provider, lane), in: keys)
                await self.claim(.deliveries(group, lane, service))
            }
        }
    }

    /// Takes over a stream's entries of dispatchers that are gone, and this dispatcher's lost
    /// entries.
    private func claim(_ stream: TakenStream) async {
        let group = stream.group
        do {
            let consumers = try await group.consumers()
            self.peers.add(consumers.map(\.name).filter { $0 != self.dispatcher.name })
            let lost = self.peers.lost
            var isClear = true
            for consumer in consumers {
                if consumer.name == self.dispatcher.name {
                    isClear = try await self.findLost(consumer.pending, stream)
                } else if consumer.pending == 0, !lost.contains(consumer.name) {
                    // Nothing to take over, so its lease need not be looked up.
                    continue
                } else if try await self.takeOver(consumer.name, stream) {
                    try await group.remove(consumer.name)
                }
            }
            self.dispatcher.share.recordLook(in: group.keys, isClear: isClear)
        } catch {
            self.dispatcher.share.recordLook(in: group.keys, isClear: false)
            // The readers log once that a master of a cluster is away; this would log it for each
            // of its streams at every look.
            if self.dispatcher.redis.isCluster, (error as? RedisError)?.code == .unavailable { return }
            self.dispatcher.logger.warning(
                "cannot take over entries; retrying",
                metadata: ["redis.stream": "\(group.stream)", "error": "\(error)"]
            )
        }
    }

    /// Returns the term in which a consumer's work may be taken over.
    ///
    /// Nil while the consumer's dispatcher holds its lease, or may hold it because a master of a
    /// cluster is away: a suspended process may resume. Nil also while this dispatcher holds none.
    private func term(toTakeOver consumer: String) async throws -> LeaseClock.Term? {
        guard let term = self.dispatcher.leaseClock.term else { return nil }
        let lease = self.dispatcher.keys.dispatcherLease(consumer)
        let isHeld = try await Lease.areHeld([lease], connection: self.dispatcher.redis).contains(true)
        return isHeld ? nil : term
    }

    /// Takes over a consumer's entries.
    ///
    /// - Returns: whether none are left.
    private func takeOver(_ consumer: String, _ stream: TakenStream) async throws -> Bool {
        let group = stream.group
        while isRunning, try await self.term(toTakeOver: consumer) != nil {
            let pending = try await group.pending(of: consumer, count: Self.batchSize)
            guard !pending.isEmpty else { return true }
            let first = pending.filter { $0.deliveries <= 1 }
            let batches = stream.width == nil ? [first] : first.map { [$0] }
            var isProgressing = try await self.takeOver(batches, from: consumer, stream)
            for item in pending where item.deliveries > 1 {
                guard isRunning, let term = try await self.term(toTakeOver: consumer) else { return false }
                guard let entry = try await group.claim(item.id, from: consumer, idle: self.idle) else { continue }
                isProgressing = true
                try await self.keepingCount(of: [item], group) {
                    if item.deliveries >= Self.mostDeliveries {
                        try await stream.setAside(entry, item.deliveries == Self.mostDeliveries, term)
                    } else {
                        try await stream.work([entry], term)
                    }
                }
            }
            // An entry that cannot be claimed has another owner, or was handed out just now; the
            // next round sees it.
            if !isProgressing { return false }
        }
        return false
    }

    /// Takes over batches of entries; processes as many at the same time as the stream allows.
    ///
    /// - Returns: whether there was anything to claim.
    private func takeOver(
        _ batches: [[ConsumerGroup.Pending]],
        from consumer: String,
        _ stream: TakenStream
    ) async throws -> Bool {
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            var isProgressing = false
            var running = 0
            do {
                for items in batches where isRunning && !items.isEmpty {
                    // Claimed only when its turn comes, so that other dispatchers share the work.
                    if running == stream.width ?? 1 {
                        try await tasks.next()
                        running -= 1
                    }
                    guard let term = try await self.term(toTakeOver: consumer) else { break }
                    let entries = try await stream.group.claim(items.map(\.id), from: consumer, idle: self.idle)
                    guard !entries.isEmpty else { continue }
                    isProgressing = true
                    running += 1
                    tasks.addTask {
                        try await self.keepingCount(of: items, stream.group) { try await stream.work(entries, term) }
                    }
                }
            } catch {
                // An error that leaves the group would cancel calls that the provider may have
                // accepted.
                try? await tasks.waitForAll()
                throw error
            }
            try await tasks.waitForAll()
            return isProgressing
        }
    }

    /// Restores the delivery counts of claimed entries if `work` fails.
    ///
    /// The count tells how many dispatchers died; one that is stopped has not.
    private func keepingCount(
        of items: [ConsumerGroup.Pending],
        _ group: ConsumerGroup,
        _ work: () async throws -> Void
    ) async throws {
        do {
            try await work()
        } catch {
            for (deliveries, items) in Dictionary(grouping: items, by: \.deliveries) {
                _ = try? await group.claim(
                    items.map(\.id), from: self.dispatcher.name, idle: .zero, deliveries: deliveries)
            }
            throw error
        }
    }

    /// Processes entries that were handed out to this process in a reply that got lost.
    ///
    /// - Returns: whether there were none.
    private func findLost(_ pendingCount: Int, _ stream: TakenStream) async throws -> Bool {
        let group = stream.group
        let known = self.dispatcher.inFlight.count(of: group.stream)
        guard pendingCount > known else { return true }
        for item in try await group.pending(of: self.dispatcher.name, count: known + Self.batchSize) {
            guard isRunning, let term = self.dispatcher.leaseClock.term else { return false }
            if self.dispatcher.inFlight.contains(item.id, of: group.stream) { continue }
            // An entry whose reply is only late has not been idle for this long, so it is not
            // claimed. A lost reply killed no dispatcher, so the claim keeps the count.
            guard
                let entry = try await group.claim(
                    item.id, from: self.dispatcher.name, idle: self.lostReply, deliveries: item.deliveries)
            else { continue }
            try await stream.work([entry], term)
        }
        return false
    }
}

/// A stream whose entries are taken over, and how they are processed.
private struct TakenStream: Sendable {
    private static let deliveriesAtOnce = 16

    let group: ConsumerGroup
    /// How many entries that were handed out once are processed at the same time; nil for one
    /// batch.
    let width: Int?
    /// Processes entries as one batch.
    let work: @Sendable (_ entries: [StreamEntry], LeaseClock.Term) async throws -> Void
    /// Sets aside an entry that kills its dispatchers.
    ///
    /// `isFirst` is whether no dispatcher has tried to set it aside before.
    let setAside: @Sendable (_ entry: StreamEntry, _ isFirst: Bool, LeaseClock.Term) async throws -> Void

    /// A stream of jobs.
    static func jobs(_ group: ConsumerGroup, _ lane: Lane, _ dispatcher: Dispatcher) -> TakenStream {
        TakenStream(group: group, width: nil) { entries, term in
            let batch = LaneBatch(lane: lane, group: group, entries: entries, term: term, areRepeats: true)
            for slice in batch.slices() {
                let stored = try await JobIntake(dispatcher: dispatcher).store(slice)
                try await Router(dispatcher: dispatcher).routeAndAcknowledge(stored)
            }
        } setAside: { entry, _, _ in
            let origin = JobOrigin(stream: group.stream, entry: entry.id, fields: entry.fields ?? [])
            let letter = DeadLetter(origin, reason: ClaimService.deadlyReason, at: dispatcher.now())
            try await DeadLetterQueue(dispatcher: dispatcher).setAside([letter])
            try await dispatcher.acknowledge([entry.id], group)
        }
    }

    /// A stream of a provider's deliveries.
    static func deliveries(_ group: ConsumerGroup, _ lane: Lane, _ service: DeliveriesService) -> TakenStream {
        TakenStream(group: group, width: Self.deliveriesAtOnce) { entries, term in
            try await service.sendAlone(LaneBatch(lane: lane, group: group, entries: entries, term: term))
        } setAside: { entry, isFirst, term in
            let batch = LaneBatch(lane: lane, group: group, entries: [entry], term: term)
            try await service.setAside(batch, isFirst: isFirst)
        }
    }
}

/// The other dispatchers that were consumers of streams lately.
private final class Peers: Sendable {
    private struct State {
        var seenAt: [String: ContinuousClock.Instant] = [:]
        var lost: Set<String> = []
    }

    private let memory: Duration
    private let state = Mutex(State())

    /// - Parameter memory: how long a dispatcher is watched after it was last seen.
    init(memory: Duration) { self.memory = memory }

    func add(_ names: [String]) {
        let now = ContinuousClock.now
        self.state.withLock { state in
            for name in names { state.seenAt[name] = now }
        }
    }

    var all: [String] {
        let oldest = ContinuousClock.now - self.memory
        return self.state.withLock { state in
            state.seenAt = state.seenAt.filter { $0.value >= oldest }
            return Array(state.seenAt.keys)
        }
    }

    /// Those whose lease had expired at the last look.
    var lost: Set<String> { self.state.withLock { $0.lost } }

    func setLost(_ names: Set<String>) { self.state.withLock { $0.lost = names } }
}
