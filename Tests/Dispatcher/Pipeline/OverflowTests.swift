// Carillon · OverflowTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

/// Which jobs leave their lane for the overflow of their organisation.
@Suite("Overflow: the guard", .timeLimit(.minutes(10)))
struct OverflowGuardTests {
    private static let share = 5

    private static func batch(
        _ count: Int, of org: String, in stream: String, _ dispatcher: Dispatcher
    ) -> LaneBatch {
        Self.batch(count, of: org, in: dispatcher.group(stream), dispatcher)
    }

    private static func batch(
        _ count: Int, of org: String, in group: ConsumerGroup, _ dispatcher: Dispatcher
    ) -> LaneBatch {
        let entries = (0..<count).map { number in
            StreamEntry(id: "1-\(number)", fields: [("org", Array(org.utf8)[...]), ("title", Array("x".utf8)[...])])
        }
        let term = dispatcher.leaseClock.term ?? LeaseClock.Term()
        return LaneBatch(lane: .normal, group: group, entries: entries, term: term)
    }

    @Test("an organisation with jobs in its overflow keeps its turn limited, also while the lane is short")
    func follows() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let policy = OverflowPolicy(backlog: 10, leastShare: Self.share)
            let overflow = OverflowGuard(dispatcher: dispatcher, policy: policy)
            func kept(_ count: Int, of org: String) async throws -> Int {
                let batch = Self.batch(count, of: org, in: keys.jobs(.normal), dispatcher)
                let excess = overflow.excess(of: batch)
                if !excess.isEmpty { try await overflow.move(excess, of: batch.group) }
                return count - excess.count
            }
            for _ in 0..<10 { try await redis.send("XADD", .text(keys.jobs(.normal)), "*", "org", "loud") }
            try await overflow.refresh()
            #expect(try await kept(100, of: "loud") == Self.share)

            try await redis.send("DEL", .text(keys.jobs(.normal)))
            try await overflow.refresh()
            // Far more than the average of the others.
            #expect(try await kept(100, of: "other") == 100)
            #expect(try await kept(100, of: "loud") == 0)
            // One with too many fields is no job; it stays and becomes a dead letter.
            let field = (name: "org", value: Array("loud".utf8)[...])
            let countless = StreamEntry(id: "1-0", fields: Array(repeating: field, count: 65))
            let last = Self.batch(1, of: "loud", in: keys.jobs(.normal), dispatcher).with([countless])
            #expect(overflow.excess(of: last).isEmpty)

            // A dispatcher that has just started finds the limit in Redis.
            let restarted = OverflowGuard(dispatcher: dispatcher, policy: policy)
            try await restarted.refresh()
            let batch = Self.batch(100, of: "loud", in: keys.jobs(.normal), dispatcher)
            #expect(restarted.excess(of: batch).count == 100 - Self.share)

