// Carillon · Waiter.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization

/// A task that runs concurrently with a test and may block.
package final class Waiter: Sendable {
    private enum Progress: Sendable {
        case unborn, running, done
    }

    private let progress = Mutex(Progress.unborn)

    package init(_ body: @escaping @Sendable () async -> Void) {
        Task {
            self.progress.withLock { $0 = .running }
            await body()
            self.progress.withLock { $0 = .done }
        }
    }

    /// Whether it still waits after other tasks had many turns.
    package func staysWaiting() async -> Bool {
        await self.reach { $0 != .unborn }
        for _ in 0..<200 { await Task.yield() }
        return self.progress.withLock { $0 } == .running
    }

    /// Waits until it ends, up to the suite's time limit.
    package func finish() async {
        await self.reach { $0 == .done }
    }

    private func reach(_ condition: (Progress) -> Bool) async {
        while !self.progress.withLock({ condition($0) }), !Task.isCancelled { await Task.yield() }
    }
}
