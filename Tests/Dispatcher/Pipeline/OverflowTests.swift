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
        let entries = (0..<count).map { number in
            StreamEntry(id: "1-\(number)", fields: [("org", Array(org.utf8)[...]), ("title", Array("x".utf8)[...])])
        }
        let term = dispatcher.leaseClock.term ?? LeaseClock.Term()
        return LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: entries, term: term)
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
            try await overflow.look()
            #expect(try await kept(100, of: "loud") == Self.share)

            try await redis.send("DEL", .text(keys.jobs(.normal)))
            try await overflow.look()
            // Far more than the average of the others.
            #expect(try await kept(100, of: "other") == 100)
            #expect(try await kept(100, of: "loud") == 0)

            // A dispatcher that has just started finds the limit in Redis.
            let restarted = OverflowGuard(dispatcher: dispatcher, policy: policy)
            try await restarted.look()
            let batch = Self.batch(100, of: "loud", in: keys.jobs(.normal), dispatcher)
            #expect(restarted.excess(of: batch).count == 100 - Self.share)

            // Once that has been worked off, it is like any other.
            try await redis.send("DEL", .text(keys.overflow("loud")))
            try await dispatcher.live.overflows.dropIfEmpty("loud")
            try await overflow.look()
            #expect(try await kept(100, of: "loud") == 100)
        }
    }

    @Test("overflows wait for lanes with a backlog, but not for ever")
    func yields() async throws {
        try await TestDispatcher.with { dispatcher, _ in
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
            _ = try await dispatcher.live.overflows.append([(org: "acme", fields: fields)])
            let lanes = OverflowGuard(dispatcher: dispatcher, policy: OverflowPolicy(backlog: 10))
            let queue = LaneQueue<LaneBatch>(capacity: 8)
            let reader = OverflowReader(dispatcher: dispatcher, lanes: lanes, queue: queue)
            lanes.noteBacklog()
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
}
