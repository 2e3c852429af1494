// Carillon · LeaseClock.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Operations
import ServiceLifecycle
import Storage
import Synchronization

/// Tells by this process's monotonic clock whether its lease still holds.
///
/// So a process that was suspended notices it before it acts. Once a lease has expired, other
/// dispatchers take over the work, even if the process renews the lease later. Work is therefore
/// fenced by the term in which it was taken.
final class LeaseClock: Sendable {
    /// A time in which the lease was held without a gap.
    ///
    /// A default value is the first term, so work without a term counts as lost after any expiry.
    struct Term: Sendable, Equatable {
        fileprivate(set) var number = 0
    }

    private struct State {
        // The start of the last successful renewal.
        var renewedAt: ContinuousClock.Instant?
        var term = Term()
    }

    private let lifetime: Duration
    private let state = Mutex(State())

    init(lifetime: Duration = Lease.usualLifetime) { self.lifetime = lifetime }

    /// How long a read of a stream waits for entries.
    var block: Duration { min(.seconds(5), self.lifetime / 3) }

    /// Records a renewal that began at `start`.
    ///
    /// - Parameter withoutGap: whether the lease had not expired; otherwise a new term begins.
    func renewed(at start: ContinuousClock.Instant, withoutGap: Bool = true) {
        self.state.withLock { state in
            if state.renewedAt != nil, !withoutGap { state.term.number += 1 }
            state.renewedAt = start
        }
    }

    /// The current term; nil while the lease may have expired.
    var term: Term? {
        self.state.withLock { state in
            guard let renewedAt = state.renewedAt, ContinuousClock.now - renewedAt < self.lifetime - .seconds(1)
            else { return nil }
            return state.term
        }
    }

    /// Whether the lease has not expired since `term` began.
    func holds(_ term: Term) -> Bool { self.term == term }
}

/// The time in which stored or claimed work belongs to this process alone.
///
/// It ends when the lease expires, or when other dispatchers consider the work abandoned.
struct Fence: Sendable {
    let term: LeaseClock.Term
    private let until: ContinuousClock.Instant
    private let instant: @Sendable () -> ContinuousClock.Instant

    /// - Parameters:
    ///   - duration: how long other dispatchers leave the work alone. The default suits rows that
    ///     are stored now: the sweeper takes rows without an owner after two minutes.
    ///   - instant: the clock of this process.
    init(
        _ term: LeaseClock.Term,
        for duration: Duration = .seconds(100),
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.term = term
        self.until = instant() + duration
        self.instant = instant
    }

    /// The time left.
    var timeLeft: Duration { self.until - self.instant() }

    /// Whether time is left, which is enough for claims; they need no lease.
    var isOpen: Bool { self.timeLeft > .zero }
}

extension Dispatcher {
    private static let leasePoll: Duration = .milliseconds(200)

    /// Returns a fence around work that is stored or claimed from now on.
    func fence(for duration: Duration = .seconds(100)) -> Fence {
        Fence(self.leaseClock.term ?? LeaseClock.Term(), for: duration, instant: self.clock.instant)
    }

    /// Whether the work inside a fence still belongs to this process alone.
    func holds(_ fence: Fence) -> Bool { self.leaseClock.holds(fence.term) && fence.isOpen }

    /// Waits until the lease is held.
    func heldTerm() async throws -> LeaseClock.Term {
        while true {
            try Task.checkCancellation()
            if let term = self.leaseClock.term { return term }
            // The lease is renewed every few seconds, so poll for it.
            try await Task.sleep(for: Self.leasePoll)
        }
    }

    /// Looks up which entries still belong to this process after its lease expired, and releases
    /// the others.
    ///
    /// - Returns: those entries, and the term in which they belong to this process.
    func keep(
        _ ids: [String],
        of group: ConsumerGroup
    ) async throws -> (ids: Set<String>, term: LeaseClock.Term) {
        while true {
            let term = try await self.heldTerm()
            let kept = try await self.retrying("ask who owns entries") { try await group.reclaimOwned(ids) }
            guard self.leaseClock.holds(term) else { continue }
            self.inFlight.release(ids.filter { !kept.contains($0) }, of: group.stream)
            return (kept, term)
        }
    }

