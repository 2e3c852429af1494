// Carillon · RetrySet+Move.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage

extension RetrySet {
    /// Moves up to `limit` due deliveries back to their stream; removes a scope that has none left.
    ///
    /// - Parameter scope: the app or service that they are held back for; nil for retries.
    /// - Returns: the number of deliveries moved.
    package func moveDue(
        provider: Provider,
        lane: Lane,
        scope: BreakerScope? = nil,
        now: Timestamp,
        limit: Int
    ) async throws(RedisError) -> Int {
        let move = Move(scope: scope, dueBy: now, limit: limit)
        return try await self.moveDue([move], provider: provider, lane: lane).reduce(0, +)
    }
}
