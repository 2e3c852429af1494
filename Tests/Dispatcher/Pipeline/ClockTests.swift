// Carillon · ClockTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Operations
import Storage
import Support
import Synchronization
import Testing

@testable import Pipeline

@Suite(.timeLimit(.minutes(10)))
struct ZoneWatchTests {
    @Test("each dispatcher whose time-zone data changes reconsiders the releases, and one of those that start with it")
    func once() async throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "zones-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                func install(_ version: String) throws {
                    try Data("# version \(version)\n".utf8).write(to: folder.appending(path: "tzdata.zi"))
                }
                func watch() throws -> ZoneWatch {
                    ZoneWatch(
                        dispatcher: try TestDispatcher.make(
                            database.pool, redis, Keyspace(prefix: prefix), zones: ZoneDatabase(folder: folder.path)))
                }
                let far = PostgresValue.timestamptz((TestDispatcher.now + .seconds(36_000)).microseconds)
                func reconsiders(_ watch: ZoneWatch, _ state: inout ZoneWatch.State) async throws -> Bool {
                    try await database.pool.query("DELETE FROM carillon.follow_ups")
                    try await database.pool.query(
                        """
                        INSERT INTO carillon.follow_ups (user_id, notification_id, kind, due_at)
                        VALUES ('ada', gen_random_uuid(), 'release', $1)
                        """,
                        far)
                    try await watch.look(&state)
                    return try await database.pool.query(
                        "SELECT FROM carillon.follow_ups WHERE due_at < $1", far
                    ).count == 1
                }
                try install("2026a")
                let (one, two) = (try watch(), try watch())
                var (first, second) = (ZoneWatch.State(), ZoneWatch.State())
                var found = [try await reconsiders(one, &first), try await reconsiders(two, &second)]
                try install("2026b")
                found.append(try await reconsiders(two, &second))
                found.append(try await reconsiders(one, &first))
                #expect(found == [true, false, true, true])
            }
        }
    }

    @Test("reconsiders the releases of users whose zone's rules have changed; users without a zone have the default")
    func changedZones() async throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "zones-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        func install(_ name: String, from zone: String) throws {
            try Data(contentsOf: URL(filePath: "/usr/share/zoneinfo/\(zone)")).write(to: folder.appending(path: name))
        }
        try Data("# version 2026a\n".utf8).write(to: folder.appending(path: "tzdata.zi"))
        for name in ["Home", "Away", "UTC"] { try install(name, from: "Asia/Tokyo") }
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let dispatcher = try TestDispatcher.make(
                    database.pool, redis, Keyspace(prefix: prefix), zones: ZoneDatabase(folder: folder.path))
                try await database.pool.query(
                    "INSERT INTO carillon.user_settings (user_id, zone) VALUES ('ada', 'Home'), ('bob', 'Away')")
                let watch = ZoneWatch(dispatcher: dispatcher)
                var state = ZoneWatch.State()
                try await watch.look(&state)
                // The decisions that postponed the releases read these rules.
                for name in ["Home", "Away", nil] { _ = dispatcher.zones.rules(name) }
                try await watch.look(&state)
                let far = PostgresValue.timestamptz((TestDispatcher.now + .seconds(36_000)).microseconds)
                try await database.pool.query(
                    """
                    INSERT INTO carillon.follow_ups (user_id, notification_id, kind, due_at)
                    SELECT u, gen_random_uuid(), 'release', $1 FROM unnest('{ada,bob,eve}'::text[]) AS u
                    """,
                    far)
                var due: [[String]] = []
                for name in ["Home", "UTC"] {
                    try install(name, from: "Asia/Kathmandu")
                    try await watch.look(&state)
                    due.append(
                        try await database.pool.query(
                            "SELECT user_id FROM carillon.follow_ups WHERE due_at < $1 ORDER BY 1", far
                        ).map { try $0.text(0) })
                }
                #expect(due == [["ada"], ["ada", "eve"]])
            }
        }
    }

    @Test("a dispatcher that starts revives schedules that failed elsewhere for lack of their zone")
    func revived() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            let schedules = dispatcher.database.schedules
            var schedule = Schedule(
                id: NotificationID(high: 1, low: 1), fields: [("user", Array("ada".utf8))],
                dueAt: TestDispatcher.now, createdAt: TestDispatcher.now)
            schedule.cron = "0 9 * * *"
            schedule.zone = "Europe/Berlin"
            _ = try await schedules.add([schedule])
            let stored = try #require(try await schedules.find(schedule.id))
            try await schedules.fail(stored, reason: "zone: Europe/Berlin is not in the machine's time-zone data")
            try await schedules.recordZoneVersion(dispatcher.zones.database.version)
            var state = ZoneWatch.State()
            try await ZoneWatch(dispatcher: dispatcher).look(&state)
            let revived = try #require(try await schedules.find(schedule.id))
            #expect(revived.state == .waiting && revived.dueAt > TestDispatcher.now)
        }
    }
}

