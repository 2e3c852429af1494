// Carillon · LogLimit.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Synchronization

/// Limits log lines about each key, such as an app, to one per interval; of all keys together, to
/// 1,000.
package final class LogLimit<Key: Hashable & Sendable>: Sendable {
    /// From this many keys on, those without a recent line are forgotten.
    ///
    /// If all have one, other keys have to wait, because users may invent keys.
    private static var capacity: Int { 1_000 }

    private let interval: Duration
    private let lastAt = Mutex<[Key: Timestamp]>([:])

    package init(every interval: Duration) {
        self.interval = interval
    }

    /// Whether a line about a key is due; if so, defers its next one.
    ///
    /// Threads call in any order and clocks step back, so `now` may be before the last line.
    package func isDue(for key: Key, at now: Timestamp) -> Bool {
        self.lastAt.withLock { lastAt in
            if let last = lastAt[key], self.isRecent(last, at: now) { return false }
            if lastAt.count >= Self.capacity {
                lastAt = lastAt.filter { self.isRecent($0.value, at: now) }
                guard lastAt.count < Self.capacity else { return false }
            }
            lastAt[key] = now
            return true
        }
    }

    private func isRecent(_ last: Timestamp, at now: Timestamp) -> Bool {
        max(now - last, last - now) < self.interval
    }
}

/// Lets only its first caller through, for a line that is logged once.
package final class FirstTime: Sendable {
    private let isOver = Atomic(false)

    package init() {}

    /// Whether this is the first call.
    package func take() -> Bool { !self.isOver.exchange(true, ordering: .relaxed) }
}
