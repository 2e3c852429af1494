// Carillon · OverflowTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
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
        let entries = (0..<count).map { number in
            StreamEntry(id: "1-\(number)", fields: [("org", Array(org.utf8)[...]), ("title", Array("x".utf8)[...])])
        }
        let term = dispatcher.leaseClock.term ?? LeaseClock.Term()
        return LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: entries, term: term)
    }

    @Test("an organisation with jobs in its overflow keeps its turn limited, also while the lane is short")
    func follows() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, [NotificationType(name: "news")])
                dispatcher.leaseClock.renewed(at: .now)
                let policy = OverflowPolicy(backlog: 10, leastShare: Self.share)
                let overflow = OverflowGuard(dispatcher: dispatcher, policy: policy)
                func kept(_ count: Int, of org: String) async throws -> Int {
                    let batch = Self.batch(count, of: org, in: keys.jobs(.normal), dispatcher)
                    let excess = overflow.excess(of: batch)
                    if !excess.isEmpty { try await overflow.move(excess, of: batch.group) }
                    return count - excess.count
                }
                for _ in 0..<10 { try await redis.send("XADD", .text(keys.jobs(.normal)), "*", "org", "loud") }
                try await overflow.look()
                #expect(try await kept(100, of: "loud") == Self.share)

                try await redis.send("DEL", .text(keys.jobs(.normal)))
                try await overflow.look()
                // Far more than the average of the others.
                #expect(try await kept(100, of: "other") == 100)
                #expect(try await kept(100, of: "loud") == 0)

                // Once that has been worked off, it is like any other.
                try await redis.send("DEL", .text(keys.overflow("loud")))
                try await dispatcher.live.overflows.dropIfEmpty("loud")
                try await overflow.look()
                #expect(try await kept(100, of: "loud") == 100)
            }
        }
    }

    @Test("overflows wait for lanes with a backlog, but not for ever")
    func yields() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(prefix: prefix), [NotificationType(name: "news")])
                let overflow = OverflowGuard(dispatcher: dispatcher, policy: OverflowPolicy(backlog: 10))
                // No lane has a backlog.
                await overflow.waitForLanes(atMost: .seconds(3_600))
                let start = ContinuousClock.now
                overflow.noteBacklog()
                // The lane gives no further full batch.
                await overflow.waitForLanes(atMost: .seconds(3_600))
                #expect(ContinuousClock.now - start >= .milliseconds(50))
                let lane = Task {
                    while !Task.isCancelled {
                        overflow.noteBacklog()
                        // A lane that gives full batches for as long as the test runs.
                        try await Task.sleep(for: .milliseconds(5))
                    }
                }
                await overflow.waitForLanes(atMost: .milliseconds(200))
                lane.cancel()
            }
        }
    }

    @Test("an overflow is read only after the backlog of the lanes")
    func readsAfterLanes() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(prefix: prefix), [NotificationType(name: "news")])
                dispatcher.leaseClock.renewed(at: .now)
                let fields = [("title", Array("moved".utf8))]
                _ = try await dispatcher.live.overflows.append([(org: "acme", fields: fields)])
                let lanes = OverflowGuard(dispatcher: dispatcher, policy: OverflowPolicy(backlog: 10))
                let reader = OverflowReader(
                    dispatcher: dispatcher, lanes: lanes, queue: LaneQueue<LaneBatch>(capacity: 8))
                let start = ContinuousClock.now
                lanes.noteBacklog()
                #expect(await reader.roundOfAll().count == 1)
                #expect(ContinuousClock.now - start >= .milliseconds(50))
            }
        }
    }
}

