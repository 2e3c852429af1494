// Carillon · Permits.swift
// SPDX-License-Identifier: Apache-2.0

import DequeModule
import Synchronization

/// A fixed number of permits for in-flight work; callers wait in order.
package final class Permits: Sendable {
    private struct State {
        var free: Int
        var waiting: Deque<UnsafeContinuation<Void, Never>> = []
    }

    private let state: Mutex<State>

    package init(_ total: Int) {
        self.state = Mutex(State(free: total))
    }

    /// Takes a permit, waiting for one.
    package func acquire() async {
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            // Unsafe continuations are sound here: each is in one deque, and is resumed when it is
            // removed.
            let isFree = self.state.withLock { state in
                guard state.free > 0 else {
                    state.waiting.append(continuation)
                    return false
                }
                state.free -= 1
                return true
            }
            if isFree { continuation.resume() }
        }
    }

    /// Returns a permit.
    package func release() {
        let next = self.state.withLock { state -> UnsafeContinuation<Void, Never>? in
            if let next = state.waiting.popFirst() { return next }
            state.free += 1
            return nil
        }
        next?.resume()
    }

    /// Whether a caller waits for a permit.
    package var isAwaited: Bool { self.state.withLock { !$0.waiting.isEmpty } }
}

/// A fixed number of permits for in-flight work, some of them reserved for urgent lanes.
///
/// A sixteenth is reserved for critical work, and another for critical and normal work: slow calls
/// never block the next urgent one. Waiting lanes get permits by weight: sixteen critical and four
/// normal for one bulk.
package final class LanePermits: Sendable {
    private struct State {
        /// Indexed by the lane's rank, like `waiting`.
        var inUse = [0, 0, 0]
        var waiting = [Deque<UnsafeContinuation<Void, Never>>](repeating: [], count: 3)
        var credits = LaneCredits()
    }

    private let state = Mutex(State())
    /// The most permits for a lane and all less urgent lanes, by rank.
    private let limits: [Int]

    /// - Parameter total: the number of permits, at least 3.
    package init(_ total: Int) {
        let reserve = max(1, total / 16)
        self.limits = [total, total - reserve, total - 2 * reserve]
    }

    /// Takes a permit, waiting for one.
    package func acquire(_ lane: Lane) async {
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
            // Unsafe continuations are sound here: each is in one deque, and is resumed when it is
            // removed.
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

    /// Returns a permit of `lane`.
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

    /// Whether a permit for the lane keeps it and all more urgent lanes within their limits.
    private func isFree(_ lane: Lane, _ state: borrowing State) -> Bool {
        var taken = 0
        for rank in stride(from: 2, through: 0, by: -1) {
            taken += state.inUse[rank]
            if rank <= lane.rank, taken >= self.limits[rank] { return false }
        }
        return true
    }
}

/// Weighted round-robin over lanes: the urgent first, each as often as its weight, so that none
/// starves.
package struct LaneCredits {
    private var credits: [Lane: Int] = [:]

    package init() {}

    /// Returns the next lane and charges it; nil if `filled` is empty.
    package mutating func next(among filled: [Lane]) -> Lane? {
        guard let first = filled.first else { return nil }
        let funded = filled.first { self.credits[$0, default: $0.weight] > 0 }
        if funded == nil { self.credits = [:] }
        let lane = funded ?? first
        self.credits[lane, default: lane.weight] -= 1
        return lane
    }
}
