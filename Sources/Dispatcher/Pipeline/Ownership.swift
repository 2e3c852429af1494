// Carillon · Ownership.swift
// SPDX-License-Identifier: Apache-2.0

import Storage

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
