// Carillon · FrameTally.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import NIOCore
import NIOPosix
import Synchronization

/// Counts what comes in on event loops, and tells the moment when there is enough.
final class FrameTally: Sendable {
    private struct State {
        var count = 0
        var target = Int.max
        var waiter: CheckedContinuation<ContinuousClock.Instant?, Never>?
    }

    private let state = Mutex(State())
    private let name: String

    /// - Parameter name: what it counts, for the error that says that some is missing.
    init(of name: String) {
        self.name = name
    }

    var count: Int { self.state.withLock { $0.count } }

    func add() {
        let waiter = self.state.withLock { state in
            state.count += 1
            return state.count >= state.target ? Self.release(&state) : nil
        }
        waiter?.resume(returning: .now)
    }

    /// Waits until `target` have come; only one may wait at a time.
    ///
    /// - Returns: when the last one came.
    /// - Throws: `ValidationError` if that takes longer than `limit`.
    @discardableResult
    func reach(_ target: Int, within limit: Duration = .seconds(120)) async throws -> ContinuousClock.Instant {
        if self.count >= target { return .now }
        let eventLoop = Environment.eventLoops.next()
        let timeout = eventLoop.scheduleTask(in: TimeAmount(limit)) {
            self.state.withLock { Self.release(&$0) }?.resume(returning: nil)
        }
        let moment = await withCheckedContinuation { continuation in
            let isThere = self.state.withLock { state in
                if state.count >= target { return true }
                state.target = target
                state.waiter = continuation
                return false
            }
            if isThere { continuation.resume(returning: ContinuousClock.Instant?.some(.now)) }
        }
        timeout.cancel()
        guard let moment else { throw ValidationError("only \(self.count) of \(target) \(self.name) came") }
        return moment
    }

    private static func release(_ state: inout State) -> CheckedContinuation<ContinuousClock.Instant?, Never>? {
        defer {
            state.waiter = nil
            state.target = .max
        }
        return state.waiter
    }
}
