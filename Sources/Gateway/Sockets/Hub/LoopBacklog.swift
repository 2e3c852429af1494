// Carillon · LoopBacklog.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// How many changes are on their way to an event loop, and whether some were kept from it.
///
/// Once the bound is reached nothing more is let through until the loop has worked off what waits: what was left out is
/// then read from the inboxes, and what came after it would only be held.
final class LoopBacklog: Sendable {
    private struct State {
        var waiting = 0
        var isShedding = false
    }

    private let limit: Int
    private let state = Mutex(State())

    init(limit: Int) {
        self.limit = limit
    }

    /// Lets changes through; false if too many wait.
    func take(_ count: Int) -> Bool {
        self.state.withLock { state in
            if state.waiting > 0, state.isShedding || state.waiting + count > self.limit {
                state.isShedding = true
                return false
            }
            state.waiting += count
            return true
        }
    }

    /// Notes that the loop has dealt with changes; true if that was all, and some were left out before.
    func giveBack(_ count: Int) -> Bool {
        self.state.withLock { state in
            state.waiting -= count
            guard state.waiting == 0, state.isShedding else { return false }
            state.isShedding = false
            return true
        }
    }
}