    /// Returns the part of a batch that still belongs to this process.
    ///
    /// After an expiry, entries count as repeats: other dispatchers may have taken, processed and
    /// lost them.
    func owned(_ batch: LaneBatch) async throws -> LaneBatch {
        guard !self.leaseClock.holds(batch.term) else { return batch }
        let kept = try await self.keep(batch.entries.map(\.id), of: batch.group)
        var owned = batch.with(batch.entries.filter { kept.ids.contains($0.id) })
        owned.term = kept.term
        owned.areRepeats = true
        return owned
    }
}

/// Renews the dispatcher's lease until all other services have ended.
package final class LeaseService: Service {
    private let dispatcher: Dispatcher
    private let lease: Lease
    /// When the last successful read of the register began.
    private let lookedAt = Mutex(ContinuousClock.now)

    package init(dispatcher: Dispatcher) {
        self.dispatcher = dispatcher
        self.lease = Lease(
            key: dispatcher.keys.dispatcherLease(dispatcher.name),
            value: ProcessNote(version: Release.version, startedAt: dispatcher.now()).leaseValue("dispatcher"),
            register: Lease.Register(
                key: dispatcher.keys.dispatchers, name: dispatcher.name, now: dispatcher.clock.now),
            lifetime: dispatcher.clock.lease,
            connection: dispatcher.redis
        )
    }

    /// Checks that Redis has no work of another database, before the lease is taken.
    ///
    /// The first dispatcher on a Redis claims it.
    ///
    /// - Throws: ``RedisError`` with code `configuration` if another database has claimed it.
    package func claimRedis() async throws {
        try await self.dispatcher.retrying(
            "claim Redis for the database", isFinal: { ($0 as? RedisError)?.code == .configuration }
        ) {
            guard let identity = try await self.dispatcher.database.layout.identity() else { return }
            try await self.dispatcher.live.claim(for: identity)
        }
    }

    /// Takes the lease, before any work is taken.
    ///
    /// - Throws: `RedisError` with the code `configuration` if Redis has more parts than PostgreSQL
    ///   records.
    package func acquire() async throws {
        let unknown = try await self.dispatcher.retrying("read the number of parts") {
            try await self.dispatcher.live.unknownPartCount()
        }
        if let unknown {
            throw RedisError(
                .configuration,
                "Redis has \(unknown) parts, but PostgreSQL records \(self.dispatcher.keys.parts.count); "
                    + "stop all gateways and dispatchers, run dispatcher parts grow \(unknown), then start them")
        }
        try await self.dispatcher.retrying("take the lease") {
            try await self.renew()
            // For apps and commands; each sweep writes it again.
            var notes = RedisBatch()
            self.dispatcher.live.writeParts(in: &notes)
            try await self.dispatcher.redis.run(notes)
        }
    }

    private func renew() async throws {
        let start = ContinuousClock.now
        let isWithoutGap = try await self.lease.renew(
            isListed: !self.dispatcher.share.isLeaving, timeout: self.lease.patience)
        self.dispatcher.leaseClock.renewed(at: start, withoutGap: isWithoutGap)
        guard self.dispatcher.keys.isSpread else { return }
        do {
            let names = try await Lease.holders(
                in: self.dispatcher.keys.dispatchers, at: self.dispatcher.now(), lifetime: self.lease.lifetime,
                connection: self.dispatcher.redis, timeout: self.lease.patience)
            self.dispatcher.share.update(names)
            self.lookedAt.withLock { $0 = start }
        } catch {
            // While the register is away, nothing tells which leases have ended, so read all parts.
            if start - self.lookedAt.withLock({ $0 }) >= self.lease.lifetime { self.dispatcher.share.update([]) }
            throw error
        }
    }

    /// Renews until shutdown, which ends this service after those that were started later.
    package func run() async throws {
        var interval = self.lease.renewal
        // The lease was just taken.
        await pause(for: interval)
        await self.dispatcher.untilShutdown("cannot renew the lease; retrying; others take over when it expires") {
            // Soon after a failure, while the lease still holds.
            interval = min(Lease.retry, self.lease.renewal)
            try await self.renew()
            interval = self.lease.renewal
        } wait: {
            await pause(for: interval)
        }
    }

    /// Releases the lease if it is held, once no work is left.
    package func release() async {
        // An expired lease needs no release, and Redis may be unreachable.
        guard self.dispatcher.leaseClock.term != nil else { return }
        try? await self.lease.release()
    }
}
