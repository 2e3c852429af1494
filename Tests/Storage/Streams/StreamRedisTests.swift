// Carillon · StreamRedisTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

/// Contracts of the Redis types, each test under its own prefix of a real Redis.
@Suite(.timeLimit(.minutes(10)))
struct StreamRedisTests {
    private static func with(_ body: (RedisClient, Keyspace) async throws -> Void) async throws {
        try await TestRedis.with { try await body($0, Keyspace(prefix: $1)) }
    }

    private static func fields(_ title: String) -> [(name: String, value: [UInt8])] {
        [("user", Array("u".utf8)), ("title", Array(title.utf8))]
    }

    @Test("creates the group, reads entries in order and removes acknowledged ones")
    func group() async throws {
        try await Self.with { connection, keys in
            let reader = try await TestRedis.connect()
            let jobs = Live(connection, keys: keys).jobs
            let group = ConsumerGroup(stream: keys.jobs(.normal), consumer: "one", connection: connection)
            let appended = try await jobs.append([(.normal, Self.fields("a")), (.normal, Self.fields("b"))])
                .map(\.entry)
            // The first read creates the group and starts at the oldest entry.
            _ = try await group.read(on: reader, count: 10, block: .milliseconds(10))
            let entries = try await group.read(on: reader, count: 10, block: .seconds(1))
            #expect(entries.map(\.id) == appended)
            #expect(entries.map { $0["title"].map { String(decoding: $0, as: UTF8.self) } } == ["a", "b"])
            #expect(try await group.reclaimOwned(appended) == Set(appended))
            try await group.acknowledge([appended[0]])
            #expect(try await group.reclaimOwned(appended) == [appended[1]])
            #expect(try await jobs.lengths()[.normal] == 1)
            #expect(try await group.pending(of: "one", count: 10).map(\.id) == [appended[1]])
            await reader.close()
        }
    }

