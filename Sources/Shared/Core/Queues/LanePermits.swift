// Carillon · LanePermits.swift
// SPDX-License-Identifier: Apache-2.0

import DequeModule
import Synchronization

/// A fixed number of permits for work in flight, of which the less urgent lanes can never take all.
///
/// A sixteenth is kept for critical work, and another for critical and normal work: however long what was called takes to
/// answer, the next urgent call finds a permit. Where lanes wait, permits go by their weights: sixteen to critical and
/// four to normal for one to bulk.
package final class LanePermits: Sendable {
    private struct State {
        /// By a lane's rank, as are those who wait.
        var inUse = [0, 0, 0]
        var waiting = [Deque<UnsafeContinuation<Void, Never>>](repeating: [], count: 3)
        var credits = LaneCredits()
    }

    private let state = Mutex(State())
    /// How many may be taken by a lane and by those that are less urgent, by the lane's rank.
    private let limits: [Int]

    /// - Parameter total: how many there are, at least 3.
    package init(_ total: Int) {
        let reserve = max(1, total / 16)
        self.limits = [total, total - reserve, total - 2 * reserve]
    }

    /// Takes a permit, waiting for one.
    package func acquire(_ lane: Lane) async {
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            // Unsafe continuations are sound here: each waits in one deque and is resumed when it is taken out.
            let isFree = self.state.withLock { state in
                guard state.waiting[lane.rank].isEmpty, self.isFree(lane, state) else {
                    state.waiting[lane.rank].append(continuation)
                    return false
                }
                state.inUse[lane.rank] += 1
                return true
            }
            if isFree { continuation.resume() }
        }
    }

    /// Gives a permit of `lane` back.
    package func release(_ lane: Lane) {
        let next = self.state.withLock { state -> UnsafeContinuation<Void, Never>? in
            state.inUse[lane.rank] -= 1
            let able = Lane.allCases.filter { !state.waiting[$0.rank].isEmpty && self.isFree($0, state) }
            guard let lane = state.credits.next(among: able) else { return nil }
            state.inUse[lane.rank] += 1
            return state.waiting[lane.rank].popFirst()
        }
        next?.resume()
    }

    /// How many are taken.
    package var inUse: Int { self.state.withLock { $0.inUse.reduce(0, +) } }

    /// Neither the lane nor one that is more urgent would exceed its limit.
    private func isFree(_ lane: Lane, _ state: borrowing State) -> Bool {
        var taken = 0
        for rank in stride(from: 2, through: 0, by: -1) {
            taken += state.inUse[rank]
            if rank <= lane.rank, taken >= self.limits[rank] { return false }
        }
        return true
    }
}
