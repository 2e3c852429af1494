// Carillon · Bell.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// Wakes one sleeper before its time; a ring that finds nobody asleep is kept, once.
final class Bell: Sendable {
    private struct State {
        var isRung = false
        var sleeper: CheckedContinuation<Void, Never>?
    }

    private let state = Mutex(State())

    func ring() {
        let sleeper = self.state.withLock { state in
            defer { state.sleeper = nil }
            state.isRung = state.sleeper == nil
            return state.sleeper
        }
        sleeper?.resume()
    }

    /// Sleeps until it rings, the time is over, or the task is cancelled; for one caller at a time.
    func wait(atMost limit: Duration) async {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.sleep() }
            group.addTask {
                // The time limit of the wait above.
                try? await Task.sleep(for: limit)
                self.wake()
            }
            await group.next()
            group.cancelAll()
            // Once more: the sleeper may have lain down after the time was over, and before it was cancelled.
            self.wake()
        }
    }

    private func sleep() async {
        await withCheckedContinuation { continuation in
            let mustWait = self.state.withLock { state in
                guard !state.isRung, !Task.isCancelled else {
                    state.isRung = false
                    return false
                }
                state.sleeper = continuation
                return true
            }
            if !mustWait { continuation.resume() }
        }
    }

    private func wake() {
        let sleeper = self.state.withLock { state in
            defer { state.sleeper = nil }
            return state.sleeper
        }
        sleeper?.resume()
    }
}