@Suite(.timeLimit(.minutes(10)))
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

    @Test("ignores an answer that took too long, unless none was faster")
    func late() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start + .seconds(7_200), at: begin)
        clock.set(Self.start, asked: begin, answered: begin + .seconds(2))
        #expect(clock.now(at: begin + .seconds(2)) == Self.start + .seconds(1))
        let asked = begin + .seconds(3)
        #expect(clock.set(Self.start + .seconds(99), asked: asked, answered: asked + .seconds(3)) == nil)
        #expect(clock.now(at: asked) == Self.start + .seconds(2))
        clock.set(Self.start + .seconds(99), asked: asked, answered: asked + .seconds(1))
        #expect(clock.now(at: asked + .milliseconds(500)) == Self.start + .seconds(99))
        clock.set(Self.start, asked: asked, answered: asked)
        #expect(clock.set(Self.start + .seconds(99), asked: asked, answered: asked + .seconds(1)) == nil)
        #expect(clock.now(at: asked) == Self.start)
    }

    @Test("starts with a second answer if the first came too late")
    func lateStart() async throws {
        try await TestDatabase.with { database in
            let database = Database(database.pool)
            let begin = ContinuousClock.now
            let end = begin + .seconds(7_200)
            // The process stalls between its first question and the answer.
            let instants = Mutex([begin, end])
            let clock = SteadyClock(Self.start, at: begin)
            let service = ClockService(
                clock: clock, database: database, machine: Timestamp.now,
                instant: { instants.withLock { $0.count > 1 ? $0.removeFirst() : end } }, logger: TestLog.logger)
            let earliest = try await database.clock()
            await service.start()
            let latest = try await database.clock()
            #expect(earliest <= clock.now(at: end) && clock.now(at: end) <= latest)
        }
    }

    @Test("starts after a few answers even if all come late")
    func lateAnswers() async throws {
        try await TestDatabase.with { database in
            let begin = ContinuousClock.now
            // Each look at the clock is a minute after the one before.
            let looks = Mutex(0)
            let clock = SteadyClock(Self.start, at: begin)
            let service = ClockService(
                clock: clock, database: Database(database.pool), machine: Timestamp.now,
                instant: {
                    looks.withLock { looks in
                        looks += 1
                        return begin + .seconds(60 * looks)
                    }
                }, logger: TestLog.logger)
            await service.start()
            #expect(!clock.isPrecise)
            #expect(looks.withLock { $0 } == 10)
        }
    }

    @Test("follows another clock that is set back")
    func back() {
        let begin = ContinuousClock.now
        let clock = SteadyClock(Self.start, at: begin)
        clock.set(Self.start + .seconds(-3_600), asked: begin, answered: begin)
        #expect(clock.now(at: begin) == Self.start + .seconds(-3_600))
    }
}
