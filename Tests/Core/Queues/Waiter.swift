// Carillon · Waiter.swift
// SPDX-License-Identifier: Apache-2.0

import Synchronization
import Testing

/// Something that runs beside a test and may have to wait.
final class Waiter: Sendable {
    private enum Progress: Sendable {
        case unborn, running, done
    }

    private let progress = Mutex(Progress.unborn)

    init(_ body: @escaping @Sendable () async -> Void) {
        Task {
            self.progress.withLock { $0 = .running }
            await body()
            self.progress.withLock { $0 = .done }
        }
    }

    /// Whether it is still waiting after it began and everyone had many turns.
    func staysWaiting() async -> Bool {
        await eventually { self.progress.withLock { $0 } != .unborn }
        for _ in 0..<200 { await Task.yield() }
        return self.progress.withLock { $0 } == .running
    }

    /// Waits for its end.
    func finish() async {
        await eventually { self.progress.withLock { $0 } == .done }
        #expect(self.progress.withLock { $0 } == .done)
    }
}

/// Waits until a condition holds; the suite's time limit ends a wait in vain.
func eventually(_ condition: () -> Bool) async {
    while !condition(), !Task.isCancelled { await Task.yield() }
}
