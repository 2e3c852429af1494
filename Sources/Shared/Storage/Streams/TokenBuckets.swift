// Carillon · TokenBuckets.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// What users have used up of their rates, over all nodes: one key a user and kind, which lapses when its bucket is full.
package struct TokenBuckets: Sendable {
    let live: Live

    /// Takes tokens, also those that are not there.
    ///
    /// - Parameters:
    ///   - kind: what is bounded; part of the key.
    ///   - burst: tokens that a full bucket holds.
    /// - Returns: in how many milliseconds the bucket holds a token again; 0 if it still does.
    package func take(
        _ count: Int,
        kind: String,
        user: String,
        perSecond: Int,
        burst: Int
    ) async throws(RedisError) -> Int64 {
        try await self.run(
            StreamScripts.takeTokens, count, kind: kind, user: user, perSecond: perSecond, burst: burst)
    }

    /// Takes as many of so many tokens as there are.
    ///
    /// - Parameters:
    ///   - kind: what is bounded; part of the key.
    ///   - burst: tokens that a full bucket holds.
    /// - Returns: how many were taken.
    package func takeAvailable(
        _ count: Int,
        kind: String,
        user: String,
        perSecond: Int,
        burst: Int
    ) async throws(RedisError) -> Int {
        Int(
            try await self.run(
                StreamScripts.takeAvailableTokens, count, kind: kind, user: user, perSecond: perSecond, burst: burst))
    }

    private func run(
        _ script: RedisScript,
        _ count: Int,
        kind: String,
        user: String,
        perSecond: Int,
        burst: Int
    ) async throws(RedisError) -> Int64 {
        var batch = RedisBatch()
        batch.append(
            script,
            keys: [.text(self.live.keys.bucket(kind, user))],
            arguments: [.text("\(perSecond)"), .text("\(burst)"), .text("\(count)")]
        )
        guard let reply = try await self.live.connection.send(batch).first else { return 0 }
        return try reply.integer()
    }
}
