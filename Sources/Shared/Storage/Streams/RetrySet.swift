// Carillon · RetrySet.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Deliveries that failed for the moment, by the time of their next try.
///
/// Deliveries that were held back untried are in the ``HeldSets``; older dispatchers put them here.
package struct RetrySet: Sendable {
    let live: Live

    /// Adds a retry to a batch.
    package func add(
        _ work: DeliveryWork,
        due: Timestamp,
        provider: Provider,
        lane: Lane,
        in batch: inout RedisBatch
    ) {
        batch.append(
            "ZADD", .text(self.live.keys.retries(provider, lane)), .integer(due.milliseconds), .text(work.text)
        )
    }

    /// Moves up to `limit` that are due back to their stream.
    ///
    /// - Returns: how many were moved.
    package func moveDue(
        provider: Provider,
        lane: Lane,
        now: Timestamp,
        limit: Int
    ) async throws(RedisError) -> Int {
        Int(
            try await self.live.connection.run(
                StreamScripts.moveDue,
                keys: [
                    .text(self.live.keys.retries(provider, lane)), .text(self.live.keys.deliveries(provider, lane)),
                ],
                arguments: [.integer(now.milliseconds), .integer(Int64(limit))]
            ).integer()
        )
    }

    /// How many wait.
    package func count(provider: Provider, lane: Lane) async throws(RedisError) -> Int {
        Int(try await self.live.connection.send("ZCARD", .text(self.live.keys.retries(provider, lane))).integer())
    }
}
