// Carillon · ScheduleServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Operations
import ServiceLifecycle
import Storage
import Support
import Synchronization
import Testing

@testable import Pipeline

/// The batches of several lanes at once.
@Suite(.timeLimit(.minutes(10)))
struct ScheduleServiceTests {
    private static func schedule(_ number: Int, of user: String, _ lane: Lane = .normal) -> Schedule {
        var schedule = Schedule(
            id: NotificationID(high: 1, low: UInt64(number)),
            fields: [("user", Array(user.utf8)), ("type", Array("news".utf8)), ("title", Array("Now".utf8))],
            dueAt: TestDispatcher.now - .seconds(user == "ben" ? 1 : 2), createdAt: TestDispatcher.now - .seconds(60))
        schedule.lane = lane
        return schedule
    }

    @Test("a lane that cannot be claimed does not cancel another's batch")
    func failing() async throws {
        try await TestDispatcher.with { dispatcher, database in
            func query(_ sql: String) async throws -> Int { try await database.pool.query(sql).count }
            // Ben's batch comes after a full one.
            let full = (1...ScheduleStore.claimSize).map { Self.schedule($0, of: "ada") }
            let rest = [Self.schedule(1_001, of: "ben"), Self.schedule(1_002, of: "ada", .bulk)]
            _ = try await dispatcher.database.schedules.add(full + rest)
            _ = try await query("CREATE SEQUENCE carillon.refusals")
            _ = try await query(
                """
                CREATE FUNCTION carillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN PERFORM nextval('carillon.refusals'); RAISE EXCEPTION 'refused'; END $$
                """)
            _ = try await query(
                """
                CREATE TRIGGER refuse BEFORE UPDATE ON carillon.schedules FOR EACH ROW
                WHEN (OLD.lane = \(Lane.bulk.rank)) EXECUTE FUNCTION carillon.refuse()
                """)
            let service = ScheduleService(dispatcher: dispatcher, highWaterMark: 100_000)
            let running = Task { try await service.run() }
            defer { running.cancel() }
            try await database.pool.transaction { transaction in
                // Ben's batch waits for this inbox.
                try await transaction.query("INSERT INTO carillon.inboxes (user_id) VALUES ('ben')")
                try await eventually("the bulk lane is refused") {
                    try await query("SELECT FROM carillon.refusals WHERE is_called") == 1
                }
            }
            try await eventually("Ben is notified") {
                try await query("SELECT FROM carillon.notifications WHERE user_id = 'ben'") == 1
            }
        }
    }

    @Test("an urgent job fires while a batch of another lane is being stored")
    func urgent() async throws {
        try await TestDispatcher.with { dispatcher, database in
            func query(_ sql: String) async throws -> Int { try await database.pool.query(sql).count }
            _ = try await dispatcher.database.schedules.add([Self.schedule(1, of: "ben", .bulk)])
            let service = ScheduleService(dispatcher: dispatcher, highWaterMark: 100_000)
            try await database.pool.transaction { transaction in
                // Ben's batch waits for this inbox.
                try await transaction.query("INSERT INTO carillon.inboxes (user_id) VALUES ('ben')")
                let running = Task { try await service.run() }
                defer { running.cancel() }
                try await eventually("Ben's batch is claimed") {
                    try await query("SELECT FROM carillon.schedules WHERE attempts = 1") == 1
                }
                _ = try await dispatcher.database.schedules.add([Self.schedule(2, of: "ada", .critical)])
                dispatcher.alarms.schedules[Lane.critical.rank].schedule(at: dispatcher.now())
                try await eventually("Ada is notified") {
                    try await query("SELECT FROM carillon.notifications WHERE user_id = 'ada'") == 1
                }
            }
        }
    }

    @Test(
        "pages of broadcasts wait while their lane is full or cannot be read, and other jobs do not",
        arguments: [true, false])
    func fullLane(isReadable: Bool) async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, database in
            func notified() async throws -> [String] {
                let rows = try await database.pool.query("SELECT user_id FROM carillon.notifications ORDER BY user_id")
                return try rows.map { try $0.text(0) }
            }
            let stream = dispatcher.keys.deliveries(.fcm, .normal)
            if isReadable {
                try await dispatcher.redis.send("XADD", .text(stream), "*", "d", "1")
            } else {
                // Redis answers with an error, because it is no stream.
                try await dispatcher.redis.send("SET", .text(stream), "d")
            }
            var page = Self.schedule(1, of: "ben")
            page.jobID = "b"
            page.part = "UTC 0/0 hash"
            page.source = "jobs/\(TestDispatcher.now.milliseconds)-1"
            _ = try await dispatcher.database.schedules.add([page, Self.schedule(2, of: "ada")])
            let service = ScheduleService(dispatcher: dispatcher, highWaterMark: 1)
            let running = Task { try await service.run() }
            defer { running.cancel() }
            try await eventually("the job is sent") { try await !notified().isEmpty }
            #expect(try await notified() == ["ada"])
            try await dispatcher.redis.send("DEL", .text(stream))
            dispatcher.alarms.schedules[Lane.normal.rank].schedule(at: dispatcher.now())
            try await eventually("the page is sent") { try await notified() == ["ada", "ben"] }
        }
    }

    /// Fires a batch, and notes when a shutdown begins.
    private final class LastBatch: Service {
        let dispatcher: Dispatcher
        let isStopping = Mutex(false)

        init(_ dispatcher: Dispatcher) {
            self.dispatcher = dispatcher
        }

        func run() async throws {
            async let firing = ScheduleFiring(dispatcher: self.dispatcher).fireDue(.normal)
            try await gracefulShutdown()
            self.isStopping.withLock { $0 = true }
            _ = try await firing
        }
    }

    @Test("a shutdown ends a batch after the slice that is being stored; the rest is due again")
    func shutdown() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let schedules = (0..<3).map { number in
                let users = (0..<1_000).map { "\"u\(1_000 * number + $0)\"" }.joined(separator: ",")
                var schedule = Self.schedule(number, of: "ada")
                schedule.fields[0] = (name: "users", value: Array("[\(users)]".utf8))
                return schedule
            }
            _ = try await dispatcher.database.schedules.add(schedules)
            let batch = LastBatch(dispatcher)
            let group = ServiceGroup(
                configuration: ServiceGroupConfiguration(services: [.init(service: batch)], logger: TestLog.logger))
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                try await database.pool.transaction { transaction in
                    // The first slice waits for this inbox.
                    try await transaction.query("INSERT INTO carillon.inboxes (user_id) VALUES ('u7')")
                    tasks.addTask { try await group.run() }
                    try await eventually("the slice waits") {
                        try await transaction.query("SELECT pg_stat_clear_snapshot()")
                        return try await transaction.query(
                            """
                            SELECT FROM pg_stat_activity
                            WHERE datname = current_database() AND wait_event_type = 'Lock'
                            """
                        ).count == 1
                    }
                    await group.triggerGracefulShutdown()
                    try await eventually("the shutdown has begun") { batch.isStopping.withLock { $0 } }
                }
                try await tasks.waitForAll()
            }
            func count(_ table: String) async throws -> Int {
                try await database.pool.query("SELECT FROM carillon.\(table)").count
            }
            #expect(try await count("notifications") == 2_000)
            #expect(try await count("schedules") == 1)
        }
    }
}
