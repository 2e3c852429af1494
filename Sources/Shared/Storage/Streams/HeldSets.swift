// Carillon · HeldSets.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Deliveries that were held back untried, by the time of their turn: each app's in a set of its own, so that none waits behind
/// another's.
package struct HeldSets: Sendable {
    let live: Live

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
            "ZADD", .text(self.live.keys.held(provider, lane, app: app)), .integer(due.milliseconds), .text(work.text))
        // Last, as an app is forgotten whose set is empty.
        batch.append("SADD", .text(self.live.keys.held(provider, lane)), .text(app))
    }

    /// The apps of which something is held back, in no order.
    package func apps(provider: Provider, lane: Lane) async throws(RedisError) -> [String] {
        try await self.live.connection.send("SMEMBERS", .text(self.live.keys.held(provider, lane))).strings()
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
            try await self.live.connection.run(
                StreamScripts.moveDue,
                keys: [
                    .text(self.live.keys.held(provider, lane, app: app)),
                    .text(self.live.keys.deliveries(provider, lane)),
                    .text(self.live.keys.held(provider, lane)),
                ],
                arguments: [.integer(now.milliseconds), .integer(Int64(limit)), .text(app)]
            ).integer()
        )
    }

    /// How much of all apps is held back, when the first of it is due, and for how long it has been
    /// waiting.
    package func waiting(provider: Provider, lane: Lane) async throws(RedisError) -> SetAside {
        var batch = RedisBatch()
        for app in try await self.apps(provider: provider, lane: lane) {
            SetAside.ask(.text(self.live.keys.held(provider, lane, app: app)), in: &batch)
        }
        guard !batch.isEmpty else { return SetAside() }
        let replies = try await self.live.connection.send(batch)
        guard replies.count == batch.count else { throw RedisError(.unexpectedReply, "expected a reply a command") }
        var aside = SetAside()
        for position in stride(from: 0, to: replies.count, by: SetAside.questions) {
            aside.add(try SetAside(replies[position..<(position + SetAside.questions)]))
        }
        return aside
    }
}

/// The contents of a retry set, or of the set that holds back an app's deliveries.
package struct SetAside: Sendable {
    /// How many members are looked at from either end of a set for the one that has waited the
    /// longest.
    static let sample = 64
    /// How many commands ask for a set.
    static let questions = 3

    package private(set) var count = 0
    private(set) var firstDue: Timestamp?
    /// Since when the oldest that was looked at has been waiting.
    private(set) var since: Timestamp?

    init() {}

    /// Adds the questions about a set to a batch.
    static func ask(_ key: RedisArgument, in batch: inout RedisBatch) {
        batch.append("ZCARD", key)
        batch.append("ZRANGE", key, "0", .integer(Int64(self.sample - 1)), "WITHSCORES")
        batch.append("ZRANGE", key, .integer(Int64(-self.sample)), "-1", "WITHSCORES")
    }

    /// Reads the answers.
    init(_ replies: ArraySlice<RedisReply>) throws(RedisError) {
        guard replies.count == Self.questions, let first = replies.first else {
            throw RedisError(.unexpectedReply, "expected a reply a command")
        }
        self.count = Int(try first.integer())
        for reply in replies.dropFirst() {
            let members = try reply.strings()
            for index in stride(from: 0, to: members.count - 1, by: 2) {
                guard let score = Int64(members[index + 1]) else { continue }
                let due = Timestamp(milliseconds: score)
                self.firstDue = min(self.firstDue ?? due, due)
                let since = (try? DeliveryWork(members[index].utf8))?.since ?? due
                self.since = min(self.since ?? since, since)
            }
        }
    }

    mutating func add(_ other: SetAside) {
        self.count += other.count
        self.firstDue = [self.firstDue, other.firstDue].compactMap(\.self).min()
        self.since = [self.since, other.since].compactMap(\.self).min()
    }
}
