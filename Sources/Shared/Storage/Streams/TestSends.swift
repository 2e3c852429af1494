// Carillon · TestSends.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// Test messages to one device: a list of requests that any dispatcher takes, and a key for each
/// answer.
package struct TestSends: Sendable {
    /// The answer to the caller.
    package enum Answer: Sendable, Equatable {
        case answered([UInt8])
        /// A dispatcher took the request and has not answered.
        case unanswered
        /// No dispatcher took the request, and none will.
        case untaken
    }

    /// The number of waiting requests beyond which more are refused.
    private static let capacity = 100
    private static let lifetime: Int64 = 60
    private static let interval: Duration = .milliseconds(100)

    let live: Live
    private let patience: Duration

    /// - Parameter patience: the time to wait for an answer; longer than a dispatcher waits for a
    ///   provider.
    package init(_ live: Live, patience: Duration = .seconds(40)) {
        self.live = live
        self.patience = patience
    }

    /// Requests a test send.
    ///
    /// - Returns: false if too many requests wait.
    package func ask(_ request: [UInt8]) async throws(RedisError) -> Bool {
        guard try await self.live.connection.send("LLEN", .text(self.live.keys.testSends)).integer() < Self.capacity
        else {
            return false
        }
        var batch = RedisBatch()
        batch.append("LPUSH", .text(self.live.keys.testSends), .bytes(request))
        // After a minute no caller waits for the answer.
        batch.append("EXPIRE", .text(self.live.keys.testSends), .integer(Self.lifetime))
        try await self.live.connection.run(batch)
        return true
    }

    /// Takes a request; waits for one on a connection of its own.
    ///
    /// - Returns: nil if none came within `seconds`.
    package func take(
        on reader: RedisClient,
        within seconds: Int64 = 4
    ) async throws(RedisError) -> [UInt8]? {
        let reply = try await reader.send(
            "BRPOP", .text(self.live.keys.testSends), .integer(seconds), timeout: .seconds(2 * seconds))
        guard var cursor = try reply.cursor(), try cursor.array() == 2 else { return nil }
        try cursor.skip()
        return try cursor.string().map { Array($0.utf8) }
    }

    package func answer(_ id: String, _ text: [UInt8]) async throws(RedisError) {
        try await self.live.connection.send(
            "SET", .text(self.live.keys.testAnswer(id)), .bytes(text), "EX", .integer(Self.lifetime))
    }

    /// Waits for the answer to a request; withdraws one that no dispatcher takes in time.
    ///
    /// - Parameters:
    ///   - id: the id in the request.
    ///   - request: the bytes given to ``ask(_:)``.
    package func waitForAnswer(_ id: String, to request: [UInt8]) async throws -> Answer {
        let deadline = ContinuousClock.now + self.patience
        while ContinuousClock.now < deadline {
            let reply = try await self.live.connection.send("GETDEL", .text(self.live.keys.testAnswer(id)))
            if let text = try reply.string() { return .answered(Array(text.utf8)) }
            // Redis does not signal the key of the answer, so poll it.
            try await Task.sleep(for: Self.interval)
        }
        let removed = try await self.live.connection.send(
            "LREM", .text(self.live.keys.testSends), .integer(1), .bytes(request))
        return try removed.integer() > 0 ? .untaken : .unanswered
    }
}