    @Test("says that replicas are missing, however short the time limit of other commands is")
    func missingReplica() async throws {
        var configuration = try await TestRedis.configuration()
        // As with the shortest lease; as long as a write waits for its replicas.
        configuration.commandTimeout = .seconds(1)
        try await Self.with { connection, keys in
            try await TestRedis.with(configuration) { own in
                // This Redis has no replica.
                let live = Live(connection, keys: keys, replicated: ReplicatedWrites(replicas: 1, on: own))
                // A busy machine may need longer for any single one.
                try await eventually("a write says so") {
                    let error = await #expect(throws: RedisError.self) {
                        _ = try await live.jobs.append([(.normal, Self.fields("a"))])
                    }
                    return error?.code == .notReplicated
                }
            }
        }
    }

    @Test("claims another consumer's entry once and counts the delivery")
    func claim() async throws {
        try await Self.with { connection, keys in
            let reader = try await TestRedis.connect()
            let stream = keys.jobs(.normal)
            let dead = ConsumerGroup(stream: stream, consumer: "dead", connection: connection)
            let heir = ConsumerGroup(stream: stream, consumer: "heir", connection: connection)
            let rival = ConsumerGroup(stream: stream, consumer: "rival", connection: connection)
            try await dead.create()
            let ids = try await Live(connection, keys: keys).jobs.append([(.normal, Self.fields("a"))]).map(\.entry)
            _ = try await dead.read(on: reader, count: 10, block: .seconds(1))
            #expect(try await heir.pending(of: "dead", count: 10) == [.init(id: ids[0], deliveries: 1)])
            #expect(try await heir.claim(ids[0], from: "dead", idle: .seconds(0))?.id == ids[0])
            #expect(try await rival.claim(ids[0], from: "heir", idle: .seconds(60)) == nil)
            #expect(try await heir.pending(of: "heir", count: 10) == [.init(id: ids[0], deliveries: 2)])
            #expect(Set(try await heir.consumers().map(\.name)).isSuperset(of: ["dead", "heir"]))
            try await heir.remove("dead")
            #expect(try await heir.consumers().map(\.name).contains("dead") == false)
            await reader.close()
        }
    }

    @Test("counts presence while the node holds its lease and removes the rest")
    func presence() async throws {
        try await Self.with { connection, keys in
            func entry(_ name: String, node: String) -> ConnectionPresence {
                ConnectionPresence(
                    connection: name,
                    node: node,
                    dialect: .native,
                    state: .active,
                    since: Timestamp(milliseconds: 5)
                )
            }
            let registry = PresenceRegistry(Live(connection, keys: keys))
            _ = try await registry.register([
                ("ada", entry("c1", node: "alive")), ("ada", entry("c2", node: "void")),
                ("ben", entry("c3", node: "void")),
            ])
            let lease = Lease(key: keys.nodeLease("alive"), value: "gateway", connection: connection)
            #expect(try await lease.renew() == false)
            #expect(try await lease.renew() == true)
            let found = try await registry.lookUp(["ada", "ben", "nobody"])
            #expect(found == [.online([entry("c1", node: "alive")]), .offline, .offline])
            #expect(try await connection.send("HLEN", .text(keys.presence("ada"))).integer() == 1)
            #expect(try await connection.send("EXISTS", .text(keys.presence("ben"))).integer() == 0)
            #expect(try await registry.remove([("ada", "c1")]) == [true])
            #expect(try await registry.lookUp(["ada"]) == [.offline])
            try await lease.release()
            #expect(try await Lease.areHeld([keys.nodeLease("alive")], connection: connection) == [false])
        }
    }

    @Test("finds presence although Redis refuses to remove connections of dead nodes, which the next lookup does")
    func presenceWithoutWrites() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { connection in
            let keys = Keyspace(prefix: "p:")
            let registry = PresenceRegistry(Live(connection, keys: keys))
            func entry(_ name: String, node: String) -> ConnectionPresence {
                ConnectionPresence(
                    connection: name, node: node, dialect: .native, state: .active, since: Timestamp(milliseconds: 5))
            }
            _ = try await registry.register([("ada", entry("c1", node: "alive")), ("ada", entry("c2", node: "void"))])
            try await connection.send("SET", .text(keys.nodeLease("alive")), "gateway")
            func connections() async throws -> Int64 {
                try await connection.send("HLEN", .text(keys.presence("ada"))).integer()
            }
            // It has no replica, so it refuses writes.
            try await connection.send("CONFIG", "SET", "min-replicas-to-write", "1")
            #expect(try await registry.lookUp(["ada"]) == [.online([entry("c1", node: "alive")])])
            #expect(try await connections() == 2)
            try await connection.send("CONFIG", "SET", "min-replicas-to-write", "0")
            #expect(try await registry.lookUp(["ada"]) == [.online([entry("c1", node: "alive")])])
            #expect(try await connections() == 1)
        }
    }

    @Test("presence expires a day after the last registration or check of a connection")
    func presenceEnds() async throws {
        try await Self.with { connection, keys in
            let registry = PresenceRegistry(Live(connection, keys: keys))
            let entry = ConnectionPresence(
                connection: "c", node: "n", dialect: .native, state: .active, since: Timestamp(milliseconds: 5))
            let key = RedisArgument.text(keys.presence("ada"))
            func hours() async throws -> Int64 {
                // Rounded up.
                (try await connection.send("PTTL", key).integer() + 3_599_999) / 3_600_000
            }
            #expect(try await registry.register([("ada", entry), ("ben", entry)]) == [true, true])
            #expect(try await hours() == 24)
            try await connection.send("PEXPIRE", key, 7_200_000)
            #expect(try await hours() == 2)
            let found = try await registry.connections(of: ["ada", "eve", "ben"], on: "n", renews: true)
            #expect(found == [["c"], [], ["c"]])
            #expect(try await hours() == 24)
            try await connection.send("PEXPIRE", key, 7_200_000)
            #expect(try await registry.register([("ada", entry)]) == [true])
            #expect(try await hours() == 24)
        }
    }

    @Test("keeps a connection that registered again after it was read")
    func registeredAgain() async throws {
        try await Self.with { connection, keys in
            let registry = PresenceRegistry(Live(connection, keys: keys))
            func entry(_ name: String, since: Int64) -> ConnectionPresence {
                ConnectionPresence(
                    connection: name,
                    node: "back",
                    dialect: .native,
                    state: .active,
                    since: Timestamp(milliseconds: since)
                )
            }
            _ = try await registry.register([("ada", entry("c1", since: 1)), ("ada", entry("c2", since: 1))])
            _ = try await registry.register([("ada", entry("c1", since: 2))])
            try await registry.forget([("ada", entry("c1", since: 1)), ("ada", entry("c2", since: 1))])
            let fields = try await connection.send("HKEYS", .text(keys.presence("ada"))).strings()
            #expect(fields == ["c1"])
        }
    }

    @Test(
        "claims overdue unconfirmed notifications, again and again until they are removed",
        arguments: ["a user with spaces", "\u{301}ada"])
    func unconfirmed(user: String) async throws {
        try await Self.with { connection, keys in
            let set = Live(connection, keys: keys).proofDeadlines
            let waiting = AwaitedProof(
                id: NotificationID(high: 1, low: 2),
                user: user,
                lane: .critical
            )
            let shard = keys.proofShard(user: waiting.user)
            var batch = RedisBatch()
            set.add([(waiting, deadline: Timestamp(milliseconds: 1_000))], in: &batch)
            try await connection.send(batch)
            func claim(at milliseconds: Int64) async throws -> [AwaitedProof] {
                try await set.claimDue(
                    shard: shard,
                    now: Timestamp(milliseconds: milliseconds),
                    hold: .seconds(30),
                    limit: 10
                )
            }
            #expect(try await claim(at: 999).isEmpty)
            #expect(try await claim(at: 1_000) == [waiting])
            #expect(try await claim(at: 1_001).isEmpty)
            #expect(try await claim(at: 31_000) == [waiting])
            var removal = RedisBatch()
            set.remove([waiting], in: &removal)
            try await connection.send(removal)
            #expect(try await claim(at: 90_000).isEmpty)
        }
    }

    @Test("keeps a deadline that is set, and extends it only while the notification is unconfirmed")
    func unconfirmedDeadlines() async throws {
        try await Self.with { connection, keys in
            let set = Live(connection, keys: keys).proofDeadlines
            let (waiting, confirmed) = (
                AwaitedProof(id: NotificationID(high: 1, low: 2), user: "u", lane: .normal),
                AwaitedProof(id: NotificationID(high: 1, low: 3), user: "u", lane: .normal)
            )
            let key = RedisArgument.text(keys.proofDeadlines(shard: keys.proofShard(user: "u")))
            func deadlines(
                _ milliseconds: Int64,
                _ change: (ProofDeadlines, Timestamp, inout RedisBatch) -> Void
            ) async throws -> [String] {
                var batch = RedisBatch()
                change(set, Timestamp(milliseconds: milliseconds), &batch)
                try await connection.run(batch)
                return try await connection.send("ZRANGE", key, "0", "-1", "WITHSCORES").strings()
            }
            let member = String(decoding: waiting.bytes, as: UTF8.self)
            for milliseconds in [1_000, 2_000] as [Int64] {
                let added = try await deadlines(milliseconds) { set, deadline, batch in
                    set.add([(waiting, deadline: deadline)], in: &batch)
                }
                #expect(added == [member, "1000"])
            }
            for milliseconds in [4_000, 3_000] as [Int64] {
                let extended = try await deadlines(milliseconds) { set, deadline, batch in
                    set.extend([(waiting, deadline: deadline), (confirmed, deadline: deadline)], in: &batch)
                }
                #expect(extended == [member, "4000"])
            }
        }
    }

    @Test("claims critical unconfirmed notifications first without starving the oldest")
    func unconfirmedLanes() async throws {
        try await Self.with { connection, keys in
            let set = Live(connection, keys: keys).proofDeadlines
            func waiting(_ number: UInt64, _ lane: Lane) -> AwaitedProof {
                // The user's name must not be taken for the lane.
                AwaitedProof(
                    id: NotificationID(high: 1, low: number), user: "a critical user", lane: lane)
            }
            let bulk = (0..<20).map { waiting($0, .bulk) }
            let critical = (100..<110).map { waiting($0, .critical) }
            var batch = RedisBatch()
            for (number, notification) in (bulk + critical).enumerated() {
                set.add([(notification, deadline: Timestamp(milliseconds: 1_000 + Int64(number)))], in: &batch)
            }
            try await connection.send(batch)
            let shard = keys.proofShard(user: "a critical user")
            func claim() async throws -> [AwaitedProof] {
                try await set.claimDue(
                    shard: shard, now: Timestamp(milliseconds: 2_000), hold: .seconds(30), limit: 8)
            }
            #expect(try await claim() == Array(critical[..<7]) + [bulk[0]])
            #expect(try await claim() == Array(critical[7...]) + Array(bulk[1..<6]))
            #expect(try await claim() == Array(bulk[6..<14]))
            #expect(try await claim() == Array(bulk[14...]))
            #expect(try await claim().isEmpty)
        }
    }

    @Test("moves a due retry back to its stream, once")
    func retries() async throws {
        try await Self.with { connection, keys in
            let set = Live(connection, keys: keys).retries
            let work = DeliveryWork(
                notification: NotificationID(high: 1, low: 2),
                device: DeviceID(high: 3, low: 4),
                user: "u",
                attempt: 1,
                isRepeat: false
            )
            var batch = RedisBatch()
            // Adding the same work twice keeps one.
            for _ in 0..<2 {
                set.add(work, due: Timestamp(milliseconds: 1_000), provider: .fcm, lane: .bulk, in: &batch)
            }
            try await connection.send(batch)
            #expect(try await set.count(provider: .fcm, lane: .bulk) == 1)
            func move(at milliseconds: Int64) async throws -> Int {
                try await set.moveDue(
                    provider: .fcm,
                    lane: .bulk,
                    now: Timestamp(milliseconds: milliseconds),
                    limit: 10
                )
            }
            #expect(try await move(at: 999) == 0)
            #expect(try await move(at: 1_000) == 1)
            #expect(try await move(at: 2_000) == 0)
            let reader = try await TestRedis.connect()
            let group = ConsumerGroup(
                stream: keys.deliveries(.fcm, .bulk),
                consumer: "one",
                connection: connection
            )
            try await group.create()
            let entries = try await group.read(on: reader, count: 10, block: .seconds(1))
            #expect(entries.count == 1)
            #expect(try entries.first?[DeliveryWork.field].map { try DeliveryWork($0) } == work)
            await reader.close()
        }
    }

    @Test("finds the retries of one user, whatever the name")
    func traces() async throws {
        try await Self.with { connection, keys in
            let traces = Live(connection, keys: keys).userTraces
            let retries = Live(connection, keys: keys).retries
            let users = ["a*b", "axb", "x a*b", "[a]?\\", "ä b"]
            for (number, user) in users.enumerated() {
                let id = NotificationID(high: 1, low: UInt64(number))
                var batch = RedisBatch()
                for provider in [Provider.fcm, .apns] {
                    let work = DeliveryWork(notification: id, device: id, user: user, attempt: 1, isRepeat: false)
                    let due = Timestamp(seconds: 1_795_000_000)
                    retries.add(work, due: due, provider: provider, lane: .bulk, in: &batch)
                }
                _ = try await connection.send(batch)
            }
            for (number, user) in users.enumerated() {
                #expect(try await traces.eraseRetries(user: user) == 2, "\(user)")
                #expect(try await traces.eraseRetries(user: user) == 0)
                let left = try await retries.count(provider: .fcm, lane: .bulk)
                #expect(left == users.count - number - 1)
            }
            #expect(try await traces.erasePresence(user: "a*b") == 0)
        }
    }

    @Test("forgets the caps and rates of one user")
    func usage() async throws {
        try await Self.with { connection, keys in
            let traces = Live(connection, keys: keys).userTraces
            let caps = Live(connection, keys: keys).usageCaps
            let buckets = Live(connection, keys: keys).buckets
            let now = Timestamp(seconds: 1_795_000_000)
            let limit = FrequencyCap(count: 1, window: .seconds(3_600))
            let counted = ["type:news", "user"].map { UsageCaps.Cap(name: $0, limit: limit) }
            let users = ["ada", "ada}", "eve"]
            let uses = users.map {
                UsageCaps.Use(user: $0, notification: NotificationID(high: 1, low: 1), caps: counted)
            }
            #expect(try await caps.use(uses, now: now) == [nil, nil, nil])
            for user in users {
                for kind in TokenBuckets.Kind.allCases {
                    _ = try await buckets.take(20, kind: kind, user: user, perSecond: 1, burst: 10)
                }
            }
            let names = ["category:none", "type:news", "user"]
            let kinds = TokenBuckets.Kind.allCases.count
            #expect(try await traces.eraseUsage(user: "ada", caps: names) == 2 + kinds)
            #expect(try await traces.eraseUsage(user: "ada", caps: names) == 0)
            #expect(try await traces.eraseUsage(user: "ada", caps: []) == 0)
            #expect(try await caps.reached(counted, user: "ada", now: now) == nil)
            for user in ["ada}", "eve"] {
                #expect(try await caps.reached(counted, user: user, now: now) == 0, "\(user)")
                #expect(try await buckets.take(0, kind: .calls, user: user, perSecond: 1, burst: 10) > 0, "\(user)")
            }
            #expect(try await buckets.take(0, kind: .calls, user: "ada", perSecond: 1, burst: 10) == 0)
        }
    }
}

