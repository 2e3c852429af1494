// Carillon · LeaseClock.swift
// SPDX-License-Identifier: Apache-2.0

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
