// Carillon · RecurringScheduleTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Recurring schedules: each occurrence fires once, at its zone's local time.
@Suite(.timeLimit(.minutes(10)))
struct RecurringScheduleTests {
    @Test("a recurring schedule fires each occurrence once with two dispatchers; an unknown zone stops only its own")
    func recurring() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Stack.token(user: "app", scope: .service)
            func create(_ title: String, zone: String) async throws -> String {
                let answer = try await gateway.call(
                    .post, "/v1/schedules", token: service,
                    json: #"""
                        {"cron":"* * * * *","zone":"\#(zone)",
                         "job":{"user":"ada","type":"invoice_created","title":"\#(title)"}}
                        """#
                )
                #expect(answer.status == 201)
                #expect(answer.body["next_at"]?.string?.hasSuffix(":00.000Z") == true)
                return try #require(answer.body["id"]?.string)
            }
            let kept = try await create("kept", zone: "Europe/Berlin")
            let lost = try await create("lost", zone: "Asia/Tokyo")
            try await stack.query(
                "UPDATE carillon.schedules SET zone = 'Asia/Atlantis' WHERE zone = 'Asia/Tokyo'")
            // Three missed minutes fire as one.
            try await stack.query(
                """
                UPDATE carillon.schedules SET due_at = date_trunc('minute', now()) - interval '2 minutes', wake_at = now()
                """
            )
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            let start = Schedules.now()
            _ = try await stack.startDispatcher(name: "one")
            _ = try await stack.startDispatcher(name: "two")
            try await eventually("it fired") { !socket.titles.isEmpty }
            try await eventually("the other has failed") {
                let answer = try await gateway.call(.get, "/v1/schedules/\(lost)", token: service)
                return answer.body["state"]?.string == "failed"
            }
            let failed = try await gateway.call(.get, "/v1/schedules/\(lost)", token: service)
            #expect(failed.body["state_reason"]?.string?.contains("Asia/Atlantis") == true)
            #expect(failed.body["next_at"] == .null)
            try await eventually("it has moved on") {
                let answer = try await gateway.call(.get, "/v1/schedules/\(kept)", token: service)
                return answer.body["last_fired_at"]?.string != nil
            }
            // One more for each minute that began meanwhile; each occurrence has its own id.
            let fired = socket.titles
            #expect(fired.count <= 1 + Schedules.now().seconds / 60 - start.seconds / 60)
            #expect(Set(fired) == ["kept"])
            let rows = try await stack.query(
                "SELECT count(*), count(DISTINCT job_id), min(job_id) FROM carillon.notifications")
            let row = try #require(rows.first)
            #expect(try row.int8(0) == row.int8(1))
            #expect(try row.text(2).hasPrefix(kept))
            #expect(try await gateway.call(.delete, "/v1/schedules/\(kept)", token: service).status == 204)
            #expect(try await gateway.call(.get, "/v1/schedules/\(kept)", token: service).status == 404)
        }
    }

    @Test("a change of time-zone data recomputes waiting moments, and a zone that returns is used again")
    func changedLaw() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Stack.token(user: "app", scope: .service)
            let zones = try TemporaryDirectory("zones")
            func install(_ zone: String, version: String) throws {
                for name in ["Asia/Tokyo", "UTC"] {
                    let file = URL(filePath: zones.path).appending(path: name)
                    try FileManager.default.createDirectory(
                        at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
                    let source = name == "UTC" ? name : zone
                    try Data(contentsOf: URL(filePath: "/usr/share/zoneinfo/\(source)")).write(to: file)
                }
                try Data("\(version)\n".utf8).write(to: URL(filePath: zones.path).appending(path: "+VERSION"))
            }
            func start(_ name: String) async throws -> ChildProcess {
                try await stack.startDispatcher(name: name, environment: ["TZDIR": zones.path, "LOG_FORMAT": "json"])
            }
            func moments() async throws -> [String] {
                try await stack.query(
                    """
                    SELECT to_char(due_at AT TIME ZONE 'UTC', 'HH24:MI') || ' ' || state FROM carillon.schedules
                    ORDER BY cron NULLS FIRST
                    """
                ).map { try $0.text(0) }
            }
            try install("Asia/Tokyo", version: "1")
            let answer = try await gateway.call(
                .post, "/v1/schedules", token: service,
                json: #"""
                    {"cron":"0 12 1 1 *","zone":"Asia/Tokyo","job":{"user":"ada","type":"invoice_created"}}
                    """#
            )
            #expect(answer.status == 201)
            let token = Stack.token(user: "ada")
            _ = try await gateway.call(.put, "/v1/settings", token: token, json: #"{"zone":"Asia/Tokyo"}"#)
            // Quiet hours for another user that hold now, with the old and the new time-zone data.
            func clock(_ minutes: Int) -> String { LocalTime(minutes: minutes % 1_440)?.description ?? "" }
            let minute = Int(Schedules.now().seconds) / 60 % 1_440
            let (tokyo, kathmandu) = (540, 345)
            let end = minute + tokyo + 60
            try await gateway.register(user: "bob", platform: "android", token: "bob-phone")
            try await gateway.set(
                #"""
                {"zone":"Asia/Tokyo",
                 "quiet_hours":{"start":"\#(clock(minute + kathmandu - 60))","end":"\#(clock(end))"}}
                """#,
                of: "bob")
            func release() async throws -> String? {
                // New time-zone data are applied within five minutes; make that due at once.
                try await stack.query(
                    """
                    UPDATE carillon.follow_ups SET due_at = now()
                    WHERE was_due_at IS NULL AND due_at < now() + interval '6 minutes'
                    """)
                return try await stack.query(
                    "SELECT to_char(due_at AT TIME ZONE 'UTC', 'HH24:MI') FROM carillon.follow_ups WHERE user_id = 'bob'"
                ).first?.text(0)
            }
            func logged(_ member: String, _ message: String, by process: ChildProcess) -> [String] {
                process.errors().split(separator: "\n").compactMap { line in
                    guard let line = try? JSONParser.parse(Array(line.utf8)), line["message"]?.string == message else {
                        return nil
                    }
                    return line[member]?.string
                }
            }
            let first = try await start("first")
            try await stack.append([("user", "bob"), ("type", "payment_received"), ("title", "later")])
            try await eventually("a push waits for the end of quiet hours") {
                try await release() == clock(end - tokyo)
            }
            try await stack.append([
                ("user", "ada"), ("type", "invoice_created"), ("deliver_local", "2099-01-01T08:00"),
            ])
            try await eventually("both wait") { try await moments() == ["23:00 waiting", "03:00 waiting"] }
            #expect(try await first.stop() == .code(0))
            #expect(logged("zones.version", "time-zone data loaded", by: first) == ["1"])

            // An hour and three quarters earlier.
            try install("Asia/Kathmandu", version: "2")
            let second = try await start("second")
            try await eventually("both follow") { try await moments() == ["02:15 waiting", "06:15 waiting"] }
            try await eventually("the push follows too") { try await release() == clock(end - kathmandu) }
            #expect(try await second.stop() == .code(0))
            #expect(logged("zones.version", "time-zone data loaded", by: second) == ["2"])
            #expect(logged("count", "due times recomputed", by: second) == ["2"])

            try FileManager.default.removeItem(at: URL(filePath: zones.path).appending(path: "Asia"))
            try Data("3\n".utf8).write(to: URL(filePath: zones.path).appending(path: "+VERSION"))
            let third = try await start("third")
            try await eventually("the recurring schedule has failed, the other keeps its time") {
                try await moments() == ["02:15 waiting", "06:15 failed"]
            }
            func shown(by dispatcher: ChildProcess) async throws -> Double? {
                let url = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
                return try await MetricsText.page("\(url)/metrics", stack).samples["carillon_schedules_failed"]
            }
            try await eventually("the gauge shows the failed one") { try await shown(by: third) == 1 }
            #expect(try await third.stop() == .code(0))

            try install("Asia/Tokyo", version: "4")
            let fourth = try await start("fourth")
            try await eventually("both are back") { try await moments() == ["23:00 waiting", "03:00 waiting"] }
            try await eventually("the gauge shows none") { try await shown(by: fourth) == 0 }
        }
    }

    @Test("new time-zone data that moves today's occurrence into the past fires it; moving it back does not repeat it")
    func movedToday() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let zones = try TemporaryDirectory("zones")
            func start(_ name: String, by zone: String) async throws -> ChildProcess {
                let folder = URL(filePath: zones.path)
                try FileManager.default.createDirectory(
                    at: folder.appending(path: "Asia"), withIntermediateDirectories: true)
                for (file, source) in [("Asia/Tokyo", zone), ("UTC", "UTC")] {
                    try Data(contentsOf: URL(filePath: "/usr/share/zoneinfo/\(source)"))
                        .write(to: folder.appending(path: file))
                }
                try Data("\(name)\n".utf8).write(to: folder.appending(path: "+VERSION"))
                return try await stack.startDispatcher(name: name, environment: ["TZDIR": zones.path])
            }
            // In half an hour, as Tokyo time, nine hours ahead of UTC.
            let minute = Schedules.now().seconds / 60 + 30
            let local = (minute + 540) % 1_440
            let answer = try await gateway.call(
                .post, "/v1/schedules", token: Stack.token(user: "app", scope: .service),
                json: #"""
                    {"cron":"\#(local % 60) \#(local / 60) * * *","zone":"Asia/Tokyo",
                     "job":{"user":"ada","type":"invoice_created","title":"daily"}}
                    """#
            )
            #expect(answer.status == 201)
            #expect(answer.body["next_local"] == .null)
            /// Minutes after today's original time.
            func due() async throws -> Int64? {
                try await stack.query("SELECT extract(epoch FROM due_at)::bigint FROM carillon.schedules")
                    .first.map { try $0.int8(0) / 60 - minute }
            }
            func fired() async throws -> Int {
                try await stack.query("SELECT 1 FROM carillon.notifications WHERE user_id = 'ada'").count
            }
            let first = try await start("first", by: "Asia/Tokyo")
            #expect(try await due() == 0)
            #expect(try await first.stop() == .code(0))

            // An hour later.
            let second = try await start("second", by: "Australia/Brisbane")
            try await eventually("it fires at once, and is due tomorrow") {
                let count = try await fired()
                return try await due() == 1_440 - 60 && count == 1
            }
            #expect(try await second.stop() == .code(0))

            let third = try await start("third", by: "Asia/Tokyo")
            try await eventually("tomorrow's follows") { try await due() != 1_440 - 60 }
            #expect(try await due() == 1_440)
            #expect(try await fired() == 1)
            #expect(try await third.stop() == .code(0))
        }
    }

    @Test("an occurrence in recipients' zones is split before it is due in the first zone, and ends with its schedule")
    func recipients() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Stack.token(user: "app", scope: .service)
            // A full hour that is still to come in UTC but may have come in the first zone, so
            // splitting is due.
            let wall = Timestamp(seconds: (Schedules.now().seconds / 3_600 + 10) * 3_600)
            let hour = wall.seconds / 3_600 % 24
            let clock = hour < 10 ? "0\(hour):00" : "\(hour):00"
            let answer = try await gateway.call(
                .post, "/v1/schedules", token: service,
                json: #"""
                    {"cron":"0 \#(hour) * * *","zone":"recipient",
                     "job":{"users":["ada","bob"],"type":"invoice_created","title":"daily"}}
                    """#
            )
            #expect(answer.status == 201)
            #expect(answer.body["next_at"] == .null)
            #expect(answer.body["next_local"]?.string?.hasSuffix("T\(clock)") == true)
            let token = Stack.token(user: "ada")
            _ = try await gateway.call(.put, "/v1/settings", token: token, json: #"{"zone":"America/New_York"}"#)
            try await stack.query(
                "UPDATE carillon.schedules SET due_at = $1::timestamptz - interval '15 hours', wake_at = now()",
                .timestamptz(wall.microseconds)
            )
            _ = try await stack.startDispatcher(name: "one")
            _ = try await stack.startDispatcher(name: "two")
            try await eventually("there is a part for each zone") {
                try await stack.query("SELECT 1 FROM carillon.schedules WHERE cron IS NULL").count == 2
            }
            let rows = try await stack.query(
                """
                SELECT b.due_at = $1, a.due_at - b.due_at IN (interval '4 hours', interval '5 hours')
                FROM carillon.schedules a, carillon.schedules b
                WHERE a.zone = 'America/New_York' AND b.zone = 'UTC'
                """,
                .timestamptz(wall.microseconds)
            )
            #expect(try rows.map { [try $0.bool(0), try $0.bool(1)] } == [[true, true]])
            try await eventually("the occurrence of the next day is the next") {
                try await stack.query(
                    "SELECT 1 FROM carillon.schedules WHERE cron IS NOT NULL AND due_at = $1::timestamptz + interval '9 hours'",
                    .timestamptz(wall.microseconds)
                ).count == 1
            }
            #expect(try await Schedules.count(stack) == 3)
            let id = try #require(answer.body["id"]?.string)
            #expect(try await gateway.call(.delete, "/v1/schedules/\(id)", token: service).status == 204)
            #expect(try await Schedules.count(stack) == 0)
        }
    }
}
