// Carillon · RetrySet.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Redis

/// Deliveries that failed for the moment, by the time of their next try.
///
/// What was held back untried is in the ``HeldSets``; older dispatchers put it here as well.
package struct RetrySet: Sendable {
    private let connection: RedisConnection
    private let keys: Keyspace

    package init(connection: RedisConnection, keys: Keyspace) {
        self.connection = connection
        self.keys = keys
    }

    /// Adds a retry to a batch.
    package func add(
        _ work: DeliveryWork,
        due: Timestamp,
        provider: Provider,
        lane: Lane,
        in batch: inout RedisBatch
    ) {
        batch.append(
            "ZADD", .text(self.keys.retries(provider, lane)), .integer(due.milliseconds), .text(work.text)
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
            try await self.connection.run(
                StreamScripts.moveDue,
                keys: [.text(self.keys.retries(provider, lane)), .text(self.keys.deliveries(provider, lane))],
                arguments: [.integer(now.milliseconds), .integer(Int64(limit))]
            ).integer()
        )
    }

    /// How many members ``areWaiting(_:provider:lane:)`` reads at most, and in which steps.
    private static let mostRead = 10_000
    private static let page = 1_000

    /// Tells which deliveries of one stream wait here for their next try.
    ///
    /// A set of more than 10,000 members is not read, and none of them counts as waiting: those
    /// that are handed on again then come early, and the record of attempts keeps them from
    /// arriving twice.
    ///
    /// - Returns: a value for each delivery, in order.
    package func areWaiting(
        _ works: [DeliveryWork],
        provider: Provider,
        lane: Lane
    ) async throws(RedisError) -> [Bool] {
        let count = try await self.count(provider: provider, lane: lane)
        guard count > 0, count <= Self.mostRead else { return works.map { _ in false } }
        let key = RedisArgument.text(self.keys.retries(provider, lane))
        var waiting: Set<Identity> = []
        for start in stride(from: 0, to: count, by: Self.page) {
            let members = try await self.connection.send(
                "ZRANGE", key, .integer(Int64(start)), .integer(Int64(start + Self.page - 1))
            ).strings()
            for member in members {
                if let work = try? DeliveryWork(member.utf8) { waiting.insert(Identity(work)) }
            }
        }
        return works.map { waiting.contains(Identity($0)) }
    }

    /// A delivery, whatever its try.
    private struct Identity: Hashable {
        let notification: NotificationID
        let device: NotificationID
        let callsForAttention: Bool
        let isRetraction: Bool

        init(_ work: DeliveryWork) {
            self.notification = work.notification
            self.device = work.device
            self.callsForAttention = work.callsForAttention
            self.isRetraction = work.isRetraction
        }
    }

    /// How many wait.
    package func count(provider: Provider, lane: Lane) async throws(RedisError) -> Int {
        Int(try await self.connection.send("ZCARD", .text(self.keys.retries(provider, lane))).integer())
    }
}
