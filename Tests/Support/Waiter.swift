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
        await eventually { self.progress.withLock { $0 } != .unborn }
        for _ in 0..<200 { await Task.yield() }
        return self.progress.withLock { $0 } == .running
    }

    /// Waits until it ends, up to the suite's time limit.
    package func finish() async {
        await eventually { self.progress.withLock { $0 } == .done }
    }
}

/// Waits until a condition holds, up to the suite's time limit.
package func eventually(_ condition: () -> Bool) async {
    while !condition(), !Task.isCancelled { await Task.yield() }
}