            // Once that has been worked off, it is like any other.
            try await redis.send("DEL", .text(keys.overflow("loud")))
            try await dispatcher.live.overflows.dropIfEmpty("loud")
            try await overflow.refresh()
            #expect(try await kept(100, of: "loud") == 100)
        }
    }

    @Test("a few jobs with many users each are a backlog, and count by their users", arguments: [true, false])
    func recipients(isSliced: Bool) async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let (redis, stream) = (dispatcher.redis, dispatcher.keys.jobs(.normal))
            let overflow = OverflowGuard(
                dispatcher: dispatcher, policy: OverflowPolicy(backlog: 90, leastShare: 50))
            /// Returns how many of ten jobs stay in the lane.
            func kept(users: Int) throws -> Int {
                let names = (0..<users).map { "\"u\($0)\"" }.joined(separator: ",")
                let entries = (0..<10).map { number in
                    StreamEntry(
                        id: "1-\(number)",
                        fields: [("org", Array("loud".utf8)[...]), ("users", Array("[\(names)]".utf8)[...])])
                }
                var batch = LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: entries)
                if isSliced { batch = try #require(batch.slices().first) }
                return entries.count - overflow.excess(of: batch).count
            }
            for _ in 0..<3 { try await redis.send("XADD", .text(stream), "*", "org", "loud") }
            try await overflow.refresh()
            #expect(try kept(users: 1) == 10, "three users wait")
            // The mean of the last 20 jobs is 50 users, so about 150 wait.
            #expect(try kept(users: 100) == 1)
        }
    }

    @Test("organisations whose names differ only in code points have overflows of their own")
    func spellings() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let (loud, twin) = ("caf\u{E9}", "cafe\u{301}")
            let policy = OverflowPolicy(backlog: 10, leastShare: Self.share)
            let overflow = OverflowGuard(dispatcher: dispatcher, policy: policy)
            for _ in 0..<10 { try await redis.send("XADD", .text(keys.jobs(.normal)), "*", "org", "x") }
            try await overflow.refresh()
            let flood = Self.batch(20, of: loud, in: keys.jobs(.normal), dispatcher)
            try await overflow.move(overflow.excess(of: flood), of: flood.group)
            try await redis.send("DEL", .text(keys.jobs(.normal)))
            try await overflow.refresh()
            let others = Self.batch(100, of: twin, in: keys.jobs(.normal), dispatcher)
            #expect(overflow.excess(of: others).isEmpty)

            let jobs = [loud, twin].map { (org: $0, fields: [(name: "title", value: Array("moved".utf8))]) }
            try await dispatcher.live.overflows.append(jobs)
            for (org, length) in [(loud, 20 - Self.share + 1), (twin, 1)] {
                #expect(try await redis.send("XLEN", .text(keys.overflow(org))).integer() == length)
            }
            let queue = LaneQueue<LaneBatch>(capacity: 8)
            let count = await OverflowReader(dispatcher: dispatcher, lanes: nil, queue: queue).roundOfAll().count
            #expect(count == 20 - Self.share + 2)
            #expect(dispatcher.inFlight.streamCount == 2)
        }
    }

    @Test("overflows wait for lanes with a backlog, but not for ever")
    func yields() async throws {
        // A clock that is 10 ms later at each look.
        let time = Mutex(ContinuousClock.now)
        try await TestDispatcher.with(
            instant: {
                time.withLock { time in
                    time += .milliseconds(10)
                    return time
                }
            }
        ) { dispatcher, _ in
            let overflow = OverflowGuard(dispatcher: dispatcher, policy: OverflowPolicy(backlog: 10))
            func wait(atMost most: Duration) async -> Duration {
                let start = time.withLock { $0 }
                await overflow.waitForLanes(atMost: most)
                return time.withLock { $0 } - start
            }
            #expect(await wait(atMost: .seconds(3_600)) < .milliseconds(50), "no lane has a backlog")
            overflow.recordBacklog()
            // The lane gives no further full batch.
            #expect(await wait(atMost: .seconds(3_600)) >= .milliseconds(50))
            overflow.recordBacklog()
            #expect(await wait(atMost: .milliseconds(20)) < .milliseconds(50))
        }
    }

    @Test("an overflow is read only after the backlog of the lanes")
    func readsAfterLanes() async throws {
        let time = Mutex((instant: ContinuousClock.now, looks: 0))
        try await TestDispatcher.with(
            instant: {
                time.withLock { time in
                    time.looks += 1
                    return time.instant
                }
            }
        ) { dispatcher, _ in
            let fields = [("title", Array("moved".utf8))]
            try await dispatcher.live.overflows.append([(org: "acme", fields: fields)])
            let lanes = OverflowGuard(dispatcher: dispatcher, policy: OverflowPolicy(backlog: 10))
            let queue = LaneQueue<LaneBatch>(capacity: 8)
            let reader = OverflowReader(dispatcher: dispatcher, lanes: lanes, queue: queue)
            lanes.recordBacklog()
            let reading = Task { await reader.roundOfAll().count }
            // The clock stands still, so the backlog lasts.
            try await eventually("it has looked at the lanes again and again") {
                time.withLock { $0.looks >= 6 } || queue.count > 0
            }
            #expect(queue.count == 0)
            time.withLock { $0.instant += .milliseconds(60) }
            #expect(await reading.value == 1)
            try #require(queue.count == 1)
            let titles = await queue.receive()?.entries.map { String(decoding: $0["title"] ?? [], as: UTF8.self) }
            #expect(titles == ["moved"])
        }
    }

    @Test("moves jobs again if Redis came back without them before the acknowledgement")
    func lostMove() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let overflow = OverflowGuard(dispatcher: dispatcher, policy: OverflowPolicy(backlog: 10))
            let lane = RedisArgument.text(keys.jobs(.normal))
            let moved = RedisArgument.text(keys.overflow("loud"))
            let batch = Self.batch(3, of: "loud", in: keys.jobs(.normal), dispatcher)
            let excess = batch.entries.map { OverflowGuard.Excess(org: "loud", entry: $0) }
            // The acknowledgement fails, because this is no stream.
            try await redis.send("SET", lane, "x")
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await overflow.move(excess, of: batch.group) }
                try await eventually("they are moved") { try await redis.send("XLEN", moved).integer() == 3 }
                try await redis.send("DEL", moved)
                let session = redis.session
                let identifier = try await redis.send("CLIENT", "ID").integer()
                _ = try? await redis.send("CLIENT", "KILL", "ID", .integer(identifier), "SKIPME", "no")
                try await eventually("the connection reopens") { redis.session != session }
                try await redis.send("DEL", lane)
                try await group.waitForAll()
            }
            #expect(try await redis.send("XLEN", moved).integer() == 3)
        }
    }

    @Test("moves again only the jobs that Redis refused")
    func refusedMove() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let (redis, keys) = (dispatcher.redis, dispatcher.keys)
            let overflow = OverflowGuard(dispatcher: dispatcher, policy: OverflowPolicy(backlog: 10))
            let orgs = ["loud", "twin"]
            let streams = orgs.map { RedisArgument.text(keys.overflow($0)) }
            let excess = orgs.flatMap { org in
                Self.batch(2, of: org, in: keys.jobs(.normal), dispatcher).entries.map {
                    OverflowGuard.Excess(org: org, entry: $0)
                }
            }
            // Redis refuses its jobs, because this is no stream.
            try await redis.send("SET", streams[1], "x")
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await overflow.move(excess, of: dispatcher.group(keys.jobs(.normal))) }
                try await eventually("the others are moved") {
                    try await redis.send("XLEN", streams[0]).integer() == 2
                }
                try await redis.send("DEL", streams[1])
                try await group.waitForAll()
            }
            for stream in streams { #expect(try await redis.send("XLEN", stream).integer() == 2) }
        }
    }

    @Test("finds the jobs in an overflow of which Redis got no more than the first")
    func cutShort() async throws {
        var options = RedisServer.Options()
        options.arguments = ["--proto-max-bulk-len", "1mb"]
        let server = try await RedisServer.start(options)
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(database.pool, redis, Keyspace())
                // Redis closes the connection at the second, as if the dispatcher had died there.
                let jobs = [10, 2_000_000].map { size in
                    (org: "acme", fields: [(name: "title", value: [UInt8](repeating: 0x78, count: size))])
                }
                await #expect(throws: RedisError.self) { try await dispatcher.live.overflows.append(jobs) }
                dispatcher.leaseClock.hold()
                let queue = LaneQueue<LaneBatch>(capacity: 8)
                let reader = OverflowReader(dispatcher: dispatcher, lanes: nil, queue: queue)
                #expect(await reader.roundOfAll().count == 1)
            }
        }
    }

    @Test("moves jobs within a master without waiting for its replicas")
    func withoutReplica() async throws {
        try await TestRedis.with { redis, prefix in
            // This Redis has no replica.
            try await TestRedis.with(try await TestRedis.configuration()) { own in
                try await TestDatabase.with { database in
                    let keys = Keyspace(prefix: prefix)
                    let dispatcher = try TestDispatcher.make(
                        database.pool, redis, keys, replicated: ReplicatedWrites(replicas: 1, on: own))
                    let overflow = OverflowGuard(dispatcher: dispatcher, policy: OverflowPolicy(backlog: 10))
                    let batch = Self.batch(3, of: "loud", in: keys.jobs(.normal), dispatcher)
                    let excess = batch.entries.map { OverflowGuard.Excess(org: "loud", entry: $0) }
                    try await overflow.move(excess, of: batch.group)
                    let moved = try await redis.send("XLEN", .text(keys.overflow("loud"))).integer()
                    #expect(moved == 3)
                }
            }
        }
    }
}

