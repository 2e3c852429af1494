// Carillon · ProofBoard.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import Storage

/// What waits for its proof in Redis, as a dispatcher would have put it there.
struct ProofBoard: Sendable {
    let redis: RedisConnection

    /// Has notifications wait, with a deadline that does not come.
    func expect(_ notifications: [(user: String, id: NotificationID)]) async throws {
        let set = UnconfirmedSet(connection: self.redis, keys: Keyspace())
        let deadline = Timestamp(milliseconds: Int64((Date.now.timeIntervalSince1970 + 86_400) * 1_000))
        var rest = notifications[...]
        while !rest.isEmpty {
            var batch = RedisBatch()
            for item in rest.prefix(512) {
                let waiting = UnconfirmedNotification(id: item.id, user: item.user, lane: .normal)
                set.add(waiting, deadline: deadline, in: &batch)
            }
            rest = rest.dropFirst(512)
            for reply in try await self.redis.send(batch) { _ = try reply.checked() }
        }
    }

    /// Waits until none waits any more.
    func settle() async throws {
        let deadline = ContinuousClock.now + .seconds(120)
        while true {
            var batch = RedisBatch()
            for shard in 0..<Keyspace.unconfirmedShards {
                batch.append("ZCARD", .text(Keyspace().unconfirmed(shard: shard)))
            }
            var left: Int64 = 0
            for reply in try await self.redis.send(batch) { left += try reply.integer() }
            if left == 0 { return }
            guard ContinuousClock.now < deadline else { throw ValidationError("\(left) proofs were not recorded") }
            // The gateway takes them out of Redis and tells nobody.
            try await Task.sleep(for: .milliseconds(5))
        }
    }
}
