// Carillon · ScheduleTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Synchronization
import Testing

@testable import Pipeline

/// Scheduled jobs whose entries are taken again after they fired, because their acknowledgement got
/// lost.
@Suite(.timeLimit(.minutes(10)))
struct ScheduledJobTests {
    /// Takes an entry before and after its moment, and fires in between or at the end.
    private static func notified(
        _ fields: [(String, String)],
        isLocal: Bool = false,
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
                // The clock of a user without a zone is UTC.
                let moment = isLocal ? ("deliver_local", String(due.dropFirst(11).prefix(5))) : ("deliver_at", due)
                let entry = StreamEntry(
                    id: "\(TestDispatcher.now.milliseconds)-0",
                    fields: ([("type", "news"), ("title", "Later"), moment] + fields).map {
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
                if isLocal {
                    // An entry that is taken after its moment waits for the next day's.
                    seconds.withLock { $0 += 86_400 }
                    _ = try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal)
                }
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

    @Test("a scheduled job notifies once, with or without an id", arguments: [nil, "job-1"], [true, false])
    func once(id: String?, firesFirst: Bool) async throws {
        let fields = [("user", "ada")] + (id.map { [("id", $0)] } ?? [])
        for isLocal in [false, true] {
            let result = try await Self.notified(fields, isLocal: isLocal, firesFirst: firesFirst)
            #expect(result.notifications == 1)
            #expect(result.dead.isEmpty)
        }
    }

    @Test("a scheduled job is one broadcast, with or without an id", arguments: [nil, "job-1"], [true, false])
    func oneBroadcast(id: String?, firesFirst: Bool) async throws {
        let fields = [("topic", "goals")] + (id.map { [("id", $0)] } ?? [])
        let result = try await Self.notified(fields, firesFirst: firesFirst)
        #expect(result.broadcasts == 1)
        #expect(result.dead.isEmpty)
    }
}

struct SteadyClockTests {
    private static let start = Timestamp(seconds: 1_795_000_000)

    @Test("runs on from its start, and follows another clock from the middle of the round trip")
    func goesOn() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start, at: begin)
        #expect(clock.now(at: begin + .seconds(10)) == Self.start + .seconds(10))
        let asked = begin + .seconds(20)
        let ahead = clock.set(Self.start + .seconds(3_620), asked: asked, answered: asked + .milliseconds(200))
        #expect(ahead == .milliseconds(3_599_900))
        #expect(clock.now(at: asked + .milliseconds(100)) == Self.start + .seconds(3_620))
        #expect(clock.now(at: asked + .milliseconds(1_100)) == Self.start + .seconds(3_621))
    }

    @Test("ignores an answer that took too long")
    func late() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start, at: begin)
        #expect(clock.set(Self.start + .seconds(99), asked: begin, answered: begin + .seconds(1)) == nil)
        #expect(clock.now(at: begin + .seconds(1)) == Self.start + .seconds(1))
    }

    @Test("follows another clock that is set back")
    func back() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start, at: begin)
        clock.set(Self.start + .seconds(-3_600), asked: begin, answered: begin)
        #expect(clock.now(at: begin) == Self.start + .seconds(-3_600))
    }
}
