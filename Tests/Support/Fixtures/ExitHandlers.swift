// Carillon · ExitHandlers.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import Synchronization

/// What is done when the test process exits, the newest first.
enum ExitHandlers {
    private static let handlers = Mutex<[@Sendable () -> Void]>([])

    /// Adds work, which must not take long.
    static func add(_ handler: @escaping @Sendable () -> Void) {
        let isFirst = Self.handlers.withLock { handlers in
            handlers.append(handler)
            return handlers.count == 1
        }
        if isFirst { atexit(runExitHandlers) }
    }

    static func run() {
        for handler in Self.handlers.withLock({ $0.reversed() }) { handler() }
    }
}

// Top-level, so that C calls a function without isolation.
private func runExitHandlers() {
    ExitHandlers.run()
}
