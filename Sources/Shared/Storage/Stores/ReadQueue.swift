// Carillon · ReadQueue.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization

/// Combines concurrent reads into one statement.
///
/// A caller that finds a free turn reads alone and at once. Callers that come while every turn is
/// taken wait, and share the next statement: the busier the server, the more a statement answers.
/// No caller joins a statement in flight, so each sees what was committed before it asked.
///
/// Waiting callers are bounded in number and time; further ones fail with `overloaded`. If the
/// server does not answer, all waiting callers fail too: in its turn each would wait as long again.
final class ReadQueue<Key: Sendable, Value: Sendable>: Sendable {
    private struct Waiting {
        let key: Key
        let since: ContinuousClock.Instant
        // An unsafe one is sound here: it is resumed once, by the task that removes it from the
        // waiting callers, or at once if too many wait.
        let continuation: UnsafeContinuation<Result<Value, PostgresError>, Never>
    }

    private struct State {
        /// Statements in flight.
        var running = 0
        /// In the order of arrival.
        var waiting: [Waiting] = []
    }

    private let turns: Int
    private let patience: Duration
    private let mostWaiting: Int
    private let mayJoin: @Sendable (_ first: Key, _ another: Key, _ count: Int) -> Bool
    private let read: @Sendable ([Key]) async throws(PostgresError) -> [Value]
    private let state = Mutex(State())

    /// - Parameters:
    ///   - turns: the most statements in flight.
    ///   - patience: how long a caller may have waited when its turn comes.
    ///   - mostWaiting: the most callers that wait.
    ///   - mayJoin: whether `another` may share a statement with `first` and `count` keys in all.
    ///   - read: returns one value for each key, in their order.
    init(
        turns: Int,
        patience: Duration = .seconds(10),
        mostWaiting: Int = 10_000,
        mayJoin: @escaping @Sendable (_ first: Key, _ another: Key, _ count: Int) -> Bool,
        read: @escaping @Sendable ([Key]) async throws(PostgresError) -> [Value]
    ) {
        self.turns = turns
        self.patience = patience
        self.mostWaiting = mostWaiting
        self.mayJoin = mayJoin
        self.read = read
    }

    /// Reads the value of one key.
    ///
    /// - Throws: ``PostgresError``, with code `overloaded` if too many callers wait or it has
    ///   waited too long.
    func value(_ key: Key) async throws(PostgresError) -> Value {
        if self.state.withLock({ self.takeTurn(&$0) }) {
            let result = await self.alone(key)
            self.failWaiting(after: result)
            self.handOn()
            return try result.get()
        }
        let result = await withUnsafeContinuation {
            (continuation: UnsafeContinuation<Result<Value, PostgresError>, Never>) in
            let (isWaiting, mustServe) = self.state.withLock { state in
                guard state.waiting.count < self.mostWaiting else { return (false, false) }
                state.waiting.append(Waiting(key: key, since: .now, continuation: continuation))
                // A turn may have ended meanwhile.
                return (true, self.takeTurn(&state))
            }
            if !isWaiting { continuation.resume(returning: Self.overload) }
            if mustServe { Task { await self.serve() } }
        }
        return try result.get()
    }

    private static var overload: Result<Value, PostgresError> {
        .failure(PostgresError(.overloaded, "too many reads of inboxes wait"))
    }

    /// Fails all waiting callers if the server did not answer.
    private func failWaiting(after result: Result<Value, PostgresError>) {
        guard self.isOutage(result) else { return }
        let waiting = self.state.withLock { state in
            defer { state.waiting = [] }
            return state.waiting
        }
        for caller in waiting { caller.continuation.resume(returning: result) }
    }

    /// Whether the server does not answer.
    private func isOutage(_ result: Result<Value, PostgresError>) -> Bool {
        guard case .failure(let error) = result else { return false }
        return error.code == .unavailable || error.code == .timeout
    }

    private func takeTurn(_ state: inout State) -> Bool {
        guard state.running < self.turns else { return false }
        state.running += 1
        return true
    }

    /// Ends a turn, or passes it to waiting callers.
    private func handOn() {
        let isOver = self.state.withLock { state in
            guard state.waiting.isEmpty else { return false }
            state.running -= 1
            return true
        }
        if !isOver { Task { await self.serve() } }
    }

    /// Serves waiting callers until there are none, then ends the turn.
    private func serve() async {
        while true {
            let (late, batch) = self.state.withLock { state in
                let late = self.takeLate(&state)
                let batch = self.takeBatch(&state)
                if batch.isEmpty { state.running -= 1 }
                return (late, batch)
            }
            for waiting in late { waiting.continuation.resume(returning: Self.overload) }
            guard !batch.isEmpty else { return }
            let results = await self.results(batch.map(\.key))
            if let last = results.last { self.failWaiting(after: last) }
            for (waiting, result) in zip(batch, results) { waiting.continuation.resume(returning: result) }
        }
    }

    /// Removes the callers that have waited too long.
    private func takeLate(_ state: inout State) -> [Waiting] {
        let oldest = ContinuousClock.now - self.patience
        let late = Array(state.waiting.prefix { $0.since <= oldest })
        state.waiting.removeFirst(late.count)
        return late
    }

    /// Removes the first waiting caller and those that may join it.
    private func takeBatch(_ state: inout State) -> [Waiting] {
        guard let first = state.waiting.first else { return [] }
        var batch: [Waiting] = []
        var left: [Waiting] = []
        for waiting in state.waiting {
            if batch.isEmpty || self.mayJoin(first.key, waiting.key, batch.count) {
                batch.append(waiting)
            } else {
                left.append(waiting)
            }
        }
        state.waiting = left
        return batch
    }

    private func results(_ keys: [Key]) async -> [Result<Value, PostgresError>] {
        do throws(PostgresError) {
            let values = try await self.read(keys)
            guard values.count == keys.count else { throw PostgresError(.decoding, "expected one value for each key") }
            return values.map { .success($0) }
        } catch {
            // One key may be at fault, so read each alone, unless the server is: after a timeout
            // (57014) or a shutdown (57P01) each would wait long.
            guard error.code == .server, !error.isTransient, keys.count > 1 else {
                return keys.map { _ in .failure(error) }
            }
            var results: [Result<Value, PostgresError>] = []
            for key in keys {
                let result = await self.alone(key)
                results.append(result)
                guard self.isOutage(result) else { continue }
                results += repeatElement(result, count: keys.count - results.count)
                break
            }
            return results
        }
    }

    private func alone(_ key: Key) async -> Result<Value, PostgresError> {
        do throws(PostgresError) {
            guard let value = try await self.read([key]).first else {
                throw PostgresError(.decoding, "expected a value for each key")
            }
            return .success(value)
        } catch {
            return .failure(error)
        }
    }
}
