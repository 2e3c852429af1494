// Carillon · OwnershipTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Synchronization
import Testing

/// Whose a stream's entries and a node's connections are, after their process stood still.
@Suite(.timeLimit(.minutes(10)))
struct OwnershipTests {
    /// Three consumers of one stream.
    private struct Consumers {
        let stream: String
        let one: ConsumerGroup
        let rival: ConsumerGroup

        init(_ connection: RedisConnection, _ keys: Keyspace) {
            self.stream = keys.jobs(.normal)
            self.one = ConsumerGroup(stream: self.stream, consumer: "one", connection: connection)
            self.rival = ConsumerGroup(stream: self.stream, consumer: "rival", connection: connection)
        }
    }

    private static func append(_ count: Int, _ connection: RedisConnection, _ keys: Keyspace) async throws -> [String] {
        try await Live(connection, keys: keys).jobs.append(
            (0..<count).map { (.normal, [(name: "title", value: Array("\($0)".utf8))]) })
    }

    @Test("a consumer is removed only while it has nothing pending")
    func removal() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let consumers = Consumers(connection, keys)
            #expect(try await consumers.rival.remove("one") == true, "there is no stream")
            let ids = try await Self.append(1, connection, keys)
            #expect(try await consumers.rival.remove("one") == true, "there is no group")
            try await consumers.one.create()
            // An entry that it takes after another dispatcher found nothing pending stays pending.
            #expect(try await consumers.rival.pending(of: "one", count: 1).isEmpty)
            #expect(try await consumers.one.takeWaiting(count: 10).map(\.id) == ids)
            #expect(try await consumers.rival.remove("one") == false)
            #expect(try await consumers.rival.pending(of: "one", count: 10) == [.init(id: ids[0], deliveries: 1)])
            try await consumers.one.acknowledge(ids)
            #expect(try await consumers.rival.remove("one") == true)
            #expect(try await consumers.rival.consumers().isEmpty)
        }
    }

    @Test("what nobody has taken over is kept, and no rival claims it then")
    func kept() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let consumers = Consumers(connection, keys)
            let ids = try await Self.append(4, connection, keys)
            try await consumers.one.create()
            _ = try await consumers.one.takeWaiting(count: 10)
            // All have been in hand for long; one is a rival's by now, and another a rival has
            // finished.
            for id in ids {
                try await connection.send(
                    "XCLAIM", .text(consumers.stream), .text(Keyspace.group), "one", "0", .text(id), "IDLE", "60000",
                    "JUSTID")
            }
            #expect(
                try await consumers.rival.claim(Array(ids[1...2]), idle: .seconds(5)).map(\.id) == Array(ids[1...2]))
            try await consumers.rival.acknowledge([ids[2]])
            #expect(try await consumers.one.keep(Array(ids[...2])) == [ids[0]])
            #expect(try await consumers.rival.claim(ids, idle: .seconds(5)).map(\.id) == [ids[3]])
            #expect(try await consumers.one.pending(of: "one", count: 10) == [.init(id: ids[0], deliveries: 1)])
            #expect(try await consumers.one.keep([]).isEmpty)
        }
    }

    @Test("what Redis has lost altogether is kept; what it will hand out again is not")
    func lost() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let consumers = Consumers(connection, keys)
            let ids = try await Self.append(2, connection, keys)
            try await consumers.one.create()
            _ = try await consumers.one.takeWaiting(count: 10)
            try await connection.send("DEL", .text(consumers.stream))
            #expect(try await consumers.one.keep(ids) == Set(ids), "there is no stream")
            let later = try await Self.append(1, connection, keys)
            #expect(try await consumers.one.keep(ids) == Set(ids), "there is no group")
            try await consumers.one.create()
            #expect(try await consumers.one.keep(ids + later) == Set(ids))
        }
    }

    @Test("a lapse is noticed also where the renewal that found it was not answered")
    func lostReply() async throws {
        try await TestRedis.with { connection, prefix in
            let passed = Mutex(Duration.zero)
            let start = ContinuousClock.now
            let lease = Lease(key: prefix + "lease", value: "test", connection: connection) {
                start + passed.withLock { $0 }
            }
            var wasHeld = [try await lease.renew(), try await lease.renew()]
            // Whatever took the lease in Redis again: as far as this process knows it had lapsed.
            passed.withLock { $0 += Lease.lifetime }
            wasHeld.append(try await lease.renew())
            passed.withLock { $0 += Lease.renewal }
            wasHeld.append(try await lease.renew())
            #expect(wasHeld == [false, true, false, true])
        }
    }

    @Test("a node that is back is not judged by an answer from before")
    func nodeBack() async throws {
        try await TestRedis.with { connection, prefix in
            let keys = Keyspace(prefix: prefix)
            let registry = PresenceRegistry(Live(connection, keys: keys))
            func presence(since: Int64) -> ConnectionPresence {
                ConnectionPresence(
                    connection: "c", node: "n", dialect: .native, state: .active, since: Timestamp(milliseconds: since))
            }
            try await registry.register([("ada", presence(since: 1)), ("ben", presence(since: 1))])
            #expect(try await registry.lookUp(["ada"]) == [.offline])
            // The node goes on and registers what stayed open, at once.
            let lease = Lease(key: keys.nodeLease("n"), value: "gateway", connection: connection)
            #expect(try await lease.renew() == false)
            try await registry.register([("ada", presence(since: 2)), ("ben", presence(since: 2))])
            let found = try await registry.lookUp(["ben", "ada"])
            #expect(found == [.online([presence(since: 2)]), .online([presence(since: 2)])])
            #expect(
                try await registry.areRegistered([("ada", "c"), ("ada", "d"), ("ben", "c")]) == [true, false, true])
        }
    }
}
