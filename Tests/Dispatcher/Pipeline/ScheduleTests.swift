// Carillon · ScheduleTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Logging
import Operations
import Storage
import Support
import Synchronization
import Testing

@testable import Pipeline

/// Scheduled jobs whose entries are taken again after they fired, because their acknowledgement got
/// lost.
@Suite(.timeLimit(.minutes(10)))
struct ScheduledJobTests {
    /// A batch with an entry that was appended at ``TestDispatcher/now``, 11:06:40 UTC.
    private static func batch(_ fields: [(String, String)], of dispatcher: Dispatcher) -> LaneBatch {
        let entry = StreamEntry(
            id: "\(TestDispatcher.now.milliseconds)-0",
            fields: ([("type", "news"), ("title", "Later")] + fields).map { ($0.0, Array($0.1.utf8)[...]) })
        let group = dispatcher.group(dispatcher.keys.jobs(.normal))
        return LaneBatch(lane: .normal, group: group, entries: [entry])
    }

    /// Takes an entry before and after its moment, and fires in between or at the end.
    private static func notified(
        _ fields: [(String, String)],
        isLocal: Bool = false,
        firesFirst: Bool
    ) async throws -> (notifications: Int, broadcasts: Int, dead: [String]) {
        let seconds = Mutex<Int64>(0)
        return try await TestDispatcher.with(
            now: { TestDispatcher.now + .seconds(seconds.withLock { $0 }) }
        ) { dispatcher, database in
            let due = (TestDispatcher.now + .seconds(60)).rfc3339
            // The clock of a user without a zone is UTC.
            let moment = isLocal ? ("deliver_local", String(due.dropFirst(11).prefix(5))) : ("deliver_at", due)
            let batch = Self.batch([moment] + fields, of: dispatcher)
            var again = batch
            again.areRepeats = true
            let intake = JobIntake(dispatcher: dispatcher)
            var dead = try await intake.store(batch).dead
            seconds.withLock { $0 += 120 }
            if firesFirst { _ = try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) }
            dead += try await intake.store(again).dead
            // An entry for a local time may wait once more, and is due at once.
            _ = try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal)
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

    @Test("a scheduled job notifies once, with or without an id", arguments: [nil, "job-1"], [true, false])
    func once(id: String?, firesFirst: Bool) async throws {
        let fields = [("user", "ada")] + (id.map { [("id", $0)] } ?? [])
        for isLocal in [false, true] {
            let result = try await Self.notified(fields, isLocal: isLocal, firesFirst: firesFirst)
            #expect(result.notifications == 1)
            #expect(result.dead.isEmpty)
        }
    }

    @Test(
        "a job for a time of day that is stored after it fires at once, and has expired after its time to live",
        arguments: [(3_600, false), (2 * 86_400, true)] as [(Int64, Bool)])
    func storedLate(after delay: Int64, isExpired: Bool) async throws {
        try await TestDispatcher.with(now: { TestDispatcher.now + .seconds(delay) }) { dispatcher, database in
            let batch = Self.batch([("user", "ada"), ("deliver_local", "11:30")], of: dispatcher)
            let dead = try await JobIntake(dispatcher: dispatcher).store(batch).dead
            #expect(dead.isEmpty)
            #expect(try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) == 1)
            let rows = try await database.pool.query("SELECT status = 'expired' FROM carillon.notifications")
            #expect(try rows.map { try $0.bool(0) } == [isExpired])
        }
    }

    @Test("a traceparent is stored with a scheduled job or a broadcast unless it is too long", arguments: [128, 129])
    func longTrace(length: Int) async throws {
        try await TestDispatcher.with { dispatcher, database in
            let trace = ("traceparent", String(repeating: "0", count: length))
            for fields in [[("user", "ada"), ("deliver_local", "11:30")], [("topic", "goals")]] {
                let batch = Self.batch(fields + [trace], of: dispatcher)
                #expect(try await JobIntake(dispatcher: dispatcher).store(batch).dead.isEmpty)
            }
            for table in ["schedules", "broadcasts"] {
                let rows = try await database.pool.query(
                    "SELECT fields::text LIKE '%traceparent%' FROM carillon.\(table)")
                #expect(try rows.map { try $0.bool(0) } == [length <= 128], "\(table)")
            }
        }
    }

