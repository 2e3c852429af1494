// Carillon · Alarm.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import ServiceLifecycle
import Synchronization

/// Wakes a service when work is due.
///
/// Neither Redis nor PostgreSQL signals that work is due, so a process schedules an alarm for the
/// work that it postponed, and its service sleeps until then. The service also wakes at its longest
/// interval, to find the work of dead processes.
package final class Alarm: Sendable {
    private struct State {
        /// The earliest moment scheduled since the last wait ended.
        var moment: Timestamp?
        /// Returns true if it ran to its end.
        var sleep: Task<Bool, Never>?
    }

    private let state = Mutex(State())

    package init() {}

    /// Ends the wait, or the next one, at once.
    package func ring() { self.schedule(at: Timestamp(seconds: 0)) }

    /// Ends the wait at a moment when work is due; one in the past ends it at once.
    package func schedule(at moment: Timestamp) {
        self.state.withLock { state in
            if let earliest = state.moment, earliest <= moment { return }
            state.moment = moment
            state.sleep?.cancel()
        }
    }

    /// Waits for the earliest scheduled moment; a shutdown or a cancellation ends the wait.
    ///
    /// Only one service may wait. It must then look for all due work, and schedule the next
    /// wake-up.
    ///
    /// - Parameters:
    ///   - shortest: the least wait, so that work gathers into batches.
    ///   - longest: the wait if no scheduled moment comes first.
    ///   - now: the clock that the moments refer to.
    package func wait(
        atLeast shortest: Duration = .zero, atMost longest: Duration, now: @Sendable () -> Timestamp = Timestamp.now
    ) async {
        let start = ContinuousClock.now
        while !Task.isShuttingDownGracefully, !Task.isCancelled {
            let passed = ContinuousClock.now - start
            guard let sleep = self.sleep(atLeast: shortest - passed, atMost: longest - passed, now: now()) else {
                break
            }
            let isOver = await cancelWhenGracefulShutdown {
                await withTaskCancellationHandler {
                    await sleep.value
                } onCancel: {
                    sleep.cancel()
                }
            }
            if isOver { break }
        }
        self.state.withLock { $0 = State() }
    }

    /// Begins to sleep until the earliest moment; returns nil if it has come.
    private func sleep(atLeast shortest: Duration, atMost longest: Duration, now: Timestamp) -> Task<Bool, Never>? {
        self.state.withLock { state in
            // One timer for both waits, because each timer wakes two threads.
            let rest = max(shortest, state.moment.map { min(longest, $0 - now) } ?? longest)
            guard rest > .zero else { return nil }
            let sleep = Task<Bool, Never> {
                do {
                    // Until the moment; an earlier one cancels this sleep.
                    try await Task.sleep(for: rest)
                    return true
                } catch {
                    return false
                }
            }
            state.sleep = sleep
            return sleep
        }
    }
}
