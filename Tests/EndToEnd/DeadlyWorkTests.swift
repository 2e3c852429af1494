// Carillon · DeadlyWorkTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// Jobs that kill every dispatcher that handles them end as dead letters and take nothing with
/// them.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct DeadlyWorkTests {
    private static let reason = "three dispatchers died while they worked on it alone"

    @Test("jobs of a dead dispatcher are retried together, then alone; one that kills three is dead-lettered")
    func entries() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            // All were delivered together, two of them again alone: one killed three more
            // dispatchers, its neighbour two.
            let group = ConsumerGroup(stream: "carillon:jobs", consumer: "gone", connection: stack.connection)
            try await group.create()
            var entries: [String] = []
            for title in ["once", "with it", "deadly", "thrice"] {
                entries.append(
                    try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)]))
            }
            let taken = try await group.takeWaiting(count: 10)
            #expect(taken.map(\.id) == entries)
            for (entry, deliveries) in zip(entries, ["1", "1", "5", "4"]) {
                try await stack.connection.send(
                    "XCLAIM", "carillon:jobs", "dispatchers", "gone", "0", .text(entry), "IDLE", "60000",
                    "RETRYCOUNT", .text(deliveries), "JUSTID")
            }
            let deadly = entries[2]
            let pool = try #require(stack.database?.pool)
            // The lock stops storing, so the test can see what the dispatcher has taken.
            try await pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.inboxes IN ACCESS EXCLUSIVE MODE")
                _ = try await stack.startDispatcher()
                try await eventually("the dispatcher waits for the lock with an entry") {
                    let waiting = try await stack.query(
                        """
                        SELECT 1 FROM pg_locks l
                        JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                        WHERE NOT l.granted AND l.relation = 'carillon.inboxes'::regclass
                        """
                    )
                    let consumers = try await group.consumers()
                    return !waiting.isEmpty && consumers.contains { $0.name != "gone" && $0.pending > 0 }
                }
                let pending = try await group.consumers().map(\.pending).filter { $0 > 0 }
                // Both entries delivered once are in flight together.
                #expect(pending.sorted() == [2, 2])
            }
            try await eventually("the neighbours have come") { socket.titles.count >= 3 }
            try await eventually("the deadly one is set aside, and no other") {
                try await stack.deadReasons() == [deadly: Self.reason]
            }
            try await eventually("nothing is left of the dead dispatcher") {
                let length = try await stack.connection.send("XLEN", "carillon:jobs").integer()
                let names = try await group.consumers().map(\.name)
                return length == 0 && !names.contains("gone")
            }
            #expect(socket.titles == ["once", "with it", "thrice"])
            #expect(try await stack.deadReasons().count == 1)
        }
    }

    @Test("of schedules claimed together, only the one that killed three dispatchers alone is dead-lettered")
    func schedules() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            _ = try await stack.startDispatcher()
            let titles = ["once", "deadly", "twice"]
            for title in titles {
                try await stack.append([
                    ("user", "ada"), ("type", "invoice_created"), ("title", title),
                    ("deliver_at", Schedules.later(.seconds(3_600))),
                ])
            }
            try await eventually("they wait") { try await Schedules.count(stack) == titles.count }
            let store = ScheduleStore(pool: try #require(stack.database?.pool))
            // Dispatchers with clocks ahead claim all of them and die: one with the batch, five
            // with one alone.
            for alone in [nil, "deadly", "twice", "deadly", "twice", "deadly"] {
                var claimed: [String: Schedule] = [:]
                for lane in Lane.allCases {
                    for schedule in try await store.claim(lane, now: Schedules.now() + .seconds(7_200), hold: .zero) {
                        let title = schedule.fields.first { $0.name == "title" }?.value ?? []
                        claimed[String(decoding: title, as: UTF8.self)] = schedule
                    }
                }
                #expect(Set(claimed.keys) == Set(titles))
                guard let alone else { continue }
                let schedule = try #require(claimed[alone])
                #expect(try await store.beginAlone(schedule))
            }
            try await Schedules.makeDue(stack)
            try await eventually("nothing is left") { try await Schedules.count(stack) == 0 }
            try await eventually("the neighbours have come") { socket.titles.count >= 2 }
            try await eventually("the deadly one is set aside, and no other") {
                try await Array(stack.deadReasons().values) == [Self.reason]
            }
            let letters = try await stack.query("SELECT stream, fields::text FROM carillon.dead_letters")
            #expect(try letters.map { try $0.text(0) } == ["schedules"])
            #expect(try letters.first?.text(1).contains("deadly") == true)
            #expect(socket.titles.sorted() == ["once", "twice"])
        }
    }
}
