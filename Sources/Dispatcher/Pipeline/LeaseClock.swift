// Carillon · LeaseClock.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Synchronization

/// Knows by this process's own clock whether its lease still holds, so that a process which stood still notices it first.
///
/// Once a lease has lapsed, others take over the work of its process, also if the process takes the
/// lease again. So work is fenced by the term in which it was taken, not by a lease that is held
/// now.
final class LeaseClock: Sendable {
    /// A time in which the lease was held without a gap.
    ///
    /// A new value is the first term, so work that names no term counts as lost after any lapse.
    struct Term: Sendable, Equatable {
        fileprivate(set) var number = 0

        init() {}
    }

    private struct State {
        // When the last renewal that succeeded began.
        var renewedAt: ContinuousClock.Instant?
        var term = Term()

        var isHeld: Bool {
            guard let renewedAt else { return false }
            return ContinuousClock.now - renewedAt < Lease.lifetime - .seconds(1)
        }
    }

    private let state = Mutex(State())

    /// The lease was renewed by a call that began at `start`.
    ///
    /// - Parameter withoutGap: whether it had been held all the time; if not, a new term begins.
    func renewed(at start: ContinuousClock.Instant, withoutGap: Bool = true) {
        self.state.withLock { state in
            if state.renewedAt != nil, !withoutGap { state.term.number += 1 }
            state.renewedAt = start
        }
    }

    /// The term of now; nil while the lease may have lapsed.
    var term: Term? { self.state.withLock { $0.isHeld ? $0.term : nil } }

    /// Whether no other process can have taken over what was taken in a term.
    func holds(_ term: Term) -> Bool { self.term == term }
}

/// The bounds within which work that was stored or claimed is this process's alone.
///
/// It is as long as the lease goes on without a gap, and until others take it for abandoned.
struct Fence: Sendable {
    let term: LeaseClock.Term
    private let until: ContinuousClock.Instant
    private let instant: @Sendable () -> ContinuousClock.Instant

    /// - Parameters:
    ///   - duration: how long others leave the work alone, from now on. The default is for rows
    ///     that are stored now: the sweeper hands on rows without an owner after two minutes.
    ///   - instant: the time of this process.
    init(
        _ term: LeaseClock.Term,
        for duration: Duration = .seconds(100),
        instant: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.term = term
        self.until = instant() + duration
        self.instant = instant
    }

    /// How much of the time is left.
    var rest: Duration { self.until - self.instant() }

    /// Whether the time is not over; for claims that need no lease.
    var isOpen: Bool { self.rest > .zero }
}

extension Dispatcher {
    private static let leasePoll: Duration = .milliseconds(200)

    /// Makes a fence around work that is stored or claimed from now on.
    func fence(for duration: Duration = .seconds(100)) -> Fence {
        Fence(self.leaseClock.term ?? LeaseClock.Term(), for: duration, instant: self.instant)
    }

    /// Whether the work within a fence is still this process's alone.
    func holds(_ fence: Fence) -> Bool { self.leaseClock.holds(fence.term) && fence.isOpen }

    /// Waits until the lease is held.
    func heldTerm() async throws -> LeaseClock.Term {
        while true {
            try Task.checkCancellation()
            if let term = self.leaseClock.term { return term }
            // The lease comes back with a renewal every few seconds, so poll for it.
            try await Task.sleep(for: Self.leasePoll)
        }
    }

    /// Asks which entries are still this process's after its lease lapsed, and releases the others.
    ///
    /// - Returns: those entries, and the term in which they are this process's.
    func keep(
        _ ids: [String],
        of group: ConsumerGroup
    ) async throws -> (ids: Set<String>, term: LeaseClock.Term) {
        while true {
            let term = try await self.heldTerm()
            let kept = try await self.untilDone("ask who owns entries") { try await group.keep(ids) }
            guard self.leaseClock.holds(term) else { continue }
            self.inHand.release(ids.filter { !kept.contains($0) }, of: group.stream)
            return (kept, term)
        }
    }

    /// Returns the part of a batch that is still this process's: all of it unless the lease lapsed
    /// since.
    ///
    /// After a lapse, entries count as repeats: others may have worked on them and lost them in
    /// turn.
    func owned(_ batch: LaneBatch) async throws -> LaneBatch {
        guard !self.leaseClock.holds(batch.term) else { return batch }
        let kept = try await self.keep(batch.entries.map(\.id), of: batch.group)
        var owned = batch.with(batch.entries.filter { kept.ids.contains($0.id) })
        owned.term = kept.term
        owned.areRepeats = true
        return owned
    }
}
