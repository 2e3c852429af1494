// Carillon · ScheduleTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Jobs for later reach their users at their time, once.
@Suite(.timeLimit(.minutes(10)))
struct ScheduleTests {
    @Test("deliver_at reaches the socket at its time, once, with two dispatchers")
    func deliverAt() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher(name: "one")
            _ = try await stack.startDispatcher(name: "two")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            let later = Schedules.later(.seconds(3_600))
            for number in 0..<20 {
                try await stack.append([
                    ("user", "ada"), ("type", "invoice_created"), ("title", "later \(number)"),
                    ("deliver_at", later),
                ])
            }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "now")])
            try await eventually("they wait in PostgreSQL, and the streams are done with them") {
                let length = try await stack.connection.send("XLEN", "carillon:jobs").integer()
                let waiting = try await Schedules.count(stack)
                return length == 0 && waiting == 20
            }
            try await eventually("the immediate one has arrived") { socket.titles == ["now"] }
            let due = Schedules.now() + .seconds(3)
            try await stack.query(
                "UPDATE carillon.schedules SET due_at = $1, wake_at = $1", .timestamptz(due.microseconds))
            try await eventually("all have come") { socket.titles.count >= 21 }
            // The dispatcher's clock follows PostgreSQL's, exact to half a second.
            #expect(Schedules.now() >= due + .milliseconds(-500))
            #expect(Set(socket.titles).count == 21)
            try await eventually("nothing is left") { try await Schedules.count(stack) == 0 }
            // They count as created at the requested time.
            let rows = try await stack.query(
                "SELECT count(*) FROM carillon.notifications WHERE title LIKE 'later%' AND created_at = $1",
                .timestamptz(due.microseconds / 1_000 * 1_000)
            )
            #expect(try rows.first?.int8(0) == 20)
            #expect(socket.titles.count == 21)
        }
    }

    @Test("deliver_at reaches the socket before a job that is appended a second after its time")
    func punctual() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            // A busy machine can delay any single one, so the best of five counts.
            var isPunctual = false
            for number in 1...5 where !isPunctual {
                let titles = ["on time \(number)", "a second later \(number)"]
                let due = Schedules.now() + .seconds(3)
                try await stack.append([
                    ("user", "ada"), ("type", "invoice_created"), ("title", titles[0]), ("deliver_at", due.rfc3339),
                ])
                try await eventually("a second has passed since") { Schedules.now() >= due + .seconds(1) }
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", titles[1])])
                try await eventually("both have come") { Set(socket.titles).isSuperset(of: titles) }
                isPunctual = Array(socket.titles.suffix(2)) == titles
            }
            #expect(isPunctual, "\(socket.titles)")
        }
    }

    @Test("a repeated scheduled job notifies once; the same id with other content is dead-lettered")
    func sameID() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            let fields = [
                ("user", "ada"), ("type", "invoice_created"), ("title", "once"), ("id", "i1"),
                ("deliver_at", Schedules.later(.seconds(3_600))),
            ]
            try await stack.append(fields)
            // A repeat with another trace, as an instrumented app sends it.
            for digit in ["1", "2"] {
                let trace = "00-" + String(repeating: digit, count: 32) + "-1111111111111111-01"
                try await stack.append(fields + [("traceparent", trace)])
            }
            let other = try await stack.append(fields.map { $0.0 == "title" ? ("title", "other") : $0 })
            try await eventually("the other content is dead-lettered") {
                let reason = try await stack.deadReasons()[other]
                return reason?.hasPrefix("id: is scheduled already") == true
                    && reason?.hasSuffix("dispatcher schedules cancel") == true
            }
            #expect(try await stack.deadReasons().count == 1)
            try await Schedules.makeDue(stack)
            try await eventually("it came") { !socket.titles.isEmpty }
            try await eventually("nothing is left") { try await Schedules.count(stack) == 0 }
            #expect(socket.titles == ["once"])
        }
    }

    @Test("a job cancelled while it waits is stored as cancelled, with or without an id")
    func cancelled() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "app", scope: .service)
            let at = Schedules.later(.seconds(30 * 24 * 3_600))
            try await stack.append([
                ("users", #"["ada","bob"]"#), ("type", "invoice_created"), ("id", "j1"), ("deliver_at", at),
            ])
            let entry = try await stack.append([("user", "ada"), ("type", "invoice_created"), ("deliver_at", at)])
            try await eventually("both wait") { try await Schedules.count(stack) == 2 }
            for name in ["j1", entry] {
                let answer = try await gateway.call(.get, "/v1/jobs/\(name)", token: service)
                #expect(answer.status == 200)
                #expect(answer.body["scheduled"]?.integer == 1)
                #expect(answer.body["final"]?.bool == false)
                #expect(try await gateway.call(.delete, "/v1/jobs/\(name)", token: service).status == 200)
            }
            for (name, count) in [("j1", 2), (entry, 1)] as [(String, Int64)] {
                try await eventually("it is cancelled for all, and the answer says so") {
                    let answer = try await gateway.call(.delete, "/v1/jobs/\(name)", token: service)
                    return answer.body["cancelled"]?.integer == count && answer.body["final"]?.bool == true
                        && answer.body["status"]?.string == "cancelled"
                }
            }
            try await eventually("nothing is left") { try await Schedules.count(stack) == 0 }
            let rows = try await stack.query("SELECT count(*) FROM carillon.notifications WHERE status = 'cancelled'")
            #expect(try rows.first?.int8(0) == 3)
            let all = try await stack.query("SELECT count(*) FROM carillon.notifications")
            #expect(try all.first?.int8(0) == 3)
        }
    }

    @Test("a trace and a user's list have the cancellation of a waiting job at its own time")
    func cancelledEarly() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "app", scope: .service)
            try await stack.append([
                ("user", "ada"), ("type", "invoice_created"), ("title", "later"), ("id", "j1"),
                ("deliver_local", "2099-01-01T08:00"),
            ])
            try await eventually("it waits") { try await Schedules.count(stack) == 1 }
            #expect(try await gateway.call(.delete, "/v1/jobs/j1", token: service).status == 200)
            try await eventually("it is stored") { try await stack.statuses(user: "ada") == ["later": "cancelled"] }
            let traced = try await stack.command(["trace", "--user", "ada", "--json"])
            let steps = try JSONParser.parse(Array(traced.output.utf8))["steps"]
            #expect(steps?.texts("event").first == "cancelled", "\(traced)")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "now")])
            try await eventually("it has come") { try await stack.statuses(user: "ada").count == 2 }
            let listed = try await stack.command(["user", "ada", "--json"])
            let titles = try JSONParser.parse(Array(listed.output.utf8))["notifications"]?.texts("title")
            #expect(titles == ["now", "later"], "\(listed)")
        }
    }

    @Test("a job without an id can be cancelled by its entry, before it arrives and after it was sent")
    func calledOffByEntry() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Stack.token(user: "app", scope: .service)
            let fields = [
                ("user", "ada"), ("type", "payment_received"), ("deliver_at", Schedules.later(.seconds(3_600))),
            ]
            let entry = try await stack.append(fields + [("title", "fired")])
            let early = try await stack.append(fields + [("title", "early")])
            let answer = try await gateway.call(.delete, "/v1/jobs/\(early)", token: service)
            #expect(answer.body["status"]?.string == "pending")
            _ = try await stack.startDispatcher()
            // The cancellation applies on arrival, because it is not kept as long as a job may
            // wait.
            try await eventually("one waits, the other is stored as cancelled") {
                guard try await Schedules.count(stack) == 1 else { return false }
                return try await stack.statuses(user: "ada") == ["early": "cancelled"]
            }
            try await Schedules.makeDue(stack)
            try await eventually("one is in the inbox, the other is cancelled") {
                try await stack.statuses(user: "ada") == ["fired": "sent", "early": "cancelled"]
            }
            try await eventually("nothing waits") { try await Schedules.count(stack) == 0 }
            for name in [entry, "carillon:jobs%2F\(entry)"] {
                let report = try await gateway.call(.get, "/v1/jobs/\(name)", token: service)
                #expect(report.body["recipients"]?["sent"]?.integer == 1)
                #expect(report.body["final"]?.bool == true)
            }
            let elsewhere = try await gateway.call(
                .get, "/v1/jobs/carillon:jobs:bulk%2F\(entry)", token: service)
            #expect(elsewhere.status == 404)
            let cancelled = try await gateway.call(.delete, "/v1/jobs/\(entry)", token: service)
            #expect(cancelled.body["status"]?.string == "cancelled")
            #expect(cancelled.body["cancelled"]?.integer == 1)
            #expect(cancelled.body["too_late"]?.integer == 0)
            try await eventually("the inbox has neither") {
                let inboxes = try await stack.query("SELECT 1 FROM carillon.inboxes WHERE unread > 0 OR total > 0")
                return inboxes.isEmpty
            }
        }
    }

    @Test("a waiting job with an id can be named by its entry, before it arrives and while it waits")
    func namedByEntry() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Stack.token(user: "app", scope: .service)
            func append(_ id: String) async throws -> String {
                try await stack.append([
                    ("user", "ada"), ("type", "payment_received"), ("title", id), ("id", id),
                    ("deliver_at", Schedules.later(.seconds(3_600))),
                ])
            }
            let early = try await append("early")
            let answer = try await gateway.call(.delete, "/v1/jobs/\(early)", token: service)
            #expect(answer.body["status"]?.string == "pending")
            let late = try await append("late")
            _ = try await stack.startDispatcher()
            try await eventually("one waits, the other is stored as cancelled") {
                guard try await Schedules.count(stack) == 1 else { return false }
                return try await stack.statuses(user: "ada") == ["early": "cancelled"]
            }
            let waiting = try await gateway.call(.get, "/v1/jobs/\(late)", token: service)
            #expect(waiting.body["id"]?.string == "late")
            #expect(waiting.body["scheduled"]?.integer == 1)
            #expect(try await gateway.call(.delete, "/v1/jobs/\(late)", token: service).status == 200)
            try await eventually("it is cancelled, too") {
                try await stack.statuses(user: "ada") == ["early": "cancelled", "late": "cancelled"]
            }
            for name in [early, late] {
                let report = try await gateway.call(.get, "/v1/jobs/\(name)", token: service)
                #expect(report.body["recipients"]?["cancelled"]?.integer == 1)
            }
            // A broadcast fires as another entry, but its id is cancelled with its first.
            let topic = try await stack.append([
                ("topic", "news"), ("type", "payment_received"), ("title", "topic"), ("id", "topic"),
                ("deliver_at", Schedules.later(.seconds(3_600))),
            ])
            try await eventually("it waits") { try await Schedules.count(stack) == 1 }
            #expect(try await gateway.call(.delete, "/v1/jobs/\(topic)", token: service).status == 200)
            try await eventually("it is cancelled") {
                try await gateway.call(.get, "/v1/jobs/topic", token: service)
                    .body["broadcast"]?["state"]?.string == "cancelled"
            }
        }
    }

    @Test("a dispatcher killed between claim and delete loses nothing and repeats nothing")
    func killed() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            let first = try await stack.startDispatcher(name: "first")
            // The trigger lets a schedule fire but stalls the delete of its row.
            let titles = (0..<5).map { "job \($0)" }
            let due = Schedules.later(.seconds(3_600))
            for title in titles {
                for user in ["ada", "offline"] {
                    try await stack.append([
                        ("user", user), ("type", "payment_received"), ("title", title),
                        ("deliver_at", due),
                    ])
                }
            }
            try await eventually("they wait") { try await Schedules.count(stack) == 10 }
            let pool = try #require(stack.database?.pool)
            try await pool.query(
                """
                CREATE FUNCTION carillon.stall() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN PERFORM pg_sleep(60); RETURN OLD; END $$
                """
            )
            try await pool.query(
                "CREATE TRIGGER stall BEFORE DELETE ON carillon.schedules FOR EACH ROW EXECUTE FUNCTION carillon.stall()"
            )
            try await Schedules.makeDue(stack)
            try await eventually("they were sent, and the pushes are on record") {
                let accepted = try await pool.query(
                    "SELECT FROM carillon.delivery_attempts WHERE kind = 'push' AND outcome = 'accepted'")
                return socket.titles.count == 5 && accepted.count == 5
            }
            first.send(SIGKILL)
            try await first.waitForExit()
            // PostgreSQL notices the client's death late, and the sleeping statement holds a lock.
            try await pool.query(
                """
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event = 'PgSleep'
                """
            )
            try await pool.query("DROP TRIGGER stall ON carillon.schedules")
            #expect(try await Schedules.count(stack) == 10)
            try await stack.query("UPDATE carillon.schedules SET wake_at = now() WHERE wake_at > now()")

            _ = try await stack.startDispatcher(name: "second")
            try await eventually("nothing is left") { try await Schedules.count(stack) == 0 }
            #expect(socket.titles.sorted() == titles)
            #expect(stack.pushed()["phone"]?.sorted() == titles)
            let rows = try await stack.query("SELECT count(*) FROM carillon.notifications")
            #expect(try rows.first?.int8(0) == 10)
        }
    }

    @Test("deliver_local is split by the users' zones, and unknown zones use the default")
    func deliverLocal() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            for (user, zone) in [("tokyo", "Asia/Tokyo"), ("tokyo2", "Asia/Tokyo"), ("york", "America/New_York")] {
                let token = Stack.token(user: user)
                let answer = try await gateway.call(.put, "/v1/settings", token: token, json: #"{"zone":"\#(zone)"}"#)
                #expect(answer.status == 200)
            }
            try await stack.query(
                "INSERT INTO carillon.user_settings (user_id, zone) VALUES ('lost', 'Mars/Olympus')")
            _ = try await stack.startDispatcher()
            try await stack.append([
                ("users", #"["tokyo","york","tokyo2","nowhere","lost","out"]"#), ("except", #"["out"]"#),
                ("type", "invoice_created"), ("title", "morning"), ("deliver_local", "2099-06-01T08:30"),
            ])
            try await eventually("there is a part for each zone") { try await Schedules.count(stack) == 3 }
            let rows = try await stack.query(
                """
                SELECT s.zone, s.due_at = CASE s.zone WHEN 'UTC' THEN timestamptz '2099-06-01T08:30:00Z'
                    WHEN 'Asia/Tokyo' THEN timestamptz '2099-05-31T23:30:00Z'
                    ELSE timestamptz '2099-06-01T12:30:00Z' END,
                    (SELECT f ->> 1 FROM jsonb_array_elements(s.fields) f WHERE f ->> 0 = 'users')
                FROM carillon.schedules s ORDER BY s.zone
                """
            )
            #expect(try rows.map { try $0.text(0) } == ["America/New_York", "Asia/Tokyo", "UTC"])
            #expect(try rows.map { try $0.bool(1) } == [true, true, true])
            #expect(
                try rows.map { try $0.text(2) } == [#"["york"]"#, #"["tokyo","tokyo2"]"#, #"["nowhere","lost"]"#])
            // Their time has come.
            try await Schedules.makeDue(stack)
            try await eventually("everybody has it") {
                try await stack.query("SELECT DISTINCT user_id FROM carillon.notifications").count == 5
            }
            try await eventually("nothing is left") { try await Schedules.count(stack) == 0 }
        }
    }

    @Test("3,000 schedules due in the same second fire once each")
    func burst() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = gateway
            let count: Int64 = 3_000
            try await stack.query(
                """
                INSERT INTO carillon.schedules (id, org_id, part, user_id, source, lane, fields, content, due_at, wake_at,
                    created_at)
                SELECT gen_random_uuid(), '', '', 'u' || n, 'x', 1, jsonb_build_array(
                    jsonb_build_array('user', 'u' || n), jsonb_build_array('type', 'invoice_created'),
                    jsonb_build_array('title', 'due')), n, t, t, now()
                FROM generate_series(1, $1) n, (SELECT now() + interval '5 seconds' AS t) due
                """,
                .int8(count)
            )
            _ = try await stack.startDispatcher()
            try await eventually("all have fired") { try await Schedules.count(stack) == 0 }
            let rows = try await stack.query("SELECT count(*), count(DISTINCT user_id) FROM carillon.notifications")
            let row = try #require(rows.first)
            #expect(try row.int8(0) == count)
            #expect(try row.int8(1) == count)
        }
    }
}

