// Carillon · ReadQueue.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization

/// Reads for callers who ask at the same time, many in one statement.
///
/// Who finds a turn free asks at once and alone, so that nobody is kept waiting for company. Who comes while every turn is
/// taken is asked for together with all others who wait, as soon as one is free: the busier the server, the more a statement
/// answers, and a statement costs it more than what most of them read. Nobody joins a statement that is under way, so each
/// sees what was committed before they asked.
///
/// As many wait as there are callers; each waits for a statement that has a time limit, and then for their own.
final class ReadQueue<Key: Sendable, Value: Sendable>: Sendable {
    private struct Waiting {
        let key: Key
        let continuation: CheckedContinuation<Result<Value, PostgresError>, Never>
    }

    private struct State {
        /// Turns that are taken.
        var running = 0
        var waiting: [Waiting] = []
    }

    private let turns: Int
    private let mayJoin: @Sendable (_ first: Key, _ another: Key, _ count: Int) -> Bool
    private let read: @Sendable ([Key]) async throws(PostgresError) -> [Value]
    private let state = Mutex(State())

    /// - Parameters:
    ///   - turns: how many statements are under way at most.
    ///   - mayJoin: whether `another` may be asked for together with `first`, where `count` are already.
    ///   - read: one value for each key, in their order.
    init(
        turns: Int,
        mayJoin: @escaping @Sendable (_ first: Key, _ another: Key, _ count: Int) -> Bool,
        read: @escaping @Sendable ([Key]) async throws(PostgresError) -> [Value]
    ) {
        self.turns = turns
        self.mayJoin = mayJoin
        self.read = read
    }

    /// What is read for one key.
    func value(_ key: Key) async throws(PostgresError) -> Value {
        if self.state.withLock({ self.takeTurn(&$0) }) {
            defer { self.handOn() }
            return try await self.alone(key).get()
        }
        let result = await withCheckedContinuation { continuation in
            let mustServe = self.state.withLock { state in
                state.waiting.append(Waiting(key: key, continuation: continuation))
                // A turn may have ended since.
                return self.takeTurn(&state)
            }
            if mustServe { Task { await self.serve() } }
        }
        return try result.get()
    }

    private func takeTurn(_ state: inout State) -> Bool {
        guard state.running < self.turns else { return false }
        state.running += 1
        return true
    }

    /// Ends a turn, or gives it to those who wait.
    private func handOn() {
        let isOver = self.state.withLock { state in
            guard state.waiting.isEmpty else { return false }
            state.running -= 1
            return true
        }
        if !isOver { Task { await self.serve() } }
    }

    /// Serves those who wait until nobody does, then ends the turn.
    private func serve() async {
        while true {
            let batch = self.state.withLock { state in
                let batch = self.takeBatch(&state)
                if batch.isEmpty { state.running -= 1 }
                return batch
            }
            guard !batch.isEmpty else { return }
            for (waiting, result) in zip(batch, await self.results(batch.map(\.key))) {
                waiting.continuation.resume(returning: result)
            }
        }
    }

    /// The first who waits, and those after it who may join.
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
            guard values.count == keys.count else { throw PostgresError(.decoding, "not one value for each key") }
            return values.map { .success($0) }
        } catch {
            // What PostgreSQL refuses may be one key's fault; the others are not to suffer for it.
            guard error.code == .server, keys.count > 1 else { return keys.map { _ in .failure(error) } }
            var results: [Result<Value, PostgresError>] = []
            for key in keys { results.append(await self.alone(key)) }
            return results
        }
    }

    private func alone(_ key: Key) async -> Result<Value, PostgresError> {
        do throws(PostgresError) {
            guard let value = try await self.read([key]).first else {
                throw PostgresError(.decoding, "no value for a key")
            }
            return .success(value)
        } catch {
            return .failure(error)
        }
    }
}
