// Carillon · CancelledEventTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import NIOPosix
import Operations
import Storage
import Support
import Synchronization
import Testing

@testable import Pipeline

/// Events for sockets whose job is cancelled before they are sent.
@Suite(.timeLimit(.minutes(10)))
struct CancelledEventTests {
    private struct Scene {
        let dispatcher: Dispatcher
        let pool: PostgresPool
        let heard: HeardFrames
        let advance: @Sendable (Int64) -> Void

        func fire() async throws -> Int { try await ScheduleFiring(dispatcher: self.dispatcher).fireDue(.normal) }

        func schedules() async throws -> Int { try await self.pool.query("SELECT FROM carillon.schedules").count }

        /// Returns the names of the events that a node has heard by now.
        func sent() async throws -> [String] {
            let body = StoredBatch.body("last \(NotificationID.random())", Array("[]".utf8))
            let last = NodeFrame(kind: .event, user: "", body: body, everyoneBut: [])
            try await Router(dispatcher: self.dispatcher).publish([last])
            try await eventually("the last event comes") { self.heard.frames.last?.body == body }
            let names = try self.heard.frames.map { try JSONParser.parse($0.body)["name"]?.string ?? "" }
            return names.filter { !$0.hasPrefix("last ") }
        }
    }

    private static func with(_ body: (Scene) async throws -> Void) async throws {
        let seconds = Mutex<Int64>(0)
        try await TestDispatcher.with(
            now: { TestDispatcher.now + .seconds(seconds.withLock { $0 }) }
        ) { dispatcher, database in
            let heard = HeardFrames()
            let subscription = try RedisSubscription(
                try await TestRedis.configuration(), channels: [dispatcher.keys.allNodesChannel],
                on: MultiThreadedEventLoopGroup.singleton.next(), logger: TestLog.logger
            ) { heard.note($0) }
            try await eventually("the node listens") { heard.isReady }
            try await body(
                Scene(
                    dispatcher: dispatcher, pool: database.pool, heard: heard,
                    advance: { count in seconds.withLock { $0 += count } }))
            await subscription.close()
        }
    }

    /// Returns the schedule of an event for everyone, as a call makes it.
    private static func schedule(_ number: UInt64, event: String, at due: Timestamp) -> Schedule {
        Schedule(
            id: NotificationID(high: 1, low: number),
            fields: [("all", Array("true".utf8)), ("event", Array(event.utf8))],
            dueAt: due, createdAt: TestDispatcher.now - .seconds(86_400))
    }

    @Test("an event that waits for its moment is removed when its job is cancelled, however often it is scheduled")
    func waiting() async throws {
        try await Self.with { scene in
            let dispatcher = scene.dispatcher
            let schedules = ["cancelled", "kept"].enumerated().map { number, event in
                var schedule = Self.schedule(
                    UInt64(number + 1), event: event, at: TestDispatcher.now + .seconds(3_600))
                schedule.jobID = event
                schedule.fields.append(("id", Array(event.utf8)))
                return schedule
            }
            for schedule in schedules {
                #expect(try await dispatcher.database.schedules.put(schedule, limit: 10) == .stored)
            }
            let control = JobControl(
                dispatcher.database, FramePublisher(dispatcher.live, presence: dispatcher.presence),
                keys: dispatcher.keys, events: EventPublisher(), now: dispatcher.clock.now, logger: dispatcher.logger)
            let report = try #require(try await control.cancel(.init(org: "", id: "cancelled")))
            var writer = JSONWriter()
            JobControl.Report.cancellationShape.write(report, to: &writer)
            let answer = try JSONParser.parse(writer.bytes)
            #expect(answer["status"]?.string == "cancelled" && answer["final"]?.bool == true)
            #expect(answer["cancelled"] == .null && answer["too_late"] == .null)
            for _ in 0..<2 {
                #expect(try await scene.fire() == 0)
                #expect(try await scene.schedules() == 1)
                // The same call again.
                #expect(try await dispatcher.database.schedules.put(schedules[0], limit: 10) == .stored)
            }
            scene.advance(7_200)
            #expect(try await scene.fire() == 1)
            #expect(try await scene.schedules() == 0)
            let sent = try await scene.sent()
            #expect(sent == ["kept"])
        }
    }

    @Test("an occurrence that was cancelled sends no event, and the schedule goes on")
    func recurring() async throws {
        try await Self.with { scene in
            // It is 11:06:40 UTC.
            let due = TestDispatcher.now - .seconds(40)
            let schedules = ["cancelled", "kept"].enumerated().map { number, event in
                var schedule = Self.schedule(UInt64(number + 1), event: event, at: due)
                schedule.cron = "6 11 * * *"
                schedule.zone = "UTC"
                return schedule
            }
            _ = try await scene.dispatcher.database.schedules.add(schedules)
            try await scene.dispatcher.database.cancellations.record(
                .init(org: "", id: "\(schedules[0].id)/\(due.milliseconds)"), at: TestDispatcher.now)
            #expect(try await scene.fire() == 2)
            let sent = try await scene.sent()
            #expect(sent == ["kept"])
            scene.advance(86_400)
            #expect(try await scene.fire() == 2)
            let later = try await scene.sent()
            #expect(later.sorted() == ["cancelled", "kept", "kept"])
        }
    }

    @Test("an event that comes from a lane or an overflow after its cancellation is not sent")
    func late() async throws {
        try await Self.with { scene in
            let dispatcher = scene.dispatcher
            let stream = dispatcher.keys.jobs(.normal)
            let millisecond = TestDispatcher.now.milliseconds
            let moved = (JobOrigin.movedField, "\(stream)/\(millisecond)-9")
            let jobs = [
                [("id", "a")], [("id", "a"), ("org", "other")], [], [], [("user", "ada"), moved],
            ]
            let entries = jobs.enumerated().map { number, job in
                let audience = job.contains { $0.0 == "user" } ? [] : [("all", "true")]
                return StreamEntry(
                    id: "\(millisecond)-\(number)",
                    fields: ([("event", "\(number)")] + audience + job).map { ($0.0, Array($0.1.utf8)[...]) })
            }
            for id in ["a", "\(millisecond)-2", "\(stream)/\(millisecond)-9"] {
                try await dispatcher.database.cancellations.record(.init(org: "", id: id), at: TestDispatcher.now)
            }
            let stored = try await JobIntake(dispatcher: dispatcher).store(
                LaneBatch(lane: .normal, group: dispatcher.group(stream), entries: entries))
            #expect(stored.events.map(\.entry) == [entries[1].id, entries[3].id])
            #expect(stored.toAcknowledge.count == jobs.count && stored.dead.isEmpty)
        }
    }
}