/// `/v1/schedules`, and the commands for schedules.
@Suite(.timeLimit(.minutes(10)))
struct ScheduleRestTests {
    @Test("schedules are created, listed, found and cancelled, only by services, and faults name their fields")
    func rest() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let service = Stack.token(user: "app", scope: .service)
            let at = Schedules.later(.seconds(3_600))
            let json = #"""
                {"id":"0190b5a2-0000-7000-8000-000000000001","at":"\#(at)",
                 "job":{"user":"ada","type":"invoice_created","title":"x","org":"o","deliver_at":null,"badge":3}}
                """#
            let created = try await gateway.call(.post, "/v1/schedules", token: service, json: json)
            #expect(created.status == 201)
            #expect(created.body["job"]?["title"]?.string == "x")
            // Its members have the types that a job needs.
            #expect(created.body["job"]?["badge"]?.integer == 3)
            let again = try await gateway.call(.post, "/v1/schedules", token: service, json: json)
            #expect(again.status == 200)
            #expect(again.body["job_id"] == created.body["job_id"])
            let other = json.replacingOccurrences(of: #""x""#, with: #""y""#)
            #expect(try await gateway.call(.post, "/v1/schedules", token: service, json: other).status == 409)

            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("id", "s1"), ("deliver_at", at)])
            try await eventually("both are listed") {
                let page = try await gateway.call(.get, "/v1/schedules", token: service)
                return page.body["schedules"]?.array?.count == 2
            }
            let page = try await gateway.call(.get, "/v1/schedules?limit=1", token: service)
            #expect(page.body["schedules"]?.array?.count == 1)
            let cursor = try #require(page.body["next_cursor"]?.string)
            let rest = try await gateway.call(.get, "/v1/schedules?limit=1&cursor=\(cursor)", token: service)
            #expect(rest.body["schedules"]?.array?.count == 1)
            #expect(rest.body["next_cursor"] == .null)
            let own = try await gateway.call(.get, "/v1/schedules?org=o", token: service)
            #expect(own.body["schedules"]?.array?.map { $0["id"] } == [created.body["id"]])

            let user = Stack.token(user: "ada")
            #expect(try await gateway.call(.get, "/v1/schedules", token: user).status == 403)
            #expect(try await gateway.call(.get, "/v1/schedules/x", token: user).status == 403)
            #expect(try await gateway.call(.delete, "/v1/schedules/x", token: user).status == 403)
            #expect(try await gateway.call(.post, "/v1/schedules", token: user, json: json).status == 403)
            for (json, fields) in Self.faults {
                let answer = try await gateway.call(.post, "/v1/schedules", token: service, json: json)
                #expect(answer.status == 422, "\(json)")
                #expect(answer.faults == fields, "\(json)")
            }

            // The commands show the same schedules.
            let list = try await stack.spawn("dispatcher", ["schedules", "list", "--json"], name: "list")
            #expect(try await list.waitForLine(#"{"id":"0190b5a2-0000-7000-8000-000000000001""#).isEmpty == false)
            #expect(try await list.waitForExit() == .code(0))
            let table = try await stack.spawn("dispatcher", ["schedules", "list"], name: "table")
            #expect(try await table.waitForLine("ID ").contains("STATE"))
            #expect(try await table.waitForExit() == .code(0))
            #expect(!table.errors().contains("there are more"), "\(table.errors())")
            let short = try await stack.command(["schedules", "list", "--limit", "1"])
            #expect(short.code == 0 && short.errors.contains("there are more than 1 schedules"), "\(short)")
            let whole = try await stack.command(["schedules", "list", "--limit", "2"])
            #expect(whole.code == 0 && !whole.errors.contains("there are more"), "\(whole)")
            let id = "0190b5a2-0000-7000-8000-000000000001"
            // The database fails at the second; the first is reported all the same.
            let listed = try await gateway.call(.get, "/v1/schedules", token: service)
            let ids = listed.body["schedules"]?.array?.compactMap { $0["id"]?.string } ?? []
            let second = try #require(ids.first(where: { $0 != id }))
            _ = try await stack.query(
                """
                CREATE FUNCTION carillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN RAISE 'refused'; END $$
                """)
            _ = try await stack.query(
                """
                CREATE TRIGGER refuse BEFORE DELETE ON carillon.schedules
                FOR EACH ROW WHEN (OLD.id <> '\(id)') EXECUTE FUNCTION carillon.refuse()
                """)
            let cancel = try await stack.command(["schedules", "cancel", id, second])
            #expect(cancel.code == 1 && cancel.output == "cancelled \(id)\n", "\(cancel)")
            #expect(cancel.errors.contains("SQLSTATE P0001"), "\(cancel)")
            #expect(try await gateway.call(.delete, "/v1/schedules/\(id)", token: service).status == 404)
            #expect(try await Schedules.count(stack) == 1)
        }
    }

    @Test("a call that is repeated when its schedule is gone names the same job; another time or content does not")
    func sameJob() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Stack.token(user: "app", scope: .service)
            let id = "0190b5a2-0000-7000-8000-000000000002"
            func create(_ at: String, title: String) async throws -> String {
                let answer = try await gateway.call(
                    .post, "/v1/schedules", token: service,
                    json: #"""
                        {"id":"\#(id)","at":"\#(at)",
                         "job":{"user":"ada","type":"invoice_created","title":"\#(title)"}}
                        """#
                )
                #expect(answer.status == 201)
                #expect(try await gateway.call(.delete, "/v1/schedules/\(id)", token: service).status == 204)
                return try #require(answer.body["job_id"]?.string)
            }
            let first = Schedules.later(.seconds(3_600))
            let job = try await create(first, title: "x")
            #expect(try await create(first, title: "x") == job)
            let moved = try await create(Schedules.later(.seconds(7_200)), title: "x")
            let reworded = try await create(first, title: "y")
            #expect(Set([job, moved, reworded]).count == 3)
        }
    }

    private static let faults: [(String, Set<String>)] = [
        (#"{}"#, ["job"]),
        (#"{"job":{"user":"u","type":"invoice_created"}}"#, ["cron"]),
        (#"{"cron":"@daily","job":{"user":"u","type":"invoice_created"}}"#, ["zone"]),
        (#"{"cron":"0 0 30 2 *","zone":"UTC","job":{"user":"u","type":"invoice_created"}}"#, ["cron"]),
        (#"{"cron":"@daily","zone":"Mars","job":{"user":"u","type":"invoice_created"}}"#, ["zone"]),
        (#"{"cron":"@hourly","zone":"recipient","job":{"user":"u","type":"invoice_created"}}"#, ["cron"]),
        (#"{"at":"2020-01-01T00:00:00Z","job":{"user":"u","type":"invoice_created"}}"#, ["at"]),
        (#"{"at":"soon","zone":"UTC","job":{"user":"u","type":"invoice_created"}}"#, ["at", "zone"]),
        (#"{"at":"2099-01-01T00:00:00Z","job":{"user":"u","type":"nothing"}}"#, ["job.type"]),
        (
            #"{"at":"2099-01-01T00:00:00Z","job":{"user":"u","type":"invoice_created","body":[1],"data":"{}"}}"#,
            ["job.body", "job.data"]
        ),
        (
            #"{"at":"2099-01-01T00:00:00Z","job":{"user":"u","type":"invoice_created","deliver_local":"08:00"}}"#,
            ["job.deliver_local"]
        ),
        (
            #"{"at":"2099-01-01T00:00:00Z","job":{"user":"u","type":"invoice_created","deliver_on":"08:00"}}"#,
            ["job.deliver_on"]
        ),
        (
            #"{"at":"2099-01-01T09:00:00+01:00","job":{"user":"u","type":"invoice_created","expires_at":"2099-01-01T08:00:00Z"}}"#,
            ["job.expires_at"]
        ),
        (
            #"{"at":"2099-01-01T09:00:00+01:00","job":{"user":"u","type":"invoice_created","keep_until":"2099-01-01T07:00:00Z"}}"#,
            ["job.keep_until"]
        ),
        (#"{"cron":"@daily","zone":"UTC","job":{"id":"a","user":"u","type":"invoice_created"}}"#, ["job.id"]),
        (
            #"{"cron":"@daily","zone":"UTC","job":{"user":"u","type":"invoice_created","expires_at":"2099-01-01T00:00:00Z"}}"#,
            ["job.expires_at"]
        ),
        (
            #"{"cron":"@daily","zone":"UTC","job":{"user":"u","type":"invoice_created","keep_until":"2099-01-01T00:00:00Z"}}"#,
            ["job.keep_until"]
        ),
        (
            #"{"cron":"@daily","zone":"UTC","ends_at":"2020-01-01T00:00:00Z","job":{"user":"u","type":"invoice_created"}}"#,
            ["ends_at"]
        ),
        (#"{"id":"7","at":"2099-01-01T00:00:00Z","x":1,"job":{"user":"u","type":"invoice_created"}}"#, ["x", "id"]),
    ]
}
