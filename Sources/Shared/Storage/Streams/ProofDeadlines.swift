// Carillon · ProofDeadlines.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A push notification that was sent to sockets and is not confirmed yet.
///
/// Its text is the member of the sorted set: `1 <notification> <lane> <user>`, where 1 is the
/// format.
package struct AwaitedProof: Sendable, Hashable {
    package let id: NotificationID
    package let user: String
    let lane: Lane

    package init(id: NotificationID, user: String, lane: Lane) {
        self.id = id
        self.user = user
        self.lane = lane
    }

    /// The text's UTF-8.
    var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(64 + self.user.utf8.count)
        bytes += "1 ".utf8
        self.id.append(to: &bytes)
        bytes.append(UInt8(ascii: " "))
        bytes += self.lane.rawValue.utf8
        bytes.append(UInt8(ascii: " "))
        bytes += self.user.utf8
        return bytes
    }

    init?(_ text: String) {
        // A combining mark at a user's start forms one `Character` with the space before it.
        let parts = text.unicodeScalars.split(separator: " ", maxSplits: 3, omittingEmptySubsequences: false)
            .map { String($0) }
        guard parts.count == 4, parts[0] == "1", let id = NotificationID(parts[1]), let lane = Lane(rawValue: parts[2])
        else { return nil }
        self.init(id: id, user: parts[3], lane: lane)
    }
}

/// The deadlines of awaited proofs, in Redis so that they survive any process.
package struct ProofDeadlines: Sendable {
    /// The number of due notifications among which critical ones come first.
    private static let lookAhead: Int64 = 2_048

    let live: Live

    /// Adds deadlines to a batch, with one command for each shard; one that is set already stays.
    package func add(_ waits: [(AwaitedProof, deadline: Timestamp)], in batch: inout RedisBatch) {
        self.set(waits, ["NX"], in: &batch)
    }

    /// Adds later deadlines of notifications that still wait to a batch, with one command for each
    /// shard.
    package func extend(_ waits: [(AwaitedProof, deadline: Timestamp)], in batch: inout RedisBatch) {
        self.set(waits, ["XX", "GT"], in: &batch)
    }

    private func set(
        _ waits: [(AwaitedProof, deadline: Timestamp)],
        _ conditions: [RedisArgument],
        in batch: inout RedisBatch
    ) {
        for (shard, members) in self.byShard(waits, user: { $0.0.user }) {
            batch.begin(argumentCount: 2 + conditions.count + 2 * members.count)
            batch.argument("ZADD")
            batch.argument(.text(self.live.keys.proofDeadlines(shard: shard)))
            for condition in conditions { batch.argument(condition) }
            for (notification, deadline) in members {
                batch.argument(.integer(deadline.milliseconds))
                batch.argument(.bytes(notification.bytes))
            }
        }
    }

    /// Adds removals to a batch, with one command for each shard.
    package func remove(_ notifications: [AwaitedProof], in batch: inout RedisBatch) {
        for (shard, members) in self.byShard(notifications, user: { $0.user }) {
            batch.begin(argumentCount: 2 + members.count)
            batch.argument("ZREM")
            batch.argument(.text(self.live.keys.proofDeadlines(shard: shard)))
            for notification in members { batch.argument(.bytes(notification.bytes)) }
        }
    }

    /// Removes the deadlines of proven notifications.
    ///
    /// - Returns: the number that was still awaited.
    @discardableResult
    package func remove(_ notifications: [AwaitedProof]) async throws(RedisError) -> Int {
        var batch = RedisBatch()
        self.remove(notifications, in: &batch)
        guard !batch.isEmpty else { return 0 }
        var count = 0
        for reply in try await self.live.connection.send(batch) { count += Int(try reply.integer()) }
        return count
    }

    private func byShard<Item>(_ items: [Item], user: (Item) -> String) -> [(shard: Int, items: [Item])] {
        var shards = [[Item]](repeating: [], count: self.live.keys.proofShards)
        for item in items { shards[self.live.keys.proofShard(user: user(item))].append(item) }
        return shards.enumerated().filter { !$1.isEmpty }.map { ($0, $1) }
    }

    /// Returns the earliest deadline of each shard, in one round trip; nil for an empty one.
    ///
    /// A shard whose server is away fails at once.
    package func earliest(of shards: [Int]) async throws(RedisError) -> [Result<Timestamp?, RedisError>] {
        try await self.live.firstMomentResults(
            of: shards.map { self.live.keys.proofDeadlines(shard: $0) }, isPatient: false)
    }

    /// Claims up to `limit` due notifications of a shard; they are due again after `hold` unless
    /// they are removed.
    ///
    /// Critical ones come first and take up to seven eighths; the rest goes to the oldest.
    package func claimDue(
        shard: Int,
        now: Timestamp,
        hold: Duration,
        limit: Int
    ) async throws(RedisError) -> [AwaitedProof] {
        let reply = try await self.live.connection.run(
            StreamScripts.claimDue,
            keys: [.text(self.live.keys.proofDeadlines(shard: shard))],
            arguments: [
                .integer(now.milliseconds), .integer((now + hold).milliseconds), .integer(Int64(limit)),
                .integer(Self.lookAhead),
            ]
        )
        return try reply.strings().compactMap { AwaitedProof($0) }
    }
}