/// Keys of a cluster that lacks a master or a replica.
///
/// One after the other, as each starts several servers.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct AbsentServerTests {
    private static let keys = Keyspace(parts: 16)

    /// Returns a user whose part is at the master with this number.
    private static func user(of master: Int, _ cluster: TestCluster) throws -> String {
        let user = (0..<200).map { "user-\($0)" }.first { user in
            cluster.number(ofKey: Self.keys.part(of: user).jobs(.normal)) == master
        }
        return try #require(user)
    }

    @Test("a missing replica of one master refuses no jobs of the others")
    func replica() async throws {
        let cluster = try await TestCluster.start()
        let configuration = try cluster.configuration()
        try await TestRedis.with(configuration) { redis in
            try await TestRedis.with(configuration) { own in
                let live = Live(redis, keys: Self.keys, replicated: ReplicatedWrites(replicas: 1, on: own))
                func refusal(of users: String...) async -> RedisError? {
                    do throws(RedisError) {
                        _ = try await live.jobs.append(
                            users.map { (lane: .normal, fields: [(name: "user", value: Array($0.utf8))]) })
                        return nil
                    } catch {
                        return error
                    }
                }
                let lagging = try Self.user(of: 0, cluster)
                let other = try Self.user(of: 1, cluster)
                // Reads which master has which keys.
                try await own.send("PING")
                // The replica of the first master.
                try await cluster.servers[3].stall()
                // One list for both masters.
                #expect(await refusal(of: lagging, other)?.code == .notReplicated)
                // It may wait for its own replica, but not be refused unsent.
                #expect(await refusal(of: other)?.message != "the replicas are not up to date")
                #expect(await refusal(of: lagging)?.code == .notReplicated)
                #expect(await refusal(of: other)?.message != "the replicas are not up to date")
                let stream = RedisArgument.text(Self.keys.part(of: lagging).jobs(.normal))
                let length = try await redis.send("XLEN", stream).integer()
                try await eventually("a job has waited for the replica once more") {
                    await refusal(of: lagging)?.message == "0 of 1 replicas had the write in time"
                }
                let later = try await redis.send("XLEN", stream).integer()
                #expect(later == length)
                cluster.servers[3].resume()
                try await eventually("jobs are accepted again") { await refusal(of: lagging) == nil }
            }
        }
    }

    @Test("users are online while the master that has their node's lease is away")
    func lease() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await TestRedis.with(try cluster.configuration()) { redis in
            let live = Live(redis, keys: Self.keys)
            let nodes = (0..<200).map { "node-\($0)" }
            let found = nodes.first { cluster.number(ofKey: Self.keys.nodeLease($0)) == 0 }
            let node = try #require(found)
            let user = try Self.user(of: 1, cluster)
            let connection = ConnectionPresence(
                connection: "c", node: node, dialect: .native, state: .active, since: Timestamp(milliseconds: 1))
            #expect(try await PresenceRegistry(live).register([(user, connection)]) == [true])
            _ = try await Lease(key: Self.keys.nodeLease(node), value: "gateway", connection: redis).renew()
            try await cluster.lose(0)
            // A registry that has not seen the lease.
            #expect(try await PresenceRegistry(live).lookUp([user]) == [.online([connection])])
            let other = nodes.first { cluster.number(ofKey: Self.keys.nodeLease($0)) == 1 }
            let free = try #require(other)
            let leases = [node, free].map { Self.keys.nodeLease($0) }
            #expect(try await Lease.areHeld(leases, connection: redis) == [true, false])
            #expect(try await Lease.areHeld([leases[0]], connection: redis) == [true])
        }
    }

    @Test("a holder is listed no longer than its lease lasts while the master of its lease is away")
    func unlisted() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await TestRedis.with(try cluster.configuration()) { redis in
            let register = Self.keys.dispatchers
            let found = (0..<200).map { "dispatcher-\($0)" }.first { name in
                cluster.number(ofKey: Self.keys.dispatcherLease(name)) != cluster.number(ofKey: register)
            }
            let name = try #require(found)
            let key = Self.keys.dispatcherLease(name)
            func renew(at now: Timestamp) async throws {
                let lease = Lease(
                    key: key, value: "dispatcher", register: Lease.Register(key: register, name: name) { now },
                    connection: redis)
                _ = try await lease.renew()
            }
            func holders(at now: Timestamp) async throws -> [String] {
                try await Lease.holders(in: register, at: now, lifetime: Lease.usualLifetime, connection: redis)
            }
            let start = Timestamp(seconds: 1_795_000_000)
            try await renew(at: start)
            #expect(try await holders(at: start) == [name])
            try await cluster.lose(cluster.number(ofKey: key))
            let end = start + Lease.usualLifetime + .seconds(1)
            await #expect(throws: RedisError.self) { try await renew(at: end) }
            #expect(try await holders(at: end).isEmpty)
        }
    }

    @Test("connections of the other masters are removed and checked while a master is away")
    func departures() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await TestRedis.with(try cluster.configuration()) { redis in
            let registry = PresenceRegistry(Live(redis, keys: Self.keys))
            let away = try Self.user(of: 0, cluster)
            let here = try Self.user(of: 1, cluster)
            let connection = ConnectionPresence(
                connection: "c", node: "n", dialect: .native, state: .active, since: Timestamp(milliseconds: 1))
            #expect(try await registry.register([(away, connection), (here, connection)]) == [true, true])
            try await cluster.lose(0)
            #expect(try await registry.connections(of: [away, here], on: "n", renews: true) == [nil, ["c"]])
            let gone = [(user: away, connection: "c"), (user: here, connection: "c")]
            #expect(try await registry.remove(gone) == [false, true])
            #expect(try await registry.remove([(user: away, connection: "c")]) == [false])
            #expect(try await registry.connections(of: [here], on: "n", renews: true) == [[]])
            try await cluster.servers[0].start()
            try await eventually("it is removed once its master is back") {
                try await registry.remove([(user: away, connection: "c")]) == [true]
            }
        }
    }

    @Test("states and bookmarks of users of the other masters are recorded at once while a master is away")
    func states() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        var configuration = try cluster.configuration()
        configuration.commandTimeout = .seconds(60)
        let patience = configuration.commandTimeout
        try await TestRedis.with(configuration) { redis in
            let live = Live(redis, keys: Self.keys)
            let registry = PresenceRegistry(live)
            let found = (0..<200).map { "node-\($0)" }.first { node in
                cluster.number(ofKey: Self.keys.nodeLease(node)) == 1
            }
            let node = try #require(found)
            let away = try Self.user(of: 0, cluster)
            let here = try Self.user(of: 1, cluster)
            let start = Timestamp(seconds: 1_795_000_000)
            func connection(_ state: ConnectionPresence.State, at since: Timestamp?) -> ConnectionPresence {
                ConnectionPresence(
                    connection: "c", node: node, dialect: .native, state: state, since: start, stateSince: since)
            }
            let active = connection(.active, at: nil)
            let areRegistered = try await registry.register([(away, active), (here, active)])
            #expect(areRegistered == [true, true])
            try await cluster.lose(0)
            var batch = RedisBatch()
            batch.append("EXISTS", .text(Self.keys.presence(away)))
            let probe = batch
            try await eventually("the master is known to be away") {
                do throws(RedisError) {
                    _ = try await redis.send(probe, timeout: .seconds(1), isPatient: false)
                    return false
                } catch {
                    return error.message?.hasSuffix("is away") == true
                }
            }
            let begin = ContinuousClock.now
            await #expect(throws: RedisError.self) {
                try await registry.setStates([away, here].map { ($0, "c", .idle, start + .seconds(1)) })
            }
            let bookmark = Bookmark(client: "web", version: 5, lastHeard: start)
            for users in [[away, here], [away]] {
                try await live.bookmarks.store(users.map { ($0, "c", bookmark) }, at: start)
            }
            // Each call that waits takes longer.
            #expect(ContinuousClock.now - begin < patience)
            _ = try await Lease(key: Self.keys.nodeLease(node), value: "gateway", connection: redis).renew()
            let presence = try await registry.lookUp([here])
            #expect(presence == [.online([connection(.idle, at: start + .seconds(1))])])
            let versions = try await live.bookmarks.claim([(here, "d", "web")], at: start) {
                (users: [String]) async throws(RedisError) -> [Set<String>] in users.map { _ in [] }
            }
            #expect(versions == [5])
        }
    }
}
