// Carillon · ReadQueueTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Synchronization
import Testing

@testable import Storage

/// Concurrent reads that share statements, and their failures.
@Suite(.timeLimit(.minutes(10)))
struct ReadQueueTests {
    /// A read whose calls wait until the test ends the stall.
    private final class StalledRead: Sendable {
        private let calls = Mutex<[[Int]]>([])
        private let end: AsyncStream<Void>
        private let ending: AsyncStream<Void>.Continuation
        private let start: AsyncStream<Void>
        private let starting: AsyncStream<Void>.Continuation

        init() {
            (self.end, self.ending) = AsyncStream.makeStream(of: Void.self)
            (self.start, self.starting) = AsyncStream.makeStream(of: Void.self)
        }

        /// The keys of each call.
        var keys: [[Int]] { self.calls.withLock { $0 } }

        func stall(_ keys: [Int]) async {
            self.calls.withLock { $0.append(keys) }
            self.starting.yield()
            for await _ in self.end {}
        }

        /// Sends a caller with key 0 that takes the only turn, and others until one finds the queue
        /// full; then ends the stall.
        ///
        /// - Returns: the keys that were answered, and the errors of the others.
        func outcomes(
            of queue: ReadQueue<Int, Int>,
            others: Int
        ) async -> (answered: Set<Int>, errors: [Int: PostgresError.Code]) {
            await withTaskGroup(of: (key: Int, error: PostgresError.Code?).self) { group in
                var starts = self.start.makeAsyncIterator()
                for key in 0...others {
                    group.addTask {
                        do throws(PostgresError) {
                            return (key, try await queue.value(key) == key ? nil : .decoding)
                        } catch {
                            return (key, error.code)
                        }
                    }
                    if key == 0 { _ = await starts.next() }
                }
                var answered: Set<Int> = []
                var errors: [Int: PostgresError.Code] = [:]
                for await (key, error) in group {
                    if let error { errors[key] = error } else { answered.insert(key) }
                    // The caller that finds the queue full answers first, so the others wait.
                    self.ending.finish()
                }
                return (answered, errors)
            }
        }
    }

    /// A queue in which three callers wait and share a statement.
    private static func queue(
        _ stalled: StalledRead,
        read: @escaping @Sendable ([Int]) throws(PostgresError) -> Void
    ) -> ReadQueue<Int, Int> {
        ReadQueue(turns: 1, mostWaiting: 3, mayJoin: { _, _, _ in true }) {
            (keys: [Int]) async throws(PostgresError) -> [Int] in
            await stalled.stall(keys)
            if keys != [0] { try read(keys) }
            return keys
        }
    }

    /// One key is at fault.
    private static let refused = PostgresError(.server, sqlState: "22021")

    @Test("answers waiting callers together")
    func together() async {
        let stalled = StalledRead()
        let queue = Self.queue(stalled) { _ in }
        let (answered, errors) = await stalled.outcomes(of: queue, others: 4)
        #expect(answered.count == 4 && Array(errors.values) == [.overloaded])
        #expect(stalled.keys.map(\.count) == [1, 3])
    }

    @Test("one failing key does not fail the others")
    func failingKey() async {
        let stalled = StalledRead()
        let queue = Self.queue(stalled) { (keys) throws(PostgresError) in
            if keys.contains(where: { $0 % 2 == 1 }) { throw Self.refused }
        }
        let (answered, errors) = await stalled.outcomes(of: queue, others: 4)
        let failed = errors.filter { $0.value == .server }.keys
        #expect(!failed.isEmpty && failed.allSatisfy { $0 % 2 == 1 })
        #expect(answered.count > 1 && answered.allSatisfy { $0 % 2 == 0 })
        #expect(answered.count + failed.count == 4)
    }

    @Test("does not retry keys one by one when the server is down")
    func serverFailure() async {
        let stalled = StalledRead()
        let queue = Self.queue(stalled) { (_) throws(PostgresError) in
            throw PostgresError(.server, sqlState: "57P01")
        }
        let (answered, errors) = await stalled.outcomes(of: queue, others: 4)
        #expect(answered == [0] && errors.values.filter { $0 == .server }.count == 3)
        #expect(stalled.keys.dropFirst().allSatisfy { $0.count > 1 })
    }

    @Test("stops retrying keys one by one once PostgreSQL does not answer")
    func silence() async {
        let stalled = StalledRead()
        let queue = Self.queue(stalled) { (keys) throws(PostgresError) in
            throw keys.count > 1 ? Self.refused : PostgresError(.unavailable)
        }
        let (answered, errors) = await stalled.outcomes(of: queue, others: 4)
        #expect(answered == [0] && errors.values.filter { $0 == .unavailable }.count == 3)
        #expect(stalled.keys.dropFirst().filter { $0.count == 1 }.count == 1)
    }

    @Test("fails all waiting callers once PostgreSQL does not answer, and further ones at once")
    func outage() async {
        let stalled = StalledRead()
        let queue = ReadQueue<Int, Int>(turns: 1, mostWaiting: 3, mayJoin: { _, _, _ in false }) {
            (keys: [Int]) async throws(PostgresError) -> [Int] in
            await stalled.stall(keys)
            throw PostgresError(.unavailable)
        }
        let (answered, errors) = await stalled.outcomes(of: queue, others: 4)
        #expect(answered.isEmpty && errors[0] == .unavailable)
        #expect(errors.values.filter { $0 == .unavailable }.count == 4)
        #expect(errors.values.contains(.overloaded))
        #expect(stalled.keys == [[0]], "no waiting caller is read for")
    }

    @Test("fails a caller whose turn comes too late")
    func late() async {
        let stalled = StalledRead()
        let queue = ReadQueue<Int, Int>(turns: 1, patience: .zero, mostWaiting: 1, mayJoin: { _, _, _ in false }) {
            (keys: [Int]) async throws(PostgresError) -> [Int] in
            await stalled.stall(keys)
            return keys
        }
        let (answered, errors) = await stalled.outcomes(of: queue, others: 2)
        #expect(answered == [0] && Array(errors.values) == [.overloaded, .overloaded])
    }
}
