// Carillon · WebhookQueues.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// What each webhook has yet to be told: a bounded stream a webhook, and a sorted set of webhooks by when they are due.
package struct WebhookQueues: Sendable {
    /// How many events wait for one webhook at most; beyond it the oldest are dropped.
    package static let bound = 10_000
    /// How long a webhook's first event waits for others.
    private static let gathering: Duration = .seconds(1)
    private static let field = "e"

    let live: Live

    private func queue(_ webhook: NotificationID) -> RedisArgument { .text(self.live.keys.webhookQueue(webhook)) }

    private var due: RedisArgument { .text(self.live.keys.webhooksDue) }

    /// Appends events, each as JSON, and makes their webhooks due.
    ///
    /// - Returns: how many of the oldest each webhook lost by it, where it lost any.
    package func append(
        _ events: [(webhook: NotificationID, json: [[UInt8]])],
        now: Timestamp
    ) async throws(RedisError) -> [NotificationID: Int] {
        var batch = RedisBatch()
        var trims: [(webhook: NotificationID, position: Int)] = []
        for (webhook, list) in events where !list.isEmpty {
            for json in list { batch.append("XADD", self.queue(webhook), "*", .text(Self.field), .bytes(json)) }
            trims.append((webhook, batch.count))
            batch.append("XTRIM", self.queue(webhook), "MAXLEN", .integer(Int64(Self.bound)))
            // One that waits longer, as it failed, goes on waiting.
            let dueAt = (now + Self.gathering).milliseconds
            batch.append("ZADD", self.due, "NX", .integer(dueAt), .text(webhook.description))
        }
        let replies = try await self.live.connection.send(batch)
        for reply in replies { _ = try reply.checked() }
        var lost: [NotificationID: Int] = [:]
        for (webhook, position) in trims {
            let count = Int(try replies[position].integer())
            if count > 0 { lost[webhook] = count }
        }
        return lost
    }

    /// Claims webhooks that are due; they come up again `hold` later unless they are finished.
    package func claimDue(now: Timestamp, hold: Duration, limit: Int) async throws(RedisError) -> [NotificationID] {
        let reply = try await self.live.connection.run(
            StreamScripts.claimDue,
            keys: [self.due],
            arguments: [.integer(now.milliseconds), .integer((now + hold).milliseconds), .integer(Int64(limit))]
        )
        return try reply.strings().compactMap { NotificationID($0) }
    }

    /// The oldest events of a webhook, with their places in its queue.
    package func oldest(
        of webhook: NotificationID,
        limit: Int
    ) async throws(RedisError) -> [(entry: String, json: ArraySlice<UInt8>)] {
        let reply = try await self.live.connection.send(
            "XRANGE", self.queue(webhook), "-", "+", "COUNT", .integer(Int64(limit))
        )
        guard var cursor = try reply.cursor() else { return [] }
        return try StreamEntry.read(&cursor).map { ($0.id, $0[Self.field] ?? []) }
    }

    /// Takes events out of a webhook's queue; what is left is due at once.
    package func finish(_ webhook: NotificationID, entries: [String], now: Timestamp) async throws(RedisError) {
        try await self.live.connection.run(
            StreamScripts.finishWebhook,
            keys: [self.due, self.queue(webhook)],
            arguments: [.text(webhook.description), .integer(now.milliseconds)] + entries.map { .text($0) }
        )
    }

    /// Puts a webhook off, and drops what was queued before a moment.
    ///
    /// - Returns: how many were dropped.
    package func putOff(
        _ webhook: NotificationID,
        until: Timestamp,
        droppingBefore oldest: Timestamp
    ) async throws(RedisError) -> Int {
        var batch = RedisBatch()
        batch.append("XTRIM", self.queue(webhook), "MINID", .integer(oldest.milliseconds))
        batch.append("ZADD", self.due, "XX", .integer(until.milliseconds), .text(webhook.description))
        let replies = try await self.live.connection.send(batch)
        for reply in replies { _ = try reply.checked() }
        return Int(try replies.first?.integer() ?? 0)
    }

    /// Forgets a webhook.
    ///
    /// - Returns: how many events it was not told of.
    @discardableResult
    package func forget(_ webhook: NotificationID) async throws(RedisError) -> Int {
        var batch = RedisBatch()
        batch.append("XLEN", self.queue(webhook))
        batch.append("ZREM", self.due, .text(webhook.description))
        batch.append("DEL", self.queue(webhook))
        let replies = try await self.live.connection.send(batch)
        for reply in replies { _ = try reply.checked() }
        return Int(try replies.first?.integer() ?? 0)
    }
}
