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
        return LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: entries)
    }

    @Test("an organisation with jobs in its overflow keeps its turn limited, also while the lane is short")
    func follows() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                let dispatcher = try TestDispatcher.make(database.pool, redis, keys, [NotificationType(name: "news")])
                let policy = OverflowPolicy(backlog: 10, leastShare: Self.share)
                let overflow = OverflowGuard(dispatcher: dispatcher, policy: policy)
                func kept(_ count: Int, of org: String, in stream: String? = nil) async throws -> Int {
                    let batch = Self.batch(count, of: org, in: stream ?? keys.jobs(.normal), dispatcher)
                    return try await overflow.relieve(batch).entries.count
                }
                try await dispatcher.group(keys.jobs(.normal)).create()
                for _ in 0..<10 { try await redis.send("XADD", .text(keys.jobs(.normal)), "*", "org", "loud") }
                let watch = Task { await overflow.watch() }
                defer { watch.cancel() }
                try await eventually("the lane is long") { try await kept(1, of: "loud") == 0 }
                // Far more than the average of the others.
                #expect(try await kept(100, of: "loud") == 0)

                try await redis.send("DEL", .text(keys.jobs(.normal)))
                var others = 0
                try await eventually("the lane is short again, so another organisation keeps its excess") {
                    others += 1
                    // More than the average of all before it.
                    return try await kept(200, of: "other \(others)") == 200
                }
                #expect(try await kept(200, of: "loud") < 200)
                // Its overflow is not moved again when its turn comes.
                #expect(try await kept(10, of: "loud", in: keys.overflow("loud")) == 10)

                // Once that has been worked off, it is like any other.
                try await redis.send("DEL", .text(keys.overflow("loud")))
                _ = try await kept(200, of: "loud")
                #expect(try await kept(200, of: "loud") == 200)
            }
        }
    }
}
