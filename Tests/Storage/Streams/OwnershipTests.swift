// Carillon · OwnershipTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Synchronization
import Testing

@testable import Storage

/// Ownership of stream entries and connections after a process stalled.
@Suite(.timeLimit(.minutes(10)))
struct OwnershipTests {
    /// Three consumers of one stream.
    private struct Consumers {
        let stream: String
        let one: ConsumerGroup
        let rival: ConsumerGroup

        init(_ connection: RedisClient, _ keys: Keyspace) {
            self.stream = keys.jobs(.normal)
            self.one = ConsumerGroup(stream: self.stream, consumer: "one", connection: connection)
            self.rival = ConsumerGroup(stream: self.stream, consumer: "rival", connection: connection)
        }
    }

    private static func append(_ count: Int, _ connection: RedisClient, _ keys: Keyspace) async throws -> [String] {
        try await Live(connection, keys: keys).jobs.append(
            (0..<count).map { (.normal, [(name: "title", value: Array("\($0)".utf8))]) }
        ).map(\.entry)
    }

    @Test("removes a consumer only when it has no pending entries")
    func removal() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let consumers = Consumers(connection, keys)
            #expect(try await consumers.rival.remove("one") == true, "there is no stream")
            let ids = try await Self.append(1, connection, keys)
            #expect(try await consumers.rival.remove("one") == true, "there is no group")
            try await consumers.one.create()
            // An entry that the consumer reads after the check stays pending.
            #expect(try await consumers.rival.pending(of: "one", count: 1).isEmpty)
            #expect(try await consumers.one.readWaiting(count: 10).map(\.id) == ids)
            #expect(try await consumers.rival.remove("one") == false)
            #expect(try await consumers.rival.pending(of: "one", count: 10) == [.init(id: ids[0], deliveries: 1)])
            try await consumers.one.acknowledge(ids)
            #expect(try await consumers.rival.remove("one") == true)
            #expect(try await consumers.rival.consumers().isEmpty)
        }
    }

    @Test("keeps entries that were not taken over, safe from rivals")
    func kept() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let consumers = Consumers(connection, keys)
            let ids = try await Self.append(4, connection, keys)
            try await consumers.one.create()
            _ = try await consumers.one.readWaiting(count: 10)
            // All were pending for long; a rival claimed one and finished another.
            for id in ids {
                try await connection.send(
                    "XCLAIM", .text(consumers.stream), .text(Keyspace.group), "one", "0", .text(id), "IDLE", "60000",
                    "JUSTID")
            }
            let claimed = try await consumers.rival.claim(Array(ids[1...2]), from: "one", idle: .seconds(5))
            #expect(claimed.map(\.id) == Array(ids[1...2]))
            try await consumers.rival.acknowledge([ids[2]])
            #expect(try await consumers.one.reclaimOwned(Array(ids[...2])) == [ids[0]])
            #expect(try await consumers.rival.claim(ids, from: "one", idle: .seconds(5)).map(\.id) == [ids[3]])
            #expect(try await consumers.one.pending(of: "one", count: 10) == [.init(id: ids[0], deliveries: 1)])
            #expect(try await consumers.one.reclaimOwned([]).isEmpty)
        }
    }

    @Test("claims entries only after their whole idle time, not its whole seconds")
    func idle() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let consumers = Consumers(connection, keys)
            let ids = try await Self.append(1, connection, keys)
            try await consumers.one.create()
            _ = try await consumers.one.readWaiting(count: 1)
            // More than once, as a busy machine may let that time pass between the two calls.
            try await eventually("the rival leaves the entry") {
                try await connection.send(
                    "XCLAIM", .text(consumers.stream), .text(Keyspace.group), "one", "0", .text(ids[0]), "JUSTID")
                return try await consumers.rival.claim(ids, from: "one", idle: .milliseconds(900)).isEmpty
            }
        }
    }

    @Test("claims no entry that another consumer took over meanwhile, however long it works on it")
    func takenMeanwhile() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let consumers = Consumers(connection, keys)
            let third = ConsumerGroup(stream: consumers.stream, consumer: "third", connection: connection)
            let ids = try await Self.append(3, connection, keys)
            try await consumers.one.create()
            _ = try await consumers.one.readWaiting(count: 10)
            let taken = try await third.claim(ids[0], from: "one", idle: .zero)
            #expect(taken?.id == ids[0])
            let alone = try await consumers.rival.claim(ids[0], from: "one", idle: .zero)
            #expect(alone == nil)
            let rest = try await consumers.rival.claim(ids, from: "one", idle: .zero)
            #expect(rest.map(\.id) == Array(ids[1...]))
            let kept = try await third.pending(of: "third", count: 10)
            #expect(kept == [.init(id: ids[0], deliveries: 2)])
        }
    }

    @Test("claims no deleted entry, and counts a claim as often as wanted")
    func counted() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let consumers = Consumers(connection, keys)
            let ids = try await Self.append(2, connection, keys)
            try await consumers.one.create()
            _ = try await consumers.one.readWaiting(count: 10)
            try await connection.send("XDEL", .text(consumers.stream), .text(ids[0]))
            let claimed = try await consumers.rival.claim(ids, from: "one", idle: .zero, deliveries: 7)
            #expect(claimed.map(\.id) == [ids[1]])
            #expect(claimed.first?["title"] == ArraySlice("1".utf8))
            let pending = try await consumers.rival.pending(of: "rival", count: 10)
            #expect(pending.last == .init(id: ids[1], deliveries: 7))
        }
    }

    @Test("keeps entries that Redis lost, but not those that it will hand out again")
    func lost() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let consumers = Consumers(connection, keys)
            let ids = try await Self.append(2, connection, keys)
            try await consumers.one.create()
            _ = try await consumers.one.readWaiting(count: 10)
            try await connection.send("DEL", .text(consumers.stream))
            #expect(try await consumers.one.reclaimOwned(ids) == Set(ids), "there is no stream")
            // Redis's clock could give it the id of a lost one, within the same millisecond.
            let later = "9999999999999-0"
            try await connection.send("XADD", .text(consumers.stream), .text(later), "title", "later")
            #expect(try await consumers.one.reclaimOwned(ids) == Set(ids), "there is no group")
            try await consumers.one.create()
            #expect(try await consumers.one.reclaimOwned(ids + [later]) == Set(ids))
        }
    }

    @Test("keeps no entry of an overflow that was removed once others had finished all its jobs")
    func removedOverflow() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let overflows = Live(connection, keys: keys).overflows
            let jobs = [(org: "acme", fields: [(name: "title", value: Array("moved".utf8))])]
            try await overflows.append(jobs)
            let (one, rival) = (
                ConsumerGroup(stream: keys.overflow("acme"), consumer: "one", connection: connection, keys: keys),
                ConsumerGroup(stream: keys.overflow("acme"), consumer: "rival", connection: connection, keys: keys)
            )
            let ids = try await one.readWaiting(count: 10).map(\.id)
            #expect(ids.count == 1)
            #expect(try await rival.claim(ids, from: "one", idle: .zero).map(\.id) == ids)
            try await rival.acknowledge(ids)
            try await overflows.dropIfEmpty("acme")
            #expect(try await one.reclaimOwned(ids).isEmpty, "there is no stream")
            try await overflows.append(jobs)
            #expect(try await one.reclaimOwned(ids).isEmpty, "there is no group")
        }
    }

    @Test("notices an expiry even when the reply to the renewal was lost")
    func lostReply() async throws {
        try await TestRedis.with { connection, prefix in
            let passed = Mutex(Duration.zero)
            let start = ContinuousClock.now
            let lease = Lease(key: prefix + "lease", value: "test", connection: connection) {
                start + passed.withLock { $0 }
            }
            var wasHeld = [try await lease.renew(), try await lease.renew()]
            // Redis may have extended the lease, but this process must assume that it expired.
            passed.withLock { $0 += Lease.usualLifetime }
            wasHeld.append(try await lease.renew())
            passed.withLock { $0 += Lease.usualLifetime / 3 }
            wasHeld.append(try await lease.renew())
            #expect(wasHeld == [false, true, false, true])
        }
    }

    @Test("a holder whose lease ended, or was renewed before a wrong clock was set back, is none")
    func holders() async throws {
        try await TestRedis.with { connection, prefix in
            let now = Timestamp(seconds: 1_795_000_000)
            let register = prefix + "register"
            func renew(_ name: String, _ offset: Duration) async throws {
                let lease = Lease(
                    key: prefix + name, value: "test",
                    register: Lease.Register(key: register, name: name) { now + offset }, connection: connection)
                _ = try await lease.renew()
            }
            try await renew("now", .zero)
            try await renew("lately", .seconds(-10))
            try await renew("ahead", .seconds(5))
            try await renew("ended", .seconds(-20))
            // Its renewal must not forget the others.
            try await renew("wrong clock", .seconds(3_600))
            let holders = try await Lease.holders(
                in: register, at: now, lifetime: Lease.usualLifetime, connection: connection)
            #expect(Set(holders) == ["now", "lately", "ahead"])
        }
    }

    @Test("ignores a stale answer about a node that is back")
    func nodeBack() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let registry = PresenceRegistry(Live(connection, keys: keys))
            func presence(since: Int64) -> ConnectionPresence {
                ConnectionPresence(
                    connection: "c", node: "n", dialect: .native, state: .active, since: Timestamp(milliseconds: since))
            }
            _ = try await registry.register([("ada", presence(since: 1)), ("ben", presence(since: 1))])
            #expect(try await registry.lookUp(["ada"]) == [.offline])
            // The node goes on and registers its open connections at once.
            let lease = Lease(key: keys.nodeLease("n"), value: "gateway", connection: connection)
            #expect(try await lease.renew() == false)
            _ = try await registry.register([("ada", presence(since: 2)), ("ben", presence(since: 2))])
            let found = try await registry.lookUp(["ben", "ada"])
            #expect(found == [.online([presence(since: 2)]), .online([presence(since: 2)])])
            let users = ["eve", "ada", "ben"]
            #expect(try await registry.connections(of: users, on: "n", renews: false) == [[], ["c"], ["c"]])
            #expect(try await registry.connections(of: users, on: "m", renews: false) == [[], [], []])
        }
    }
}

extension ConsumerGroup {
    /// Acknowledges and deletes entries.
    func acknowledge(_ ids: [String]) async throws(RedisError) {
        var batch = RedisBatch()
        self.acknowledge(ids, in: &batch)
        try await self.connection.run(batch)
    }
}
