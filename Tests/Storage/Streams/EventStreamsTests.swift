// Carillon · EventStreamsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

/// The streams of events, written for upstream apps and read for webhooks.
@Suite(.timeLimit(.minutes(10)))
struct EventStreamsTests {
    private static let users = (1...40).map { "user-\($0)" }

    private static func events(_ users: [String]) -> [LifecycleEvent] {
        users.map { user in
            let label = NotificationLabel(
                id: NotificationID(high: 1, low: 2), user: user, type: "news", category: nil, org: "", job: nil)
            return LifecycleEvent(.sent, label, at: Timestamp(milliseconds: 1))
        }
    }

    private static func users(_ batches: [EventFeed.Batch]) -> [String] {
        batches.flatMap { batch in batch.entries.map { String(decoding: $0["user"] ?? [], as: UTF8.self) } }
    }

    @Test("each part has the events of its users, and webhooks get each once", arguments: [1, 4])
    func parts(count: Int) async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix, parts: count)
            await EventLog(keys: keys, length: 1_000).append(Self.events(Self.users), on: redis)
            for part in keys.parts {
                let length = try await redis.send("XLEN", .text(part.events)).integer()
                #expect(Int(length) == Self.users.count { keys.part(of: $0).events == part.events })
            }
            let feed = Live(redis, keys: keys).eventFeed
            // The first look makes the groups.
            #expect(try await feed.read(from: keys.parts, count: 100).isEmpty)
            let batches = try await feed.read(from: keys.parts, count: 100)
            #expect(Self.users(batches).sorted() == Self.users.sorted())
            #expect(Set(batches.flatMap { batch in batch.entries.map { batch.name(of: $0) } }).count == 40)
            #expect(try await feed.read(from: keys.parts, count: 100).isEmpty)
            // Entries that are not acknowledged are taken over.
            for batch in batches.dropFirst() { try await feed.acknowledge(batch) }
            let abandoned = try await feed.takeOver(from: keys.parts, idle: .zero, count: 100)
            #expect(Self.users(abandoned).sorted() == Self.users(Array(batches.prefix(1))).sorted())
        }
    }

    @Test("events that the server of one part refuses leave those of the others")
    func refused() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix, parts: 4)
            let broken = try #require(keys.parts.first)
            try await redis.send("SET", .text(broken.events), "no stream")
            let users = (0..<30).flatMap { _ in Self.users }
            let replies = await EventLog(keys: keys, length: 100_000).append(Self.events(users), on: redis)
            let areRefused = replies.map { if case .error = $0 { true } else { false } }
            #expect(areRefused == users.map { keys.part(of: $0).events == broken.events })
            for part in keys.parts.dropFirst() {
                let length = try await redis.send("XLEN", .text(part.events)).integer()
                #expect(Int(length) == users.count { keys.part(of: $0).events == part.events })
            }
        }
    }

    @Test("events that webhooks had not read before the installation grew are read afterwards")
    func growth() async throws {
        try await TestRedis.with { redis, prefix in
            let former = Keyspace(prefix: prefix, parts: 4)
            let feed = Live(redis, keys: former).eventFeed
            _ = try await feed.read(from: former.parts, count: 100)
            await EventLog(keys: former, length: 1_000).append(Self.events(Self.users), on: redis)
            let keys = Keyspace(prefix: prefix, parts: 16, former: [4])
            let later = Live(redis, keys: keys).eventFeed
            let batches = try await later.read(from: keys.otherSources, count: 100)
            #expect(Self.users(batches).sorted() == Self.users.sorted())
            // Entries that are not acknowledged are taken over.
            let last = try #require(batches.last)
            for batch in batches.dropLast() { try await later.acknowledge(batch) }
            let abandoned = try await later.takeOver(from: keys.otherSources, idle: .zero, count: 100)
            #expect(abandoned.map(\.stream) == [last.stream])
            try await later.acknowledge(last)
            #expect(try await later.takeOver(from: keys.otherSources, idle: .zero, count: 100).isEmpty)
            #expect(try await later.read(from: keys.otherSources, count: 100).isEmpty)
            // Nothing makes streams that no part has.
            #expect(try await redis.send("EXISTS", .text(keys.otherSources[0].events)).integer() == 0)
        }
    }

    @Test("without webhooks the events are skipped", arguments: [1, 4])
    func skipped(count: Int) async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix, parts: count)
            let log = EventLog(keys: keys, length: 1_000)
            let feed = Live(redis, keys: keys).eventFeed
            for isFirst in [true, false] {
                await log.append(Self.events(Self.users), on: redis)
                // The first time there are no groups.
                try await feed.skip(keys.parts)
                #expect(try await feed.read(from: keys.parts, count: 100).isEmpty, "\(isFirst)")
            }
            await log.append(Self.events(["ada"]), on: redis)
            #expect(try await Self.users(feed.read(from: keys.parts, count: 100)) == ["ada"])
        }
    }

    @Test("a webhook's queue expires some time after its newest event is a day old")
    func expiry() async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix)
            let queues = Live(redis, keys: keys).webhookQueues
            let webhook = NotificationID(high: 1, low: 2)
            let queue = RedisArgument.text(keys.webhookQueue(webhook))
            func append() async throws -> Int64 {
                let events = [Array("{}".utf8), Array("{}".utf8)]
                _ = try await queues.append([(webhook, events)], now: Timestamp(milliseconds: 1))
                return try await redis.send("TTL", queue).integer()
            }
            let day: Int64 = 24 * 3_600
            #expect(try await append() > day)
            try await redis.send("EXPIRE", queue, .integer(day / 2))
            // Each new event prolongs it.
            #expect(try await append() > day)
            // The rest expires, too.
            let oldest = try await queues.oldest(of: webhook, limit: 1).map(\.entry)
            let left = try await queues.finish(webhook, entries: oldest, due: Timestamp(milliseconds: 1))
            #expect(left == 3)
            #expect(try await redis.send("TTL", queue).integer() > day)
        }
    }

    @Test("events that are removed after the end of a claim leave the due time of the next claim")
    func lateFinish() async throws {
        try await TestRedis.with { redis, prefix in
            let queues = Live(redis, keys: Keyspace(prefix: prefix)).webhookQueues
            let webhook = NotificationID(high: 1, low: 2)
            let now = Timestamp(seconds: 1_795_000_000)
            _ = try await queues.append([(webhook, [Array("{}".utf8)])], now: now)
            let entries = try await queues.oldest(of: webhook, limit: 1).map(\.entry)
            let left = try await queues.finish(webhook, entries: entries, due: nil)
            #expect(left == 0)
            let due = try await queues.nextDue()
            #expect(due == now + WebhookQueues.gathering)
            // The next claim finds no events.
            try await queues.finish(webhook, entries: [], due: now)
            let rest = try await queues.nextDue()
            #expect(rest == nil)
        }
    }

    @Test("the end of a backoff makes a webhook due within a minute, and not while it may be claimed")
    func endOfBackoff() async throws {
        try await TestRedis.with { redis, prefix in
            let queues = Live(redis, keys: Keyspace(prefix: prefix)).webhookQueues
            let webhook = NotificationID(high: 1, low: 2)
            let now = Timestamp(seconds: 1_795_000_000)
            // One without events stays without a due time.
            try await queues.endBackoff(of: webhook, now: now)
            #expect(try await queues.nextDue() == nil)
            _ = try await queues.append([(webhook, [Array("{}".utf8)])], now: now)
            for (seconds, rest) in [(3_600, 75), (10, 10)] {
                _ = try await queues.postpone(
                    webhook, until: now + .seconds(seconds), droppingBefore: Timestamp(milliseconds: 0))
                try await queues.endBackoff(of: webhook, now: now)
                let due = try await queues.nextDue()
                #expect(due == now + .seconds(rest))
            }
        }
    }

    @Test("an onlooker sees the events of all parts in the order of their time", arguments: [1, 4])
    func tail(count: Int) async throws {
        try await TestRedis.with { redis, prefix in
            let keys = Keyspace(prefix: prefix, parts: count)
            let log = EventLog(keys: keys, length: 1_000)
            // In writes of their own, so that not all have the same time.
            for user in Self.users { await log.append(Self.events([user]), on: redis) }
            var tail = Live(redis, keys: keys).eventTail
            let all = try await tail.newest(100)
            #expect(Set(all.compactMap { $0["user"] }) == Set(Self.users))
            func moments(_ entries: [EventTail.Entry]) -> [Substring] {
                entries.compactMap { $0.id.split(separator: "/").last?.prefix { $0 != "-" } }
            }
            #expect(moments(all) == moments(all).sorted(by: >))
            #expect(try await moments(tail.newest(10)) == Array(moments(all).prefix(10)))
            let new = ["ada", "bob", "cleo"]
            await log.append(Self.events(new), on: redis)
            var seen: [EventTail.Entry] = []
            while seen.count < new.count { seen += try await tail.next(patience: .seconds(5)) }
            #expect(Set(seen.compactMap { $0["user"] }) == Set(new))
            #expect(seen.allSatisfy { $0.id.contains("}:events/") == (count > 1) })
            // Not 0, for which Redis would wait for ever.
            #expect(try await tail.next(patience: .milliseconds(20)).isEmpty)
        }
    }
}