    @Test("a job that is stored after its deliver_at counts from that moment", arguments: ["user", "topic"])
    func counted(audience: String) async throws {
        try await TestDispatcher.with(now: { TestDispatcher.now + .seconds(7_200) }) { dispatcher, database in
            let due = TestDispatcher.now + .seconds(1_800)
            let batch = Self.batch([(audience, "ada"), ("deliver_at", due.rfc3339)], of: dispatcher)
            let dead = try await JobIntake(dispatcher: dispatcher).store(batch).dead
            #expect(dead.isEmpty)
            let table = audience == "user" ? "notifications" : "broadcasts"
            let rows = try await database.pool.query("SELECT created_at FROM carillon.\(table)")
            #expect(try rows.map { Timestamp(microseconds: try $0.timestamptz(0)) } == [due])
        }
    }

    @Test("an occurrence in the recipients' zones fires however late it is if an operator replays it")
    func replayedLate() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let origin = "\(ScheduleFiring.stream)/\(TestDispatcher.now.milliseconds)-7"
            let batch = Self.batch(
                [("user", "ada"), ("deliver_local", "2026-11-18T08:00"), (JobOrigin.replayField, origin)],
                of: dispatcher)
            let dead = try await JobIntake(dispatcher: dispatcher).store(batch).dead
            #expect(dead.isEmpty)
            #expect(try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) == 1)
            #expect(try await database.pool.query("SELECT FROM carillon.notifications").count == 1)
        }
    }

    @Test("the log names a job by its first entry, also when it fires")
    func logged() async throws {
        let seconds = Mutex<Int64>(0)
        let lines = LogRecorder(from: .debug) { event in
            let places = ["redis.stream", "job.entry"].compactMap { event.metadata?[$0]?.description }
            return (["\(event.message)"] + places).joined(separator: " ")
        }
        try await TestDispatcher.with(
            now: { TestDispatcher.now + .seconds(seconds.withLock { $0 }) }, logger: lines.logger
        ) { dispatcher, _ in
            let due = (TestDispatcher.now + .seconds(60)).rfc3339
            let batch = Self.batch([("user", "ada"), ("deliver_at", due)], of: dispatcher)
            _ = try await JobIntake(dispatcher: dispatcher).store(batch)
            seconds.withLock { $0 += 120 }
            #expect(try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) == 1)
            let stored = lines.all.filter { $0.hasPrefix("job stored") }
            #expect(stored == ["job stored \(batch.group.stream) \(batch.entries[0].id)"])
        }
    }

    @Test("a notification that was snoozed after its job was cancelled comes back")
    func snoozed() async throws {
        try await TestDispatcher.with { dispatcher, database in
            var schedule = Schedule(
                id: NotificationID(high: 1, low: 1),
                fields: [("user", Array("ada".utf8)), ("type", Array("news".utf8)), ("title", Array("Again".utf8))],
                dueAt: TestDispatcher.now, createdAt: TestDispatcher.now - .seconds(60))
            schedule.source = "snooze//j"
            for id in ["snooze", "j"] {
                try await dispatcher.database.cancellations.record(.init(org: "", id: id), at: TestDispatcher.now)
            }
            _ = try await dispatcher.database.schedules.add([schedule])
            #expect(try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) == 1)
            let rows = try await database.pool.query(
                "SELECT status <> 'cancelled' AND job_entry = 'snooze//j' FROM carillon.notifications")
            #expect(try rows.map { try $0.bool(0) } == [true])
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

/// Broadcasts whose users get them at their local time.
@Suite(.timeLimit(.minutes(10)))
struct LocalBroadcastTests {
    /// A dispatcher with a broadcast that was created at ``TestDispatcher/now``, 11:06:40 UTC.
    private struct Scene {
        let dispatcher: Dispatcher
        let pool: PostgresPool
        private let seconds: @Sendable (Int64) -> Void

        init(_ dispatcher: Dispatcher, _ pool: PostgresPool, seconds: @escaping @Sendable (Int64) -> Void) {
            self.dispatcher = dispatcher
            self.pool = pool
            self.seconds = seconds
        }

        /// Sets the clock to `seconds` after the broadcast's creation.
        func advance(to seconds: Int64) { self.seconds(seconds) }

        func expand() async throws {
            try await BroadcastExpansion(dispatcher: self.dispatcher, highWaterMark: 1_000).work()
        }

        func fireAll(hasRoom: Bool = true) async throws {
            while try await ScheduleFiring(dispatcher: self.dispatcher).fireDue(.normal, hasRoom: hasRoom) > 0 {}
        }

        func number(_ sql: String) async throws -> Int64 { try await self.pool.query(sql).first?.int8(0) ?? -1 }

        /// Returns how many users count with a reason.
        func counted(_ reason: String) async throws -> Int64 {
            try await self.number(
                "SELECT coalesce(sum((counted ->> '\(reason)')::int8), 0)::int8 FROM carillon.broadcast_pages")
        }

        /// Returns how many users count as having a notification.
        func stored() async throws -> Int64 {
            try await self.number("SELECT sum(stored)::int8 FROM carillon.broadcast_pages")
        }
    }

    private static func with(
        _ local: String,
        stream: String = "jobs",
        topic: String? = nil,
        isOnByDefault: Bool = true,
        _ body: (Scene) async throws -> Void
    ) async throws {
        let seconds = Mutex<Int64>(0)
        var type = NotificationType(name: "news")
        type.isOnByDefault = isOnByDefault
        try await TestDispatcher.with(
            types: [type],
            now: { TestDispatcher.now + .seconds(seconds.withLock { $0 }) }
        ) { dispatcher, database in
            let audience = topic.map { ("topic", $0) } ?? ("all", "true")
            let fields = [audience, ("type", "news"), ("title", "Later"), ("deliver_local", local)].map {
                (name: $0.0, value: Array($0.1.utf8)[...])
            }
            let broadcast = Broadcast(
                id: NotificationID(high: 1, low: 1), org: "", jobID: nil,
                entry: "\(stream)/\(TestDispatcher.now.milliseconds)-1", stream: stream, fields: fields, topic: topic,
                lane: .normal, createdAt: TestDispatcher.now)
            let store = dispatcher.database.broadcasts
            #expect(try await store.add([broadcast]) == [.stored])
            let claimed = try #require(try await store.claim(.counting, by: "test"))
            try await store.counted(claimed, size: 1, isConfirmed: true)
            try await database.pool.query(
                "INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 40) n")
            if let topic {
                try await database.pool.query(
                    "INSERT INTO carillon.subscriptions (topic, user_id) SELECT $1, user_id FROM carillon.users",
                    .text(topic))
            }
            try await body(
                Scene(dispatcher, database.pool) { value in seconds.withLock { $0 = value } })
        }
    }

    @Test("a page that is repeated with other users reaches them all, once")
    func repeatedPage() async throws {
        try await Self.with("12:00") { scene in
            try await scene.expand()
            // The dispatcher died before the pages were committed, and the audience changed.
            for statement in [
                "DELETE FROM carillon.broadcast_pages",
                "UPDATE carillon.broadcast_chains SET pages = 0, reached = '', is_done = false",
                "DELETE FROM carillon.users WHERE user_id = 'u5'",
                "INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(41, 80) n",
            ] { try await scene.pool.query(statement) }
            try await scene.expand()
            scene.advance(to: 7_200)
            while try await ScheduleFiring(dispatcher: scene.dispatcher).fireDue(.normal) > 0 {}
            let sql = "FROM carillon.notifications"
            #expect(try await scene.number("SELECT count(*) \(sql)") == 80)
            #expect(try await scene.number("SELECT count(DISTINCT user_id) \(sql)") == 80)
            #expect(try await scene.number("SELECT count(*) FROM carillon.schedules") == 0)
            #expect(try await scene.number("SELECT count(*) FROM carillon.dead_letters") == 0)
        }
    }

    @Test("users who leave the topic before their local time get nothing, and count with that reason")
    func left() async throws {
        try await Self.with("12:00", topic: "offers at noon") { scene in
            try await scene.expand()
            #expect(try await scene.counted("scheduled") == 40)
            try await scene.pool.query("DELETE FROM carillon.subscriptions WHERE user_id IN ('u5', 'u6')")
            scene.advance(to: 3_300)
            try await scene.fireAll()
            let sql = "SELECT count(*) FROM carillon.notifications"
            #expect(try await scene.number(sql) == 38)
            #expect(try await scene.number("\(sql) WHERE user_id IN ('u5', 'u6')") == 0)
            #expect(try await scene.counted("left_topic") == 2)
            #expect(try await scene.counted("scheduled") == 0)
            #expect(try await scene.stored() == 38)
        }
    }

    @Test("users who are erased before their local time count as cancelled, also one alone in a page")
    func erased() async throws {
        try await Self.with("12:00") { scene in
            try await scene.pool.query("INSERT INTO carillon.user_settings (user_id, zone) VALUES ('u1', 'Asia/Tokyo')")
            try await scene.expand()
            let database = scene.dispatcher.database
            for user in ["u1", "u2"] {
                _ = try await database.users.erase(user: user)
                _ = try await database.schedules.erase(user: user)
            }
            #expect(try await scene.counted("scheduled") == 38)
            scene.advance(to: 3_300)
            try await scene.fireAll()
            #expect(try await scene.counted("cancelled") == 2)
            #expect(try await scene.counted("scheduled") == 0)
            #expect(try await scene.stored() == 38)
        }
    }

    @Test("users who do not want it at their local time are counted, and nothing is stored for them")
    func refused() async throws {
        try await Self.with("12:00", isOnByDefault: false) { scene in
            try await scene.expand()
            for statement in [
                "INSERT INTO carillon.preferences (user_id, type, in_app) VALUES ('u1', 'news', true)",
                "INSERT INTO carillon.user_settings (user_id, opted_out) VALUES ('u2', true)",
            ] { try await scene.pool.query(statement) }
            scene.advance(to: 3_300)
            try await scene.fireAll()
            let users = try await scene.pool.query("SELECT user_id FROM carillon.notifications")
            #expect(try users.map { try $0.text(0) } == ["u1"])
            for (reason, count) in [("not_opted_in", 38), ("opted_out", 1), ("scheduled", 0)] as [(String, Int64)] {
                #expect(try await scene.counted(reason) == count, "\(reason)")
            }
            #expect(try await scene.stored() == 1)
        }
    }

    @Test("users who have the job already when their local time comes count as duplicates")
    func duplicates() async throws {
        try await Self.with("12:00") { scene in
            try await scene.expand()
            let (broadcast, _) = try await Self.broadcast(scene.dispatcher)
            let fields = [("user", "u5"), ("type", "news"), ("title", "Later"), ("id", broadcast.job)]
            let entry = StreamEntry(
                id: "\(TestDispatcher.now.milliseconds)-9", fields: fields.map { ($0.0, Array($0.1.utf8)[...]) })
            let group = scene.dispatcher.group(scene.dispatcher.keys.jobs(.normal))
            _ = try await JobIntake(dispatcher: scene.dispatcher).store(
                LaneBatch(lane: .normal, group: group, entries: [entry]))
            scene.advance(to: 3_300)
            try await scene.fireAll()
            #expect(try await scene.counted("duplicate") == 1)
            #expect(try await scene.counted("scheduled") == 0)
            #expect(try await scene.stored() == 39)
        }
    }

    @Test("all pages mean the same day, even one that is stored after the time has passed")
    func sameDay() async throws {
        try await Self.with("12:00") { scene in
            scene.advance(to: 7_200)
            try await scene.expand()
            let rows = try await scene.pool.query("SELECT DISTINCT due_at FROM carillon.schedules")
            let moments = try rows.map { Timestamp(microseconds: try $0.timestamptz(0)) }
            #expect(moments == [TestDispatcher.now + .seconds(3_200)])
        }
    }

    /// Locks the parts of a broadcast, which nothing can wake meanwhile.
    private static let lockParts = "SELECT FROM carillon.schedules FOR UPDATE"
    private static let parts = "SELECT count(*) FROM carillon.schedules WHERE wake_at"

    @Test(
        "a cancelled broadcast stops before its parts are woken, which end though their lane is full",
        arguments: [true, false])
    func cancelled(hasRoom: Bool) async throws {
        try await Self.with("12:00") { scene in
            try await scene.expand()
            let dispatcher = scene.dispatcher
            let (_, name) = try await Self.broadcast(dispatcher)
            let control = JobControl(
                dispatcher.database, FramePublisher(dispatcher.live, presence: dispatcher.presence),
                keys: dispatcher.keys, events: EventPublisher(), now: dispatcher.clock.now, logger: dispatcher.logger)
            try await withThrowingTaskGroup(of: Void.self) { group in
                try await scene.pool.transaction { transaction in
                    try await transaction.query(Self.lockParts)
                    group.addTask { _ = try await control.cancel(name) }
                    try await eventually("it is stopped") { try await Self.state(transaction) == "cancelling" }
                }
                try await group.waitForAll()
            }
            #expect(try await scene.number("\(Self.parts) < due_at") > 0)
            #expect(try await scene.number("\(Self.parts) >= due_at") == 0)
            try await scene.fireAll(hasRoom: hasRoom)
            #expect(try await scene.counted("cancelled") == 40)
            #expect(try await scene.counted("scheduled") == 0)
        }
    }

    @Test("users of a cancelled page count as cancelled, also if it fires again after a crash")
    func cancelledBeforeCrash() async throws {
        try await Self.with("12:00") { scene in
            try await scene.expand()
            let (_, name) = try await Self.broadcast(scene.dispatcher)
            try await scene.dispatcher.database.cancellations.record(name, at: scene.dispatcher.now())
            scene.advance(to: 3_300)
            for statement in [
                "CREATE TABLE carillon.old_schedules AS TABLE carillon.schedules",
                "CREATE TABLE carillon.old_pages AS TABLE carillon.broadcast_pages",
            ] { try await scene.pool.query(statement) }
            try await scene.fireAll()
            // The dispatcher died before it settled them.
            for statement in [
                "INSERT INTO carillon.schedules OVERRIDING SYSTEM VALUE TABLE carillon.old_schedules",
                "DELETE FROM carillon.broadcast_pages",
                "INSERT INTO carillon.broadcast_pages TABLE carillon.old_pages",
            ] { try await scene.pool.query(statement) }
            #expect(try await scene.counted("scheduled") == 40)
            try await scene.fireAll()
            #expect(try await scene.counted("cancelled") == 40)
            #expect(try await scene.counted("scheduled") == 0)
            #expect(try await scene.stored() == 0)
        }
    }

    @Test("a broadcast's notifications are counted for no longer than the caller allows")
    func uncounted() async throws {
        try await Self.with("12:00") { scene in
            let dispatcher = scene.dispatcher
            let (_, name) = try await Self.broadcast(dispatcher)
            let control = JobControl(
                dispatcher.database, FramePublisher(dispatcher.live, presence: dispatcher.presence),
                keys: dispatcher.keys, events: EventPublisher(), now: dispatcher.clock.now, logger: dispatcher.logger)
            #expect(try await control.find(name, countingFor: .seconds(60))?.tally != nil)
            try await scene.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.notifications IN ACCESS EXCLUSIVE MODE")
                let report = try #require(try await control.find(name, countingFor: .seconds(1)))
                #expect(report.tally == nil && report.progress != nil)
            }
        }
    }

    @Test("a dispatcher ends the withdrawal of a broadcast only after it has woken the parts")
    func withdrawn() async throws {
        try await Self.with("12:00") { scene in
            try await scene.expand()
            let dispatcher = scene.dispatcher
            let (broadcast, name) = try await Self.broadcast(dispatcher)
            // The gateway that cancelled it ended before it woke the parts.
            try await dispatcher.database.cancellations.record(name, at: dispatcher.now())
            let isStopped = try await dispatcher.database.broadcasts.transition(
                broadcast, to: .cancelling, from: [.expanding])
            #expect(isStopped)
            try await withThrowingTaskGroup(of: Void.self) { group in
                try await scene.pool.transaction { transaction in
                    try await transaction.query(Self.lockParts)
                    group.addTask { try await BroadcastWithdrawal(dispatcher: dispatcher).work() }
                    try await eventually("it waits for the parts") { try await Self.isBlocking(transaction) }
                    #expect(try await Self.state(transaction) == "cancelling")
                }
                try await group.waitForAll()
            }
            #expect(try await dispatcher.database.broadcasts.find(name)?.broadcast.state == .cancelled)
            #expect(try await scene.number("\(Self.parts) < due_at") > 0)
            #expect(try await scene.number("\(Self.parts) >= due_at") == 0)
        }
    }

    /// Starts another broadcast, which is like `first`.
    private static func another(
        _ lane: Lane,
        like first: Broadcast,
        _ dispatcher: Dispatcher
    ) async throws -> Broadcast {
        let other = Broadcast(
            id: NotificationID(high: 2, low: 1), org: "", jobID: nil,
            entry: "jobs/\(TestDispatcher.now.milliseconds)-2", stream: "jobs", fields: first.fields, topic: nil,
            lane: lane, createdAt: TestDispatcher.now)
        let store = dispatcher.database.broadcasts
        #expect(try await store.add([other]) == [.stored])
        let claimed = try #require(try await store.claim(.counting, by: "test"))
        try await store.counted(claimed, size: 1, isConfirmed: true)
        return other
    }

    @Test("a broadcast does not wait for the end of an older one that had more turns")
    func turns() async throws {
        try await Self.with("12:00") { scene in
            let (first, _) = try await Self.broadcast(scene.dispatcher)
            try await scene.pool.query("UPDATE carillon.broadcast_chains SET pages = 8")
            let second = try await Self.another(.normal, like: first, scene.dispatcher)
            try await scene.expand()
            let earlier = try await scene.number(
                """
                SELECT count(*) FROM carillon.broadcast_pages
                WHERE broadcast = '\(second.id)'
                    AND at < (SELECT max(at) FROM carillon.broadcast_pages WHERE broadcast = '\(first.id)')
                """)
            #expect(earlier > 0)
            #expect(try await scene.counted("scheduled") == 80)
        }
    }

    @Test("a broadcast that failed continues when it is resumed, and its dead letter is removed")
    func resumed() async throws {
        try await Self.with("12:00") { scene in
            let dispatcher = scene.dispatcher
            let (_, name) = try await Self.broadcast(dispatcher)
            func setType(_ type: String) async throws {
                try await scene.pool.query(
                    "UPDATE carillon.broadcasts SET fields = jsonb_set(fields, '{1,1}', to_jsonb($1::text))",
                    .text(type))
            }
            try await setType("removed")
            try await scene.expand()
            func letters() async throws -> Int64 {
                try await scene.number("SELECT count(*) FROM carillon.dead_letters")
            }
            let state = try await Self.broadcast(dispatcher).0.state
            #expect(state == .failed)
            let before = try await letters()
            #expect(before == 1)
            try await setType("news")
            let control = JobControl(
                dispatcher.database, FramePublisher(dispatcher.live, presence: dispatcher.presence),
                keys: dispatcher.keys, events: EventPublisher(), now: dispatcher.clock.now, logger: dispatcher.logger)
            let answer = try await control.order(.resume, name)
            #expect(answer?.isApplied == true)
            let resumed = try await Self.broadcast(dispatcher).0
            #expect(resumed.state == .expanding && resumed.reason == nil)
            let after = try await letters()
            #expect(after == 0)
            try await scene.expand()
            #expect(try await scene.counted("scheduled") == 40)
        }
    }

    @Test("a broadcast that failed keeps its day when its dead letter is replayed")
    func replayed() async throws {
        try await Self.with("12:00") { scene in
            let dispatcher = scene.dispatcher
            let (broadcast, _) = try await Self.broadcast(dispatcher)
            try await dispatcher.database.broadcasts.fail(broadcast, reason: "type: is not in the catalog")
            scene.advance(to: 7_200)
            let origin = (name: JobOrigin.replayField, value: Array(broadcast.entry.utf8)[...])
            let entry = StreamEntry(id: "\(dispatcher.now().milliseconds)-0", fields: broadcast.fields + [origin])
            let group = dispatcher.group(dispatcher.keys.jobs(.normal))
            let dead = try await JobIntake(dispatcher: dispatcher).store(
                LaneBatch(lane: .normal, group: group, entries: [entry])
            ).dead
            #expect(dead.isEmpty)
            try await scene.expand()
            let scheduled = try await scene.counted("scheduled")
            #expect(scheduled == 40)
            let rows = try await scene.pool.query("SELECT DISTINCT due_at FROM carillon.schedules")
            let moments = try rows.map { Timestamp(microseconds: try $0.timestamptz(0)) }
            #expect(moments == [TestDispatcher.now + .seconds(3_200)])
        }
    }

    @Test("a broadcast that cannot be withdrawn does not delay the withdrawal of others")
    func stuckWithdrawal() async throws {
        try await Self.with("12:00") { scene in
            let dispatcher = scene.dispatcher
            let (first, _) = try await Self.broadcast(dispatcher)
            let second = try await Self.another(.bulk, like: first, dispatcher)
            for broadcast in [first, second] {
                let isStopped = try await dispatcher.database.broadcasts.transition(
                    broadcast, to: .cancelling, from: [.expanding])
                #expect(isStopped)
            }
            for statement in [
                """
                CREATE FUNCTION carillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION 'refused'; END $$
                """,
                """
                CREATE TRIGGER refuse BEFORE UPDATE OF withdrawn_to ON carillon.broadcasts FOR EACH ROW
                WHEN (OLD.id = '\(first.id)') EXECUTE FUNCTION carillon.refuse()
                """,
            ] { try await scene.pool.query(statement) }
            try await BroadcastWithdrawal(dispatcher: dispatcher).work()
            let states = try await scene.pool.query("SELECT state FROM carillon.broadcasts ORDER BY id")
            #expect(try states.map { try $0.text(0) } == ["cancelling", "cancelled"])
        }
    }

    @Test("a broadcast that could not be withdrawn once is withdrawn before the end of a less urgent one")
    func withdrawalAgain() async throws {
        try await Self.with("12:00") { scene in
            let dispatcher = scene.dispatcher
            let (first, name) = try await Self.broadcast(dispatcher)
            try await scene.expand()
            scene.advance(to: 3_300)
            try await scene.fireAll()
            let second = try await Self.another(.critical, like: first, dispatcher)
            try await dispatcher.database.cancellations.record(name, at: dispatcher.now())
            for broadcast in [first, second] {
                let isStopped = try await dispatcher.database.broadcasts.transition(
                    broadcast, to: .cancelling, from: [.expanding])
                #expect(isStopped)
            }
            // Refuses the second until the first has begun, and the end of the first before the
            // second.
            for statement in [
                """
                CREATE FUNCTION carillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    IF EXISTS (
                        SELECT FROM carillon.broadcasts b WHERE b.id <> NEW.id AND b.state = 'cancelling'
                            AND CASE WHEN NEW.id = '\(second.id)' THEN b.withdrawn_to = ''
                                ELSE NEW.state = 'cancelled' END
                    ) THEN RAISE EXCEPTION 'refused'; END IF;
                    RETURN NEW;
                END $$
                """,
                """
                CREATE TRIGGER refuse BEFORE UPDATE OF withdrawn_to ON carillon.broadcasts FOR EACH ROW
                EXECUTE FUNCTION carillon.refuse()
                """,
            ] { try await scene.pool.query(statement) }
            var withdrawal = BroadcastWithdrawal(dispatcher: dispatcher)
            withdrawal.pageSize = 1
            try await withdrawal.work()
            let states = try await scene.pool.query("SELECT state FROM carillon.broadcasts")
            #expect(try states.map { try $0.text(0) } == ["cancelled", "cancelled"])
        }
    }

    @Test("the withdrawal of a large broadcast makes way for a more urgent one")
    func urgentWithdrawal() async throws {
        try await Self.with("12:00") { scene in
            let dispatcher = scene.dispatcher
            let (first, name) = try await Self.broadcast(dispatcher)
            try await scene.expand()
            scene.advance(to: 3_300)
            try await scene.fireAll()
            let second = try await Self.another(.critical, like: first, dispatcher)
            try await dispatcher.database.cancellations.record(name, at: dispatcher.now())
            let isStopped = try await dispatcher.database.broadcasts.transition(
                first, to: .cancelling, from: [.expanding])
            #expect(isStopped)
            // The second is cancelled when the first page of the first is withdrawn.
            for statement in [
                "CREATE TABLE carillon.ended (place serial, id uuid)",
                """
                CREATE FUNCTION carillon.follow() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    UPDATE carillon.broadcasts SET state = 'cancelling'
                    WHERE id = '\(second.id)' AND state = 'expanding' AND NEW.id <> id;
                    IF NEW.state = 'cancelled' THEN INSERT INTO carillon.ended (id) VALUES (NEW.id); END IF;
                    RETURN NULL;
                END $$
                """,
                """
                CREATE TRIGGER follow AFTER UPDATE OF withdrawn_to ON carillon.broadcasts FOR EACH ROW
                EXECUTE FUNCTION carillon.follow()
                """,
            ] { try await scene.pool.query(statement) }
            var withdrawal = BroadcastWithdrawal(dispatcher: dispatcher)
            withdrawal.pageSize = 1
            try await withdrawal.work()
            let ended = try await scene.pool.query("SELECT id::text FROM carillon.ended ORDER BY place")
            #expect(try ended.map { try $0.text(0) } == [second.id.description, first.id.description])
        }
    }

    @Test("no part of a page is stored once the broadcast is paused")
    func paused() async throws {
        try await Self.with("12:00") { scene in
            let (broadcast, _) = try await Self.broadcast(scene.dispatcher)
            try await withThrowingTaskGroup(of: Void.self) { group in
                try await scene.pool.transaction { transaction in
                    // The lock that a pause takes.
                    try await transaction.query(
                        "SELECT pg_advisory_xact_lock(hashtextextended($1, 7))",
                        .text("carillon.broadcasts \(broadcast.id)"))
                    group.addTask { try await scene.expand() }
                    try await eventually("a page waits for the pause") { try await Self.isBlocking(transaction) }
                    try await transaction.query("UPDATE carillon.broadcasts SET state = 'paused'")
                }
                try await group.waitForAll()
            }
            #expect(try await scene.number("SELECT count(*) FROM carillon.schedules") == 0)
            #expect(try await scene.number("SELECT count(*) FROM carillon.broadcast_pages") == 0)
        }
    }

    /// Whether another connection waits for a lock.
    private static func isBlocking(_ transaction: PostgresTransaction) async throws -> Bool {
        // A transaction sees the same activity until then.
        try await transaction.query("SELECT pg_stat_clear_snapshot()")
        return try await transaction.query(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).count == 1
    }

    /// Returns the only broadcast, and the name of its job.
    private static func broadcast(_ dispatcher: Dispatcher) async throws -> (Broadcast, CancellationStore.Name) {
        let all = try await dispatcher.database.broadcasts.list(before: nil, state: nil, limit: 1)
        let broadcast = try #require(all.first).broadcast
        return (broadcast, CancellationStore.Name(org: broadcast.org, id: broadcast.job))
    }

    /// Returns the state of the only broadcast, as committed.
    private static func state(_ transaction: PostgresTransaction) async throws -> String? {
        try await transaction.query("SELECT state FROM carillon.broadcasts").first?.text(0)
    }

    @Test(
        "an occurrence that was split in time fires up to an hour late; a single job fires however late",
        arguments: [(ScheduleFiring.stream, 6_700, 40), (ScheduleFiring.stream, 6_900, 0), ("jobs", 6_900, 40)]
            as [(String, Int64, Int64)])
    func firedLate(stream: String, seconds: Int64, count: Int64) async throws {
        try await Self.with("12:00", stream: stream) { scene in
            try await scene.expand()
            // Noon comes after 3,200 s.
            scene.advance(to: seconds)
            while try await ScheduleFiring(dispatcher: scene.dispatcher).fireDue(.normal) > 0 {}
            #expect(try await scene.number("SELECT count(*) FROM carillon.notifications") == count)
            #expect(try await scene.number("SELECT count(*) FROM carillon.schedules") == 0)
            #expect(try await scene.stored() == count)
            #expect(try await scene.counted("missed") == 40 - count)
            #expect(try await scene.counted("scheduled") == 0)
        }
    }

    @Test(
        "an occurrence that waits for its full lane fires however late, unless it was missed before",
        arguments: [(3_300, 40), (6_900, 0)] as [(Int64, Int64)])
    func heldLate(seconds: Int64, count: Int64) async throws {
        try await Self.with("12:00", stream: ScheduleFiring.stream) { scene in
            try await scene.expand()
            scene.advance(to: seconds)
            let fired = try await ScheduleFiring(dispatcher: scene.dispatcher).fireDue(.normal, hasRoom: false)
            #expect(fired == 0)
            scene.advance(to: 9_000)
            try await scene.fireAll()
            #expect(try await scene.number("SELECT count(*) FROM carillon.notifications") == count)
            #expect(try await scene.number("SELECT count(*) FROM carillon.schedules") == 0)
        }
    }

    @Test("the log names a schedule that skips an occurrence because it was missed by over an hour")
    func skipped() async throws {
        let lines = LogRecorder(from: .notice) { "\($0.metadata?["schedule.id"]?.description ?? "-"): \($0.message)" }
        try await TestDispatcher.with(logger: lines.logger) { dispatcher, database in
            // Due at nine, of 11:06:40.
            var schedule = Schedule(
                id: NotificationID(high: 1, low: 1),
                fields: [("user", Array("ada".utf8)), ("type", Array("news".utf8)), ("title", Array("Nine".utf8))],
                dueAt: TestDispatcher.now - .seconds(7_600), createdAt: TestDispatcher.now - .seconds(86_400))
            schedule.cron = "0 9 * * *"
            schedule.zone = "UTC"
            _ = try await dispatcher.database.schedules.add([schedule])
            #expect(try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) == 1)
            #expect(
                lines.all == ["\(schedule.id): schedule is over an hour late; skipped to its next occurrence"])
            #expect(try await database.pool.query("SELECT FROM carillon.notifications").isEmpty)
        }
    }

    @Test("an occurrence that fired by its zone's old rules does not fire again when the new ones show its time")
    func newRules() async throws {
        try await TestDispatcher.with { dispatcher, _ in
            // The zone was an hour ahead of UTC when the schedule became due, at 11:06 UTC.
            let due = TestDispatcher.now - .seconds(40)
            var schedule = Schedule(
                id: NotificationID(high: 1, low: 1),
                fields: [("user", Array("ada".utf8)), ("type", Array("news".utf8)), ("title", Array("Noon".utf8))],
                dueAt: due, createdAt: due - .seconds(86_400))
            schedule.cron = "6 12 * * *"
            schedule.zone = "UTC"
            schedule.wall = WallTime(day: Int(due.seconds / 86_400), time: try #require(LocalTime("12:06")))
            let schedules = dispatcher.database.schedules
            _ = try await schedules.add([schedule])
            #expect(try await ScheduleFiring(dispatcher: dispatcher).fireDue(.normal) == 1)
            let next = try await schedules.find(schedule.id)
            #expect(next?.dueAt == due + .seconds(25 * 3_600))
        }
    }

    @Test("users whose occurrence passed over an hour ago are counted as missed")
    func missed() async throws {
        try await Self.with("2026-11-18T09:00", stream: ScheduleFiring.stream) { scene in
            for statement in [
                "INSERT INTO carillon.users (user_id) SELECT 'n' || n FROM generate_series(1, 3) n",
                """
                INSERT INTO carillon.user_settings (user_id, zone)
                SELECT 'n' || n, 'America/New_York' FROM generate_series(1, 3) n
                """,
            ] { try await scene.pool.query(statement) }
            try await scene.expand()
            for (reason, count) in [("missed", 40), ("scheduled", 3)] as [(String, Int64)] {
                let sql = "SELECT sum((counted ->> '\(reason)')::int8)::int8 FROM carillon.broadcast_pages"
                #expect(try await scene.number(sql) == count, "\(reason)")
            }
        }
    }
}