/// The lanes of a cluster that lacks a replica.
@Suite(.timeLimit(.minutes(10)))
struct AbsentReplicaTests {
    @Test("a flood under the plain names takes its turn in the lane while the overflow's master lacks a replica")
    func flood() async throws {
        let cluster = try await TestCluster.start()
        let configuration = try cluster.configuration()
        try await TestRedis.with(configuration) { redis in
            try await TestRedis.with(configuration) { own in
                try await TestRedis.with(configuration) { reader in
                    try await TestDatabase.with { database in
                        let keys = Keyspace(parts: 16)
                        let dispatcher = try TestDispatcher.make(
                            database.pool, redis, keys, replicated: ReplicatedWrites(replicas: 1, on: own))
                        let plain = try #require(keys.otherSources.first)
                        let stream = RedisArgument.text(plain.jobs(.normal))
                        // Behind the masters are their replicas.
                        let master = cluster.number(ofKey: keys.overflowPart(of: "loud").overflows)
                        let replica = cluster.servers[3 + master]
                        try await replica.stall()
                        for number in 1...3 {
                            try await redis.send(
                                "XADD", stream, "*", "org", "loud", "user", .text("user-\(number)"), "type", "news",
                                "title", "x")
                        }
                        // Every job of an organisation is excess.
                        let service = JobsService(
                            dispatcher: dispatcher, readers: [PartLane(plain, .normal, reader)],
                            overflow: OverflowPolicy(backlog: 0, leastShare: 0))
                        dispatcher.leaseClock.hold()
                        try await withThrowingTaskGroup(of: Void.self) { group in
                            group.addTask { try? await service.run() }
                            try await eventually("the jobs are done") {
                                try await redis.send("XLEN", stream).integer() == 0
                            }
                            group.cancelAll()
                        }
                        replica.resume()
                        let stored = try await database.pool.query("SELECT FROM carillon.notifications").count
                        #expect(stored == 3)
                    }
                }
            }
        }
    }
}
