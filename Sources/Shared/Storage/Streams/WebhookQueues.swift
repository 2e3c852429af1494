// Carillon · WebhookQueues.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Queued events of webhooks: one bounded stream per webhook, and a sorted set of webhooks by due
/// time.
package struct WebhookQueues: Sendable {
    /// The number of events that wait for one webhook; beyond it the oldest are dropped.
    package static let bound = 10_000
    /// How long the first event of a webhook waits for others.
    package static let gathering: Duration = .seconds(1)
    /// How long a claim on a webhook lasts: longer than a request and its settlement.
    package static let hold: Duration = .seconds(60)
    /// How long a queue outlives its newest event if no dispatcher drains it.
    ///
    /// Longer than a day and the longest backoff, so that a dispatcher drops old events, and counts
    /// them, before they expire.
    private static let lifetime: Duration = .seconds(26 * 3_600)
    private static let field = "e"

    let live: Live

    private func queue(_ webhook: WebhookID) -> RedisArgument { .text(self.live.keys.webhookQueue(webhook)) }

    private var due: RedisArgument { .text(self.live.keys.webhooksDue) }

    /// Appends events as JSON and makes their webhooks due.
    ///
    /// - Returns: the number of oldest events dropped, for each webhook that lost any.
    package func append(
        _ events: [(webhook: WebhookID, json: [[UInt8]])],
        now: Timestamp
    ) async throws(RedisError) -> [WebhookID: Int] {
        var batch = RedisBatch()
        var trims: [(webhook: WebhookID, position: Int)] = []
        for (webhook, list) in events where !list.isEmpty {
            for json in list { batch.append("XADD", self.queue(webhook), "*", .text(Self.field), .bytes(json)) }
            trims.append((webhook, batch.count))
            batch.append("XTRIM", self.queue(webhook), "MAXLEN", .integer(Int64(Self.bound)))
            // `NX`: a webhook in backoff keeps its due time.
            let dueAt = (now + Self.gathering).milliseconds
            batch.append("ZADD", self.due, "NX", .integer(dueAt), .text(webhook.description))
            batch.append("PEXPIRE", self.queue(webhook), .integer(Self.lifetime.inMilliseconds))
        }
        let replies = try await self.live.connection.run(batch)
        var lost: [WebhookID: Int] = [:]
        for (webhook, position) in trims {
            let count = Int(try replies[position].integer())
            if count > 0 { lost[webhook] = count }
        }
        return lost
    }

    /// Claims due webhooks; they are due again after `hold` unless they are finished.
    package func claimDue(now: Timestamp, hold: Duration, limit: Int) async throws(RedisError) -> [WebhookID] {
        let reply = try await self.live.connection.run(
            StreamScripts.claimDue,
            keys: [self.due],
            arguments: [.integer(now.milliseconds), .integer((now + hold).milliseconds), .integer(Int64(limit))]
        )
        return try reply.strings().compactMap { WebhookID($0) }
    }

    /// When the next webhook is due; nil if none waits.
    package func nextDue() async throws(RedisError) -> Timestamp? {
        try await self.live.firstMoments(of: [self.live.keys.webhooksDue]).first ?? nil
    }

    /// The oldest events of a webhook, with their entry ids.
    package func oldest(
        of webhook: WebhookID,
        limit: Int
    ) async throws(RedisError) -> [(entry: String, json: ArraySlice<UInt8>)] {
        let reply = try await self.live.connection.send(
            "XRANGE", self.queue(webhook), "-", "+", "COUNT", .integer(Int64(limit))
        )
        guard var cursor = try reply.cursor() else { return [] }
        return try StreamEntry.read(&cursor).map { ($0.id, $0[Self.field] ?? []) }
    }

    /// Removes events from a webhook's queue.
    ///
    /// - Parameter due: when remaining events are due; nil if the claim has ended, because the next
    ///   claim then sets the due time.
    /// - Returns: the number of remaining events.
    @discardableResult
    package func finish(
        _ webhook: WebhookID,
        entries: [String],
        due: Timestamp?
    ) async throws(RedisError) -> Int {
        let dueAt = due.map { RedisArgument.integer($0.milliseconds) } ?? .text("")
        let reply = try await self.live.connection.run(
            StreamScripts.finishWebhook,
            keys: [self.due, self.queue(webhook)],
            arguments: [.text(webhook.description), dueAt] + entries.map { .text($0) }
        )
        return Int(try reply.integer())
    }

    /// Postpones a webhook and drops events queued before `oldest`.
    ///
    /// - Returns: the number of events dropped.
    package func postpone(
        _ webhook: WebhookID,
        until: Timestamp,
        droppingBefore oldest: Timestamp
    ) async throws(RedisError) -> Int {
        var batch = RedisBatch()
        batch.append("XTRIM", self.queue(webhook), "MINID", .integer(oldest.milliseconds))
        batch.append("ZADD", self.due, "XX", .integer(until.milliseconds), .text(webhook.description))
        let replies = try await self.live.connection.run(batch)
        return Int(try replies.first?.integer() ?? 0)
    }

    /// Ends the backoff of a webhook: it is due once any current claim has ended; 15 s allow for
    /// clocks that differ.
    package func endBackoff(of webhook: WebhookID, now: Timestamp) async throws(RedisError) {
        var batch = RedisBatch()
        let dueAt = (now + Self.hold + .seconds(15)).milliseconds
        batch.append("ZADD", self.due, "XX", "LT", .integer(dueAt), .text(webhook.description))
        try await self.live.connection.run(batch, isPatient: false)
    }

    /// Removes a webhook.
    ///
    /// - Returns: the number of its waiting events, which are dropped.
    @discardableResult
    package func forget(_ webhook: WebhookID) async throws(RedisError) -> Int {
        var batch = RedisBatch()
        batch.append("XLEN", self.queue(webhook))
        batch.append("ZREM", self.due, .text(webhook.description))
        batch.append("DEL", self.queue(webhook))
        let replies = try await self.live.connection.run(batch)
        return Int(try replies.first?.integer() ?? 0)
    }
}
