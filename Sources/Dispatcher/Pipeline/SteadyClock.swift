// Carillon · SteadyClock.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// The time by which a dispatcher works: PostgreSQL's, carried on by a clock that nobody sets.
///
/// So all dispatchers go by one time, and a machine whose clock is put forward or back fires nothing early, nothing late and
/// nothing twice.
package final class SteadyClock: Sendable {
    /// A moment, and when it was.
    private struct Mark: Sendable {
        let time: Timestamp
        let at: ContinuousClock.Instant
    }

    /// An answer that took longer says too little about the time at which it was given.
    private static let longestAnswer: Duration = .milliseconds(500)

    private let mark: Mutex<Mark>

    /// - Parameter time: what the machine's own clock says, until there is a better one.
    package init(_ time: Timestamp, at: ContinuousClock.Instant = .now) {
        self.mark = Mutex(Mark(time: time, at: at))
    }

    /// The time now.
    package var now: Timestamp { self.now(at: .now) }

    func now(at instant: ContinuousClock.Instant) -> Timestamp {
        self.mark.withLock { $0.time + (instant - $0.at) }
    }

    /// Goes by what another clock answered, which was asked and answered at these moments.
    ///
    /// - Returns: how far it was ahead; nil if the answer came too late to count.
    @discardableResult
    func set(_ time: Timestamp, asked: ContinuousClock.Instant, answered: ContinuousClock.Instant) -> Duration? {
        let span = answered - asked
        guard span <= Self.longestAnswer else { return nil }
        let at = asked + span / 2
        return self.mark.withLock { mark in
            let ahead = time - (mark.time + (at - mark.at))
            mark = Mark(time: time, at: at)
            return ahead
        }
    }
}
