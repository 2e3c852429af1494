// Carillon · TestSends.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Test messages to one device: a list of requests that any dispatcher takes, and a key for each
/// answer.
package struct TestSends: Sendable {
    /// The reason why a request has no answer, with its text for the caller.
    package enum Failure: String, Error {
        case tooMany = "too many test sends wait; is a dispatcher running?"
        case unanswered = "a dispatcher took it and has not answered; it may have been sent"
        /// The request was withdrawn, so no dispatcher takes it later either.
        case untaken = "no dispatcher took it; is one running?"
    }

    /// The most waiting requests; further ones are refused.
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

    /// Requests a test send and waits for the answer.
    ///
    /// - Parameter content: the request without its id.
    /// - Returns: the answer as JSON.
    /// - Throws: ``Failure``, or an error of Redis.
    package func send(_ content: [JSONMember]) async throws -> [UInt8] {
        let id = RandomName.make()
        let request = JSONWriter.bytes(of: .object([JSONMember("id", .string(id))] + content))
        try await self.ask(request)
        return try await self.waitForAnswer(id, to: request)
    }

    /// Adds a request for any dispatcher to take.
    func ask(_ request: [UInt8]) async throws {
        guard try await self.live.connection.send("LLEN", .text(self.live.keys.testSends)).integer() < Self.capacity
        else { throw Failure.tooMany }
        var batch = RedisBatch()
        batch.append("LPUSH", .text(self.live.keys.testSends), .bytes(request))
        // After a minute no caller waits for the answer.
        batch.append("EXPIRE", .text(self.live.keys.testSends), .integer(Self.lifetime))
        try await self.live.connection.run(batch)
    }

    /// Removes the oldest request and returns it; waits for one on a connection of its own.
    ///
    /// - Returns: nil if none came within `seconds`.
    package func next(
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
    /// - Throws: ``Failure``, or an error of Redis.
    func waitForAnswer(_ id: String, to request: [UInt8]) async throws -> [UInt8] {
        let deadline = ContinuousClock.now + self.patience
        while ContinuousClock.now < deadline {
            let reply = try await self.live.connection.send("GETDEL", .text(self.live.keys.testAnswer(id)))
            if let text = try reply.string() { return Array(text.utf8) }
            // Redis does not signal the key of the answer, so poll it.
            try await Task.sleep(for: Self.interval)
        }
        let removed = try await self.live.connection.send(
            "LREM", .text(self.live.keys.testSends), .integer(1), .bytes(request))
        throw try removed.integer() > 0 ? Failure.untaken : Failure.unanswered
    }
}