/// A dispatcher whose Redis is away, or a master of its cluster.
///
/// One after the other, as most start several servers.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct AbsentMasterTests {
    /// A dispatcher on a cluster that is about to lose a master without a successor.
    private struct Scene {
        let cluster: TestCluster
        let absent: Int
        let redis: RedisClient
        let keys: Keyspace
        let dispatcher: Dispatcher

        /// A part of the master that is lost.
        var lost: Keyspace { get throws { try self.part { $0 == self.absent } } }
        /// A part of another master.
        var kept: Keyspace { get throws { try self.part { $0 != self.absent } } }

        private func part(_ isWanted: (Int) -> Bool) throws -> Keyspace {
            let part = self.keys.parts.first { isWanted(self.cluster.number(ofKey: $0.memory)) }
            return try #require(part)
        }

        func loseMaster() async throws { try await self.cluster.lose(self.absent) }
    }

    private static func with(_ body: (Scene) async throws -> Void) async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await TestRedis.with(try cluster.configuration()) { redis in
            try await TestDatabase.with { database in
                let keys = Keyspace(parts: 16)
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, [NotificationType(name: "news")])
                // The turn of the sweep stays.
                let absent = (cluster.number(ofKey: keys.sweepTurn) + 1) % 3
                try await body(
                    Scene(cluster: cluster, absent: absent, redis: redis, keys: keys, dispatcher: dispatcher))
            }
        }
    }

    @Test("overflows of the other masters are read while one is away")
    func overflows() async throws {
        try await Self.with { scene in
            let fields = [("title", Array("moved".utf8))]
            for part in try [scene.lost, scene.kept] {
                _ = try await scene.dispatcher.live.with(part).overflows.append([(org: "acme", fields: fields)])
            }
            try await scene.loseMaster()
            let reader = OverflowReader(
                dispatcher: scene.dispatcher, lanes: nil, queue: LaneQueue<LaneBatch>(capacity: 8))
            try await eventually("the job of the other master is read") {
                scene.dispatcher.leaseClock.renewed(at: .now)
                return await reader.roundOfAll().count == 1
            }
            let policy = OverflowPolicy(backlog: 10)
            try await OverflowGuard(dispatcher: scene.dispatcher, policy: policy).look()
        }
    }

    @Test("missing proofs of the other masters are noticed while one is away")
    func proofs() async throws {
        try await Self.with { scene in
            let (lost, kept) = try (scene.lost, scene.kept)
            let users = (0..<200).map { "user-\($0)" }
            let lostUser = users.first { scene.keys.part(of: $0).index == lost.index }
            let keptUser = users.first { scene.keys.part(of: $0).index == kept.index }
            var batch = RedisBatch()
            for user in [try #require(lostUser), try #require(keptUser)] {
                let awaited = UnconfirmedNotification(
                    id: NotificationID(high: 0x018f_0000_0000_8000, low: 0x8000_0000_0000_0001), user: user,
                    lane: .normal)
                scene.dispatcher.live.unconfirmed.add([(awaited, deadline: TestDispatcher.now)], in: &batch)
            }
            for reply in try await scene.redis.send(batch) { _ = try reply.checked() }
            try await scene.loseMaster()
            let shard = try #require(kept.index)
            try await eventually("the deadline of the other master is handled") {
                await ProofService(dispatcher: scene.dispatcher).poll()
                let set = RedisArgument.text(scene.keys.unconfirmed(shard: shard))
                return try await scene.redis.send("ZCARD", set).integer() == 0
            }
        }
    }

    @Test("a renewal without an answer is repeated while the lease still holds")
    func renewal() async throws {
        let server = try await RedisServer.start()
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(), [NotificationType(name: "news")])
                let service = LeaseService(dispatcher: dispatcher)
                try await service.acquire()
                let start = ContinuousClock.now
                let term = try #require(dispatcher.leaseClock.term)
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask { try? await service.run() }
                    try await server.stall()
                    // The renewal at 5 s would wait until 10 s, and the next come at 15 s.
                    try await eventually("a renewal has failed") { ContinuousClock.now - start > .seconds(11) }
                    server.resume()
                    try await eventually("the first renewal no longer counts") {
                        ContinuousClock.now - start > Lease.usualLifetime - .milliseconds(500)
                    }
                    #expect(dispatcher.leaseClock.holds(term))
                    group.cancelAll()
                }
            }
        }
    }
}
