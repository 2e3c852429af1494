// Carillon · TestSends.swift
// SPDX-License-Identifier: Apache-2.0

package import Redis

/// Messages to one device that somebody waits for: a list of requests that any dispatcher takes, and a key for each answer.
package struct TestSends: Sendable {
    /// Requests that wait at most; more are refused.
    private static let capacity = 100
    private static let lifetime: Int64 = 60
    /// A provider answers within its own 30 s, or not at all.
    private static let patience: Duration = .seconds(40)
    private static let interval: Duration = .milliseconds(100)

    private let connection: RedisConnection
    private let keys: Keyspace

    package init(connection: RedisConnection, keys: Keyspace) {
        self.connection = connection
        self.keys = keys
    }

    /// Asks for a send.
    ///
    /// - Returns: false if too many wait.
    package func ask(_ request: [UInt8]) async throws(RedisError) -> Bool {
        guard try await self.connection.send("LLEN", .text(self.keys.testSends)).integer() < Self.capacity else {
            return false
        }
        var batch = RedisBatch()
        batch.append("LPUSH", .text(self.keys.testSends), .bytes(request))
        // What nobody takes within a minute has nobody who waits for it.
        batch.append("EXPIRE", .text(self.keys.testSends), .integer(Self.lifetime))
        for reply in try await self.connection.send(batch) { _ = try reply.checked() }
        return true
    }

    /// Takes a request, waiting for one on a connection of its own.
    package func take(on reader: RedisConnection) async throws(RedisError) -> [UInt8]? {
        let reply = try await reader.send("BRPOP", .text(self.keys.testSends), "4")
        guard var cursor = try reply.cursor(), try cursor.array() == 2 else { return nil }
        try cursor.skip()
        return try cursor.string().map { Array($0.utf8) }
    }

    package func answer(_ id: String, _ text: [UInt8]) async throws(RedisError) {
        _ = try await self.connection.send(
            "SET", .text(self.keys.testAnswer(id)), .bytes(text), "EX", .integer(Self.lifetime)
        ).checked()
    }

    /// Waits for the answer to a request, longer than a provider may take.
    ///
    /// - Returns: nil if no dispatcher has answered.
    package func waitForAnswer(_ id: String) async throws -> [UInt8]? {
        let deadline = ContinuousClock.now + Self.patience
        while ContinuousClock.now < deadline {
            let reply = try await self.connection.send("GETDEL", .text(self.keys.testAnswer(id)))
            if let text = try reply.string() { return Array(text.utf8) }
            // The answer is a key that nobody announces.
            try await Task.sleep(for: Self.interval)
        }
        return nil
    }
}
