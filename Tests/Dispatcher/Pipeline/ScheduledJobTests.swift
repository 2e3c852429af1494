// Carillon · ScheduledJobTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Synchronization
import Testing

@testable import Pipeline

/// Scheduled jobs whose entries are read again after they fired, as their acknowledgement was lost.
@Suite(.timeLimit(.minutes(10)))
struct ScheduledJobTests {
    /// Takes an entry before and after its moment, and fires due schedules in between or at the
    /// end.
    private static func notified(
        _ fields: [(String, String)],
        firesFirst: Bool
    ) async throws -> (notifications: Int, broadcasts: Int, dead: [String]) {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let seconds = Mutex<Int64>(0)
                let keys = Keyspace(prefix: prefix)
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, keys, [NotificationType(name: "news")],
                    now: { TestDispatcher.now + .seconds(seconds.withLock { $0 }) })
                let due = (TestDispatcher.now + .seconds(60)).rfc3339
                let entry = StreamEntry(
                    id: "\(TestDispatcher.now.milliseconds)-0",
                    fields: ([("type", "news"), ("title", "Later"), ("deliver_at", due)] + fields).map {
                        ($0.0, Array($0.1.utf8)[...])
                    })
                let batch = LaneBatch(
                    lane: .normal, group: dispatcher.group(keys.jobs(.normal)), entries: [entry])
                var again = batch
                again.areRepeats = true
                let intake = JobIntake(dispatcher: dispatcher)
                var dead = try await intake.take(batch).dead
                seconds.withLock { $0 += 120 }
                if firesFirst { _ = try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) }
                dead += try await intake.take(again).dead
                if !firesFirst { _ = try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) }
                func count(_ table: String) async throws -> Int {
                    try await database.pool.query("SELECT FROM carillon.\(table)").count
                }
                #expect(try await count("schedules") == 0)
                let letters = try await database.pool.query("SELECT reason FROM carillon.dead_letters")
                return (
                    try await count("notifications"), try await count("broadcasts"),
                    dead.map(\.reason) + (try letters.map { try $0.text(0) })
                )
            }
        }
    }

    @Test("notifies once, with or without a job id", arguments: [nil, "job-1"], [true, false])
    func once(id: String?, firesFirst: Bool) async throws {
        let fields = [("user", "ada")] + (id.map { [("id", $0)] } ?? [])
        let result = try await Self.notified(fields, firesFirst: firesFirst)
        #expect(result.notifications == 1)
        #expect(result.dead.isEmpty)
    }

    @Test("starts one broadcast, with or without a job id", arguments: [nil, "job-1"], [true, false])
    func oneBroadcast(id: String?, firesFirst: Bool) async throws {
        let fields = [("topic", "goals")] + (id.map { [("id", $0)] } ?? [])
        let result = try await Self.notified(fields, firesFirst: firesFirst)
        #expect(result.broadcasts == 1)
        #expect(result.dead.isEmpty)
    }
}
