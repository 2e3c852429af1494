// Carillon · InboxScans.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Synchronization

/// Limits statements that may look at a whole inbox: few run at once, and one of each user.
///
/// Users take turns, so a user with many or slow scans delays only their own.
final class InboxScans: Sendable {
    private struct Waiting {
        let since: ContinuousClock.Instant
        /// Resumed with whether the scan may run.
        // An unsafe one is sound here: it is resumed once, by the task that removes it from the
        // waiting scans.
        let continuation: UnsafeContinuation<Bool, Never>
    }

    private struct State {
        var freeTurns: Int
        /// The waiting scans of each user who has a turn or is in `queue`, by arrival.
        var waiting: [ExactText: [Waiting]] = [:]
        /// Users who wait for a turn, in the order of their turns.
        var queue: [ExactText] = []
    }

    private let patience: Duration
    private let mostWaiting: Int
    private let mostUsers: Int
    private let state: Mutex<State>

    /// - Parameters:
    ///   - turns: the most scans in flight.
    ///   - patience: how long a scan may wait; it ends when the next turn does after that.
    ///   - mostWaiting: the most waiting scans of a user.
    ///   - mostUsers: the most users who wait for a turn.
    init(turns: Int, patience: Duration = .seconds(10), mostWaiting: Int = 8, mostUsers: Int = 10_000) {
        self.patience = patience
        self.mostWaiting = mostWaiting
        self.mostUsers = mostUsers
        self.state = Mutex(State(freeTurns: turns))
    }

    /// Runs a scan of a user's inbox once it has a turn.
    ///
    /// - Throws: ``PostgresError``, with code `overloaded` if too many scans wait or it has waited
    ///   too long.
    func run<Value>(
        for user: String,
        _ scan: () async throws(PostgresError) -> Value
    ) async throws(PostgresError) -> Value {
        let user = ExactText(user)
        guard await self.takeTurn(user) else { throw PostgresError(.overloaded, "too many scans of inboxes wait") }
        defer { self.endTurn(user) }
        return try await scan()
    }

    /// Waits for a turn; returns false if the scan must not run.
    private func takeTurn(_ user: ExactText) async -> Bool {
        await withUnsafeContinuation { (continuation: UnsafeContinuation<Bool, Never>) in
            let mayRun: Bool? = self.state.withLock { state in
                let own = state.waiting[user]
                if own == nil, state.freeTurns > 0 {
                    state.freeTurns -= 1
                    state.waiting[user] = []
                    return true
                }
                guard (own?.count ?? 0) < self.mostWaiting, state.queue.count < self.mostUsers else { return false }
                if own == nil { state.queue.append(user) }
                state.waiting[user, default: []].append(Waiting(since: .now, continuation: continuation))
                return nil
            }
            if let mayRun { continuation.resume(returning: mayRun) }
        }
    }

    /// Passes a user's turn to the first user who waits, and ends scans that have waited too long.
    ///
    /// The user's own next scan comes after those of all others.
    private func endTurn(_ user: ExactText) {
        let (late, next) = self.state.withLock { state in
            if state.waiting[user]?.isEmpty == false {
                state.queue.append(user)
            } else {
                state.waiting[user] = nil
            }
            let late = self.takeLate(&state)
            guard !state.queue.isEmpty else {
                state.freeTurns += 1
                return (late, Waiting?.none)
            }
            let first = state.queue.removeFirst()
            return (late, state.waiting[first]?.removeFirst())
        }
        for scan in late { scan.continuation.resume(returning: false) }
        next?.continuation.resume(returning: true)
    }

    /// Removes the scans that have waited too long, and users who then have none.
    private func takeLate(_ state: inout State) -> [Waiting] {
        let oldest = ContinuousClock.now - self.patience
        var late: [Waiting] = []
        let queue = state.queue
        state.queue = queue.filter { user in
            let own = state.waiting[user] ?? []
            let inTime = Array(own.drop { $0.since <= oldest })
            late += own.prefix(own.count - inTime.count)
            state.waiting[user] = inTime.isEmpty ? nil : inTime
            return !inTime.isEmpty
        }
        return late
    }
}
