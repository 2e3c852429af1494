// Carillon · HeldSets.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Redis

/// Deliveries that were held back untried, by the time of their turn: each app's in a set of its own, so that none waits behind
/// another's.
package struct HeldSets: Sendable {
    private let connection: RedisConnection
    private let keys: Keyspace

    package init(connection: RedisConnection, keys: Keyspace) {
        self.connection = connection
        self.keys = keys
    }

    /// Adds what was held back to a batch.
    package func add(
        _ work: DeliveryWork,
        due: Timestamp,
        provider: Provider,
        lane: Lane,
        app: String,
        in batch: inout RedisBatch
    ) {
        batch.append(
            "ZADD", .text(self.keys.held(provider, lane, app: app)), .integer(due.milliseconds), .text(work.text))
        // Last, as an app is forgotten whose set is empty.
        batch.append("SADD", .text(self.keys.held(provider, lane)), .text(app))
    }

    /// The apps of which something is held back, in no order.
    package func apps(provider: Provider, lane: Lane) async throws(RedisError) -> [String] {
        try await self.connection.send("SMEMBERS", .text(self.keys.held(provider, lane))).strings()
    }

    /// Moves up to `limit` of an app's that are due back to their stream; forgets the app if nothing is left.
    ///
    /// - Returns: how many were moved.
    package func moveDue(
        provider: Provider,
        lane: Lane,
        app: String,
        now: Timestamp,
        limit: Int
    ) async throws(RedisError) -> Int {
        Int(
            try await self.connection.run(
                StreamScripts.moveDue,
                keys: [
                    .text(self.keys.held(provider, lane, app: app)), .text(self.keys.deliveries(provider, lane)),
                    .text(self.keys.held(provider, lane)),
                ],
                arguments: [.integer(now.milliseconds), .integer(Int64(limit)), .text(app)]
            ).integer()
        )
    }

    /// How much of all apps is held back, and when the first of it is due.
    package func waiting(
        provider: Provider,
        lane: Lane
    ) async throws(RedisError) -> (count: Int, firstDue: Timestamp?) {
        var batch = RedisBatch()
        for app in try await self.apps(provider: provider, lane: lane) {
            let key = RedisArgument.text(self.keys.held(provider, lane, app: app))
            batch.append("ZCARD", key)
            batch.append("ZRANGE", key, "0", "0", "WITHSCORES")
        }
        guard !batch.isEmpty else { return (0, nil) }
        let replies = try await self.connection.send(batch)
        guard replies.count == batch.count else { throw RedisError(.unexpectedReply, "expected a reply a command") }
        var count = 0
        var firstDue: Timestamp?
        for position in stride(from: 0, to: replies.count, by: 2) {
            count += Int(try replies[position].integer())
            guard let score = try replies[position + 1].strings().last.flatMap({ Int64($0) }) else { continue }
            let due = Timestamp(milliseconds: score)
            firstDue = min(firstDue ?? due, due)
        }
        return (count, firstDue)
    }
}
