// Carillon · BroadcastTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

@testable import HTTP

/// Jobs for a topic and for all users.
@Suite(.timeLimit(.minutes(10)))
struct BroadcastTests {
    private static let count = 3_000
    private static let type = "breaking_news"

    /// Creates users u1 to uN, subscribed to `news`; u10, u20 … opted out of the type, u11, u21 …
    /// of everything.
    private static func makeUsers(_ count: Int = Self.count, in stack: Stack) async throws {
        for statement in [
            "INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, $1::int4) n",
            """
            INSERT INTO carillon.subscriptions (topic, user_id)
            SELECT 'news', 'u' || n FROM generate_series(1, $1::int4) n
            """,
            """
            INSERT INTO carillon.preferences (user_id, type, in_app, push)
            SELECT 'u' || n, 'breaking_news', false, false FROM generate_series(10, $1::int4, 10) n
            """,
            """
            INSERT INTO carillon.user_settings (user_id, opted_out)
            SELECT 'u' || n, true FROM generate_series(11, $1::int4, 10) n
            """,
        ] { _ = try await stack.query(statement, .int4(Int32(count))) }
    }

    @Test("a killed dispatcher's broadcast reaches each willing user once, with exact counts")
    func crash() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            try await Self.makeUsers(in: stack)
            let doomed = try await stack.startDispatcher(name: "doomed")
            let name = try await eventualValue("it holds its lease") {
                try await stack.connection.send("ZRANGE", "carillon:dispatchers", "0", "-1").strings().first
            }
            _ = try await stack.startDispatcher(name: "second")
            let pool = try #require(stack.database?.pool)
            // The lock keeps every page from being stored, so the killed one holds a chain.
            let entry = try await pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.inboxes IN ACCESS EXCLUSIVE MODE")
                let entry = try await stack.append(
                    [("topic", "news"), ("type", Self.type), ("title", "Extra"), ("except", #"["u1","u2","nobody"]"#)],
                    stream: "carillon:jobs:bulk"
                )
                let claimed = "SELECT 1 FROM carillon.broadcast_chains WHERE claimed_by = $1 AND NOT is_done"
                try await eventually("it has claimed a chain") {
                    try await !transaction.query(claimed, .text(name)).isEmpty
                }
                doomed.send(SIGKILL)
                try await doomed.waitForExit()
                return entry
            }
            // As if the time of its claims had passed.
            try await stack.query(
                "UPDATE carillon.broadcast_chains SET claimed_until = now() WHERE claimed_by = $1", .text(name))
            let report = try await Broadcasts.waitFor("done", gateway, entry)
            let broadcast = try #require(report["broadcast"])
            let wanted = Int64(Self.count - 2 - 300 - 299)
            #expect(broadcast["selected"]?.integer == Int64(Self.count) - 2)
            #expect(broadcast["stored"]?.integer == wanted)
            #expect(broadcast["audience"]?.integer == Int64(Self.count))
            #expect(broadcast["chains_done"]?.integer == 16)
            #expect(broadcast["pages"]?.integer == 16)
            #expect(broadcast["not_stored"]?["opted_out_of_type"]?.integer == 300)
            #expect(broadcast["not_stored"]?["opted_out"]?.integer == 299)
            #expect(broadcast["lane"]?.string == "bulk")
            #expect(try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.notifications") == wanted)
            let distinct = "SELECT count(DISTINCT user_id) FROM carillon.notifications"
            #expect(try await Broadcasts.number(stack, distinct) == wanted)
            let left = "SELECT count(*) FROM carillon.notifications WHERE user_id IN ('u1', 'u2', 'u10', 'u11')"
            #expect(try await Broadcasts.number(stack, left) == 0)
            // Rows that the killed dispatcher stored but did not enqueue have no owner; the sweep
            // finds them.
            try await stack.makeOlder()
            let last = try await eventualValue("the broadcast is final") {
                let report = try await Broadcasts.report(gateway, entry)
                return report["final"]?.bool == true ? report : nil
            }
            #expect(last["recipients"]?["sent"]?.integer == wanted)
        }
    }

    @Test("a broadcast of an opt-in type reaches only users who opted in and counts the others")
    func notOptedIn() async throws {
        try await Stack.with { stack in
            let count = 20_000
            let environment = try stack.catalog(
                "types:\n  weekly: {severity: info, delivery: push, lane: normal, default: false}\n")
            let gateway = try await stack.startGateway(environment: environment)
            // Every tenth user opted in; every hundredth of those opted out of everything.
            for statement in [
                "INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, $1::int4) n",
                """
                INSERT INTO carillon.preferences (user_id, type, in_app, push)
                SELECT 'u' || n, 'weekly', true, true FROM generate_series(10, $1::int4, 10) n
                """,
                """
                INSERT INTO carillon.user_settings (user_id, opted_out)
                SELECT 'u' || n, true FROM generate_series(1000, $1::int4, 1000) n
                """,
            ] { _ = try await stack.query(statement, .int4(Int32(count))) }
            try await stack.storePhones("u", count)
            _ = try await stack.startDispatcher(environment: environment)
            let entry = try await stack.append(
                [("all", "true"), ("type", "weekly"), ("title", "This week"), ("lane", "bulk")],
                stream: "carillon:jobs:bulk")
            let report = try await Broadcasts.waitFor("done", gateway, entry)
            let broadcast = try #require(report["broadcast"])
            let refused: Int64 = 20
            let wanted = Int64(count) / 10 - refused
            #expect(broadcast["selected"]?.integer == Int64(count))
            #expect(broadcast["stored"]?.integer == wanted)
            #expect(broadcast["not_stored"]?["not_opted_in"]?.integer == Int64(count) * 9 / 10)
            #expect(broadcast["not_stored"]?["opted_out"]?.integer == refused)
            #expect(broadcast["lane"]?.string == "bulk")
            let pages = try #require(broadcast["pages"]?.integer)
            #expect(pages > 16, "no chain had more than one page")
            #expect(try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.notifications") == wanted)
            let others = """
                SELECT count(*) FROM carillon.notifications
                WHERE substr(user_id, 2)::int4 % 10 <> 0 OR substr(user_id, 2)::int4 % 1000 = 0
                """
            #expect(try await Broadcasts.number(stack, others) == 0)
            try await eventually("all who want it have it") { stack.pushed().count == Int(wanted) }
            try await stack.waitForPushes()
            // A call that the sandbox answers too late is repeated.
            let repeats = try await Broadcasts.number(
                stack, "SELECT count(*) FROM carillon.delivery_attempts WHERE outcome = 'retry'")
            let sent = wanted...wanted + repeats
            #expect(sent.contains(Int64(stack.sandbox.received().count)))
            // The job's lane wins over the type's.
            let added = try await Self.added(to: "carillon:{fcm}:deliveries:bulk", in: stack)
            #expect(sent.contains(added))
            for lane in ["critical", "normal"] {
                #expect(try await Self.added(to: "carillon:{fcm}:deliveries:\(lane)", in: stack) == 0, "\(lane)")
            }
        }
    }

    /// The number of entries ever appended to a stream.
    private static func added(to stream: String, in stack: Stack) async throws -> Int64 {
        guard try await stack.connection.send("EXISTS", .text(stream)).integer() == 1 else { return 0 }
        let reply = try await stack.connection.send("XINFO", "STREAM", .text(stream))
        guard var cursor = try reply.cursor() else { return 0 }
        for _ in 0..<(try cursor.array() ?? 0) / 2 {
            if try cursor.string() == "entries-added" { return try cursor.integer() }
            try cursor.skip()
        }
        return 0
    }

    /// Starts a broadcast and waits until half of it is expanded.
    private static func expandHalf(_ id: String, _ gateway: Gateway, in stack: Stack) async throws {
        try await stack.expandHalf(id, gateway, #""topic":"news","type":"breaking_news","title":"Extra""#)
    }

    @Test("a broadcast waits for a full stream, pauses, resumes in place, and rejects its id with different content")
    func pause() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Broadcasts.service()
            try await Self.makeUsers(in: stack)
            _ = try await stack.startDispatcher(environment: Stack.holdingBroadcasts)
            try await Self.expandHalf("b1", gateway, in: stack)
            for _ in 0..<2 {
                let paused = try await gateway.call(.post, "/v1/jobs/b1/pause", token: service)
                #expect(paused.status == 200)
                #expect(paused.body["broadcast"]?["state"]?.string == "paused")
            }
            try await stack.freeChains(below: 16)
            // Another broadcast overtakes the paused one.
            #expect(
                try await Broadcasts.post(gateway, #"{"id":"b2","all":true,"type":"invoice_created"}"#).status == 202)
            _ = try await Broadcasts.waitFor("done", gateway, "b2")
            #expect(try await Broadcasts.report(gateway, "b1")["broadcast"]?["chains_done"]?.integer == 8)
            #expect(try await gateway.call(.post, "/v1/jobs/b1/confirm", token: service).status == 409)
            for _ in 0..<2 {
                #expect(try await gateway.call(.post, "/v1/jobs/b1/resume", token: service).status == 200)
            }
            let report = try await Broadcasts.waitFor("done", gateway, "b1")
            #expect(report["broadcast"]?["stored"]?.integer == 2_401)
            let again = #"{"id":"b1","topic":"news","type":"breaking_news","title":"Extra"}"#
            #expect(try await Broadcasts.post(gateway, again).status == 202)
            let other = #"{"id":"b1","topic":"news","type":"breaking_news","title":"Other"}"#
            #expect(try await Broadcasts.post(gateway, other).status == 202)
            try await eventually("the other content is refused") { try await stack.deadReasons().count == 1 }
            #expect(try await stack.deadReasons().values.first?.hasPrefix("id: was used before") == true)
            let stored = "SELECT count(*) FROM carillon.notifications WHERE type = 'breaking_news'"
            #expect(try await Broadcasts.number(stack, stored) == 2_401)
            let admin = Stack.token(user: "root", scope: .admin)
            let page = try await gateway.call(.get, "/v1/admin/broadcasts?limit=1", token: admin)
            #expect(page.body["broadcasts"]?.array?.compactMap { $0["job_id"]?.string } == ["b2"])
            let cursor = try #require(page.body["next_cursor"]?.string)
            let rest = try await gateway.call(.get, "/v1/admin/broadcasts?state=done&cursor=\(cursor)", token: admin)
            #expect(rest.body["broadcasts"]?.array?.compactMap { $0["job_id"]?.string } == ["b1"])
            #expect(rest.body["next_cursor"] == .null)
        }
    }

    @Test(
        "a broadcast waits while a delivery of its lane is held back or waits for a retry",
        arguments: ["carillon:{fcm}:held:bulk:default", "carillon:{fcm}:retry:bulk"])
    func setAside(set: String) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await Self.makeUsers(20, in: stack)
            try await stack.connection.send("SADD", "carillon:{fcm}:held:bulk", "default")
            // Due in the year 5138.
            try await stack.connection.send("ZADD", .text(set), "99999999999999", "a delivery")
            _ = try await stack.startDispatcher(environment: Stack.holdingBroadcasts)
            let job = #"{"id":"b1","topic":"news","type":"breaking_news","title":"Extra"}"#
            #expect(try await Broadcasts.post(gateway, job).status == 202)
            try await eventually("it is held back") {
                try await Broadcasts.report(gateway, "b1")["broadcast"]?["held"]?.bool == true
            }
            #expect(try await Broadcasts.report(gateway, "b1")["broadcast"]?["stored"]?.integer == 0)
            try await stack.connection.send("DEL", .text(set))
            _ = try await Broadcasts.waitFor("done", gateway, "b1")
        }
    }

    @Test("users who already have the broadcast's id get no second copy; other content makes one dead letter")
    func conflict() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await stack.query("INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 40) n")
            let users = JSONWriter.bytes(of: .array((1...12).map { .string("u\($0)") }))
            for id in ["same", "other"] {
                try await stack.append([
                    ("users", String(decoding: users, as: UTF8.self)), ("type", "invoice_created"), ("id", id),
                    ("title", "first"),
                ])
            }
            let stored = "SELECT count(*) FROM carillon.notifications"
            try await eventually("some users have the ids") { try await Broadcasts.number(stack, stored) == 24 }
            let all = [("all", "true"), ("type", "invoice_created")]
            try await stack.append(all + [("id", "same"), ("title", "first")])
            let entry = try await stack.append(all + [("id", "other"), ("title", "second")])
            for id in ["same", "other"] {
                let broadcast = try await Broadcasts.waitFor("done", gateway, id)["broadcast"]
                #expect(broadcast?["stored"]?.integer == 28)
                #expect(broadcast?["not_stored"]?["duplicate"]?.integer == 12)
            }
            try await eventually("the other content is refused") { try await !stack.deadReasons().isEmpty }
            #expect(try await stack.deadReasons() == [entry: "id: was used before with other content; give another id"])
            #expect(try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.dead_letters") == 1)
            #expect(try await Broadcasts.number(stack, stored) == 80)
        }
    }

    @Test("cancelling withdraws a half-sent broadcast from the inboxes and stops one that has not begun")
    func cancel() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Broadcasts.service()
            try await Self.makeUsers(in: stack)
            #expect(
                try await gateway.call(.delete, "/v1/jobs/b0", token: service).body["status"]?.string == "pending")
            _ = try await stack.startDispatcher(environment: Stack.holdingBroadcasts)
            #expect(
                try await Broadcasts.post(gateway, #"{"id":"b0","all":true,"type":"invoice_created"}"#).status == 202)
            let early = try await Broadcasts.waitFor("cancelled", gateway, "b0")
            #expect(early["broadcast"]?["stored"]?.integer == 0)
            #expect(early["final"]?.bool == true)

            try await Self.expandHalf("b1", gateway, in: stack)
            let stored = try #require(try await Broadcasts.report(gateway, "b1")["broadcast"]?["stored"]?.integer)
            #expect((1..<2_401).contains(stored))
            let answer = try await gateway.call(.delete, "/v1/jobs/b1", token: service)
            #expect(answer.status == 200)
            // Counting the notifications of a large broadcast would take longer than a call may.
            for count in ["cancelled", "withdrawing", "too_late", "not_sent"] {
                #expect(answer.body[count] == .null, "\(count)")
            }
            let status = answer.body["status"]?.string
            #expect(status == "cancelling" || status == "cancelled")
            let report = try await eventualValue("it is withdrawn") {
                let report = try await Broadcasts.report(gateway, "b1")
                return report["final"]?.bool == true ? report : nil
            }
            #expect(report["broadcast"]?["state"]?.string == "cancelled")
            #expect(report["broadcast"]?["withdrawn"]?.integer == stored)
            #expect(report["recipients"]?["cancelled"]?.integer == stored)
            let again = try await gateway.call(.delete, "/v1/jobs/b1", token: service)
            #expect(again.body["status"]?.string == "cancelled")
            #expect(again.body["cancelled"] == .null)
            #expect(try await gateway.call(.post, "/v1/jobs/b1/resume", token: service).status == 409)
            let inboxes = "SELECT count(*) FROM carillon.inboxes WHERE unread > 0 OR total > 0"
            #expect(try await Broadcasts.number(stack, inboxes) == 0)
        }
    }

    @Test("an audience above the limit waits for confirmation, which the log and a gauge show")
    func confirmation() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Broadcasts.service()
            try await Self.makeUsers(30, in: stack)
            let dispatcher = try await stack.startDispatcher(environment: ["BROADCAST_CONFIRM_ABOVE": "29"])
            let metrics = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            func shown() async throws -> Double? {
                try await MetricsText.page("\(metrics)/metrics", stack)
                    .samples[#"carillon_broadcasts_waiting{state="awaiting_confirmation"}"#]
            }
            #expect(
                try await Broadcasts.post(gateway, #"{"id":"b1","all":true,"type":"invoice_created"}"#).status == 202)
            let waiting = try await Broadcasts.waitFor("awaiting_confirmation", gateway, "b1")
            try await eventually("an operator can see it") {
                let isLogged = dispatcher.errors().contains("broadcast waits until you confirm or cancel it")
                return try await shown() == 1 && isLogged
            }
            #expect(waiting["broadcast"]?["audience"]?.integer == 30)
            #expect(waiting["broadcast"]?["stored"]?.integer == 0)
            #expect(try await gateway.call(.post, "/v1/jobs/b1/pause", token: service).status == 409)
            #expect(try await gateway.call(.post, "/v1/jobs/nothing/confirm", token: service).status == 404)
            let user = Stack.token(user: "u1")
            #expect(try await gateway.call(.post, "/v1/jobs/b1/confirm", token: user).status == 403)
            for _ in 0..<2 {
                #expect(try await gateway.call(.post, "/v1/jobs/b1/confirm", token: service).status == 200)
            }
            let done = try await Broadcasts.waitFor("done", gateway, "b1")
            #expect(done["broadcast"]?["stored"]?.integer == 28)
            try await eventually("none waits any more") { try await shown() == 0 }
        }
    }

    @Test("a broadcast whose notifications cannot be counted in time is reported without counts")
    func uncounted() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await Self.makeUsers(30, in: stack)
            let dispatcher = try await stack.startDispatcher()
            #expect(
                try await Broadcasts.post(gateway, #"{"id":"b1","all":true,"type":"invoice_created"}"#).status == 202)
            _ = try await Broadcasts.waitFor("done", gateway, "b1")
            try await dispatcher.stop()
            let pool = try #require(stack.database?.pool)
            let answer = try await pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.notifications IN ACCESS EXCLUSIVE MODE")
                let call = Task { try await gateway.call(.get, "/v1/jobs/b1", token: Broadcasts.service()) }
                try await eventually("the time of the count is over") {
                    try await !stack.query(
                        """
                        SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock'
                        """
                    ).isEmpty
                }
                return try await call.value
            }
            #expect(answer.status == 200)
            #expect(answer.body["recipients"] == .null && answer.body["reach"] == .null)
            #expect(answer.body["final"]?.bool == false)
            #expect(answer.body["broadcast"]?["stored"]?.integer == 28)
        }
    }

    @Test(
        "a broadcast that is confirmed or resumed after its time to live reaches its users",
        arguments: [("awaiting_confirmation", "confirm"), ("paused", "resume")])
    func late(state: String, call: String) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await Self.makeUsers(30, in: stack)
            _ = try await stack.startDispatcher(environment: ["BROADCAST_CONFIRM_ABOVE": "29"])
            #expect(
                try await Broadcasts.post(gateway, #"{"id":"b1","all":true,"type":"invoice_created"}"#).status == 202)
            _ = try await Broadcasts.waitFor("awaiting_confirmation", gateway, "b1")
            // As if it had waited for days.
            try await stack.query(
                "UPDATE carillon.broadcasts SET state = $1, created_at = created_at - interval '3 days'", .text(state))
            let answer = try await gateway.call(.post, "/v1/jobs/b1/\(call)", token: Broadcasts.service())
            #expect(answer.status == 200)
            let done = try await Broadcasts.waitFor("done", gateway, "b1")
            #expect(done["broadcast"]?["stored"]?.integer == 28)
        }
    }

    @Test("a broadcast whose cancellation was interrupted stores its notifications as cancelled, and counts them")
    func interruptedCancel() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Broadcasts.service()
            try await Self.makeUsers(30, in: stack)
            let dispatcher = try await stack.startDispatcher(environment: ["BROADCAST_CONFIRM_ABOVE": "29"])
            let metrics = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            #expect(
                try await Broadcasts.post(gateway, #"{"id":"b1","all":true,"type":"invoice_created"}"#).status == 202)
            _ = try await Broadcasts.waitFor("awaiting_confirmation", gateway, "b1")
            // As if the gateway had died before it cancelled the broadcast itself.
            _ = try await stack.query(
                "INSERT INTO carillon.cancellations (org_id, job_id, at) VALUES ('', 'b1', now())")
            #expect(try await gateway.call(.post, "/v1/jobs/b1/confirm", token: service).status == 200)
            _ = try await Broadcasts.waitFor("done", gateway, "b1")
            let cancelled = "SELECT count(*) FROM carillon.notifications WHERE status = 'cancelled'"
            #expect(try await Broadcasts.number(stack, cancelled) == 28)
            try await eventually("they are counted") {
                let page = try await MetricsText.page("\(metrics)/metrics", stack)
                return page.samples["carillon_notifications_cancelled"] == 28
            }
        }
    }

    @Test("a broadcast that waits for its full lane lets those of other lanes pass")
    func fullLane() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await Self.makeUsers(30, in: stack)
            _ = try await stack.startDispatcher(environment: Stack.holdingBroadcasts)
            // The dispatcher leaves a delivery of an unknown version in the stream.
            let stream = "carillon:{fcm}:deliveries:critical"
            let work = try await stack.connection.send("XADD", .text(stream), "*", "d", "99 from the future").string()
            let urgent = #"{"id":"b1","all":true,"type":"invoice_created","lane":"critical"}"#
            #expect(try await Broadcasts.post(gateway, urgent).status == 202)
            func isHeld() async throws -> Bool? {
                try await Broadcasts.report(gateway, "b1")["broadcast"]?["held"]?.bool
            }
            try await eventually("it is held back") { try await isHeld() == true }
            #expect(
                try await Broadcasts.post(gateway, #"{"id":"b2","all":true,"type":"invoice_created"}"#).status == 202)
            _ = try await Broadcasts.waitFor("done", gateway, "b2")
            #expect(try await Broadcasts.report(gateway, "b1")["broadcast"]?["stored"]?.integer == 0)
            try await stack.connection.send("XDEL", .text(stream), .text(work ?? ""))
            _ = try await Broadcasts.waitFor("done", gateway, "b1")
        }
    }

    @Test("an audience that cannot be counted delays no other broadcast, and cannot be confirmed yet")
    func uncountable() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let service = Broadcasts.service()
            try await Self.makeUsers(30, in: stack)
            for statement in [
                """
                CREATE FUNCTION carillon.refuse_count() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'no count'; END $$
                """,
                """
                CREATE TRIGGER refuse_count BEFORE UPDATE OF audience ON carillon.broadcasts
                FOR EACH ROW WHEN (NEW.job_id = 'b1') EXECUTE FUNCTION carillon.refuse_count()
                """,
            ] { try await stack.query(statement) }
            _ = try await stack.startDispatcher()
            func send(_ id: String) async throws {
                let answer = try await Broadcasts.post(
                    gateway, #"{"id":"\#(id)","all":true,"type":"invoice_created"}"#)
                #expect(answer.status == 202)
            }
            try await send("b1")
            _ = try await Broadcasts.waitFor("counting", gateway, "b1")
            try await send("b2")
            _ = try await Broadcasts.waitFor("done", gateway, "b2")
            #expect(try await Broadcasts.report(gateway, "b1")["broadcast"]?["state"]?.string == "counting")
            #expect(try await gateway.call(.post, "/v1/jobs/b1/confirm", token: service).status == 409)
            try await stack.query("DROP TRIGGER refuse_count ON carillon.broadcasts")
            _ = try await Broadcasts.waitFor("done", gateway, "b1")
        }
    }

    @Test("an audience that takes too long to count waits for confirmation, and can be confirmed")
    func countedTooLong() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await Self.makeUsers(3, in: stack)
            _ = try await stack.startDispatcher()
            // Reading the subscriptions fails as a statement that runs out of time does.
            for statement in [
                """
                CREATE FUNCTION carillon.too_slow() RETURNS boolean LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'too slow' USING ERRCODE = '57014'; END $$
                """,
                "ALTER TABLE carillon.subscriptions RENAME TO all_subscriptions",
                """
                CREATE VIEW carillon.subscriptions AS SELECT * FROM carillon.all_subscriptions
                WHERE carillon.too_slow()
                """,
            ] { try await stack.query(statement) }
            let job = #"{"id":"b1","topic":"news","type":"breaking_news","title":"Extra"}"#
            #expect(try await Broadcasts.post(gateway, job).status == 202)
            let waiting = try await Broadcasts.waitFor("awaiting_confirmation", gateway, "b1")
            #expect(waiting["broadcast"]?["audience"]?.integer == 100_000_000)
            try await stack.query("DROP VIEW carillon.subscriptions")
            try await stack.query("ALTER TABLE carillon.all_subscriptions RENAME TO subscriptions")
            let confirmed = try await gateway.call(.post, "/v1/jobs/b1/confirm", token: Broadcasts.service())
            #expect(confirmed.status == 200)
            let done = try await Broadcasts.waitFor("done", gateway, "b1")
            #expect(done["broadcast"]?["stored"]?.integer == 3)
        }
    }

    @Test("a broadcast at local times is not final while its parts wait, and cancelling stops them all")
    func localTimes() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await stack.query("INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 30) n")
            _ = try await stack.startDispatcher()
            let service = Broadcasts.service()
            let entry = try await stack.append([
                ("all", "true"), ("type", "invoice_created"), ("title", "Morning"),
                ("deliver_local", "2099-06-01T08:30"),
            ])
            let report = try await Broadcasts.waitFor("done", gateway, entry)
            let waiting = try await Schedules.count(stack)
            #expect(waiting > 1)
            #expect(report["scheduled"]?.integer == waiting)
            #expect(report["broadcast"]?["not_stored"]?["scheduled"]?.integer == 30)
            #expect(report["final"]?.bool == false)
            let answer = try await gateway.call(.delete, "/v1/jobs/\(entry)", token: service)
            #expect(answer.status == 200)
            let last = try await eventualValue("everything is cancelled") {
                let report = try await Broadcasts.report(gateway, entry)
                return report["recipients"]?["cancelled"]?.integer == 30 && report["final"]?.bool == true ? report : nil
            }
            #expect(last["scheduled"]?.integer == 0)
            #expect(last["broadcast"]?["state"]?.string == "cancelled")
            #expect(try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.notifications") == 30)
        }
    }

    @Test("the command sends a broadcast and prints its result")
    func command() async throws {
        try await Stack.with { stack in
            _ = try await stack.startGateway()
            try await Self.makeUsers(30, in: stack)
            _ = try await stack.startDispatcher(environment: ["BROADCAST_CONFIRM_ABOVE": "29"])
            let job = ["broadcast", "--type", "invoice_created", "--title", "Extra"]
            let waiting = try await stack.spawn("dispatcher", job + ["--all"], name: "waiting")
            #expect(try await waiting.waitForExit() == .code(75))
            #expect(waiting.errors().contains("30 users; confirm it"))
            let meant = try await stack.spawn("dispatcher", job + ["--all", "--confirm"], name: "meant")
            _ = try await meant.waitForLine("done: selected 30, stored 28, not stored: 2 opted_out")
            #expect(try await meant.waitForExit() == .code(0))
            let entry = try #require(meant.output().split(separator: "\n").first)
            let shown = try await stack.command(["job", String(entry)])
            #expect(shown.output.contains(#/not stored +2 opted_out/#), "\(shown)")
            let topic = try await stack.spawn("dispatcher", job + ["--topic", "none"], name: "topic")
            _ = try await topic.waitForLine("done: selected 0, stored 0")
            // The command's catalog is newer than the dispatcher's.
            let catalog = "\(stack.directory.path)/newer.yaml"
            try "types: {brand_new: {severity: info, delivery: push}}"
                .write(toFile: catalog, atomically: true, encoding: .utf8)
            let unknown = try await stack.command(
                ["broadcast", "--type", "brand_new", "--title", "Extra", "--all"], environment: ["CATALOG": catalog])
            #expect(unknown.code == 1)
            #expect(unknown.errors.contains("the job is a dead letter: "), "\(unknown.errors)")
            let withoutAudience = try await stack.spawn("dispatcher", job, name: "without-audience")
            #expect(try await withoutAudience.waitForExit() == .code(64))
            #expect(withoutAudience.errors().contains("give --topic or --all"))
        }
    }

    @Test("the command ends with a dead letter if another broadcast has the id, and at once if the job is for later")
    func commandEnds() async throws {
        try await Stack.with { stack in
            _ = try await stack.startBoth()
            func send(_ title: String, _ more: String...) async throws -> (code: Int32, output: String, errors: String)
            {
                let job = ["broadcast", "--type", "invoice_created", "--title", title, "--topic", "none"]
                return try await stack.command(job + more)
            }
            for _ in 0..<2 {
                let sent = try await send("Extra", "--id", "b1")
                #expect(sent.code == 0 && sent.output.contains("done: selected 0"), "\(sent)")
            }
            let other = try await send("Other", "--id", "b1")
            #expect(other.code == 1 && other.errors.contains("the job is a dead letter: id: "), "\(other)")
            let due = ["--field", "deliver_at=2099-06-01T00:00:00Z"]
            let later = try await send("Later", due[0], due[1])
            #expect(later.code == 0 && later.errors.contains("scheduled for 2099-06-01T00:00:00"), "\(later)")
            let confirmed = try await send("Later", due[0], due[1], "--confirm")
            #expect(confirmed.code == 64 && confirmed.errors.contains("deliver_at"), "\(confirmed)")
        }
    }

    @Test("events for everyone and for a topic reach only the sockets of their audience")
    func events() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await Self.makeUsers(3, in: stack)
            _ = try await stack.startDispatcher()
            var sockets: [String: TestSocket] = [:]
            for user in ["u1", "u2", "guest"] {
                sockets[user] = try await TestSocket.synced(port: gateway.port, user: user)
            }
            try await stack.append([("topic", "news"), ("event", "topic"), ("except", #"["u2"]"#), ("args", "[1]")])
            _ = try await sockets["u1"]?.first("event")
            try await stack.append([("all", "true"), ("event", "all"), ("except", #"["u1"]"#)])
            _ = try await sockets["u2"]?.first("event")
            _ = try await sockets["guest"]?.first("event")
            try await stack.append([("users", #"["u1","u2","guest"]"#), ("event", "last")])
            for (user, expected) in [("u1", ["topic", "last"]), ("u2", ["all", "last"]), ("guest", ["all", "last"])] {
                let socket = try #require(sockets[user])
                func names() -> [String] { socket.all("event").compactMap { $0["event"]?["name"]?.string } }
                try await eventually("\(user) has the last one") { names().last == "last" }
                #expect(names() == expected, "\(user)")
            }
            #expect(try await stack.query("SELECT 1 FROM carillon.notifications").isEmpty)
        }
    }

    @Test("an event for a topic waits neither for a confirmation nor for the providers")
    func eventDoesNotWait() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await Self.makeUsers(2, in: stack)
            // Due in the year 5138.
            try await stack.connection.send("ZADD", "carillon:{fcm}:retry:bulk", "99999999999999", "a delivery")
            let environment = Stack.holdingBroadcasts.merging(["BROADCAST_CONFIRM_ABOVE": "1"]) { $1 }
            _ = try await stack.startDispatcher(environment: environment)
            let socket = try await TestSocket.synced(port: gateway.port, user: "u1")
            let job = #"{"id":"b1","topic":"news","type":"breaking_news","title":"Extra"}"#
            #expect(try await Broadcasts.post(gateway, job).status == 202)
            _ = try await Broadcasts.waitFor("awaiting_confirmation", gateway, "b1")
            let confirmed = try await gateway.call(.post, "/v1/jobs/b1/confirm", token: Broadcasts.service())
            #expect(confirmed.status == 200)
            func isHeld() async throws -> Bool? {
                try await Broadcasts.report(gateway, "b1")["broadcast"]?["held"]?.bool
            }
            try await eventually("the notification is held back") { try await isHeld() == true }
            try await stack.append([("topic", "news"), ("event", "score")], stream: "carillon:jobs:bulk")
            _ = try await socket.first("event")
            let isStillHeld = try await isHeld()
            #expect(isStillHeld == true)
        }
    }
}

/// Broadcasts whose text cannot be rendered for some users.
@Suite(.timeLimit(.minutes(10)))
struct BroadcastTextTests {
    private static func catalog(german: String) -> String {
        """
        types:
          notice:
            templates:
              en: {title: "Hello {{name}}"}
              de: {title: "\(german)"}
        """
    }

    /// Creates users u1 to u40, who read German, and u41 to u48, who do not.
    private static func makeReaders(in stack: Stack) async throws {
        try await stack.query("INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 48) n")
        try await stack.query(
            """
            INSERT INTO carillon.user_settings (user_id, locale) SELECT 'u' || n, 'de' FROM generate_series(1, 40) n
            """
        )
    }

    @Test("users whose text fails go to one dead letter per page; after a fix, replaying notifies each once")
    func failingText() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog(german: "Hallo {{name}}{{late}}"))
            let gateway = try await stack.startGateway(environment: environment)
            let first = try await stack.startDispatcher(name: "first", environment: environment)
            try await Self.makeReaders(in: stack)
            let entry = try await stack.append([("all", "true"), ("type", "notice"), ("vars", #"{"name":"all"}"#)])
            let report = try await Broadcasts.waitFor("done", gateway, entry)
            #expect(report["broadcast"]?["stored"]?.integer == 8)
            #expect(report["broadcast"]?["not_stored"]?["text_failed"]?.integer == 40)
            #expect(report["broadcast"]?["not_stored"]?["held"] == nil)
            let letters = try await stack.query("SELECT entry, fields FROM carillon.dead_letters")
            // Forty users fall into several of the sixteen chains, and some chains hold none of the
            // others.
            #expect(letters.count > 1)
            let names = try letters.map { try $0.text(0) }
            #expect(names.allSatisfy { $0.hasPrefix(entry + ".") })
            let reasons = try await stack.deadReasons()
            #expect(Set(reasons.keys) == Set(names))
            let fields: [[[String]]] = try letters.map { row in
                let json = try #require(try row.optionalJSON(1))
                return try JSONParser.parse(json).array?.compactMap { $0.strings } ?? []
            }
            #expect(fields.allSatisfy { letter in !letter.contains { $0.first == "all" } })
            let named = try fields.flatMap { letter -> [String] in
                let users = try #require(letter.first { $0.first == "users" }?.last)
                return try JSONParser.parse(Array(users.utf8)).strings ?? []
            }
            #expect(named.sorted() == (1...40).map { "u\($0)" }.sorted())

            try await first.stop()
            try stack.catalog(Self.catalog(german: "Hallo {{name}}"))
            _ = try await stack.startDispatcher(name: "second", environment: environment)
            let admin = Stack.token(user: "root", scope: .admin)
            let replayed = try await gateway.call(
                .post, "/v1/admin/dead-letters/replay", token: admin, json: #"{"all":true}"#)
            #expect(replayed.body["count"]?.integer == Int64(letters.count))
            try await eventually("all are notified, and the letters are gone") {
                let stored = try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.notifications")
                let left = try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.dead_letters")
                return stored == 48 && left == 0
            }
            // Appends one of them again, as a dispatcher does that crashed right after the append.
            let again = try #require(fields.first)
            try await stack.append(again.map { ($0[0], $0[1]) })
            try await stack.append([("user", "last"), ("type", "notice"), ("vars", #"{"name":"last"}"#)])
            try await eventually("the last one has come") {
                try await stack.texts(user: "last") == [["Hello last", ""]]
            }
            #expect(try await Broadcasts.number(stack, "SELECT count(*) FROM carillon.notifications") == 49)
            let distinct = "SELECT count(DISTINCT user_id) FROM carillon.notifications"
            #expect(try await Broadcasts.number(stack, distinct) == 49)
            #expect(try await stack.texts(user: "u1") == [["Hallo all", ""]])
            #expect(try await stack.texts(user: "u48") == [["Hello all", ""]])
            // The broadcast's report counts them too.
            let counted = try await Broadcasts.report(gateway, entry)["recipients"]?.object?.compactMap {
                $0.value.integer
            }
            #expect(counted?.reduce(0, +) == 48)
        }
    }

    @Test("a repeated page whose text fails for other users makes a dead letter that names them")
    func repeatedPage() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog(german: "Hallo {{name}}{{late}}"))
            let gateway = try await stack.startBoth(environment: environment)
            try await Self.makeReaders(in: stack)
            let entry = try await stack.append([("all", "true"), ("type", "notice"), ("vars", #"{"name":"all"}"#)])
            _ = try await Broadcasts.waitFor("done", gateway, entry)
            // As if the dispatcher had died before the pages were committed, with more users since.
            for statement in [
                "INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(49, 88) n",
                """
                INSERT INTO carillon.user_settings (user_id, locale)
                SELECT 'u' || n, 'de' FROM generate_series(49, 88) n
                """,
                "DELETE FROM carillon.broadcast_pages",
                """
                INSERT INTO carillon.broadcast_chains (broadcast, part)
                SELECT id, part FROM carillon.broadcasts, generate_series(0, 15) part
                """,
                "UPDATE carillon.broadcasts SET state = 'expanding'",
            ] { try await stack.query(statement) }
            _ = try await Broadcasts.waitFor("done", gateway, entry)
            let letters = try await stack.query(
                """
                SELECT DISTINCT u FROM carillon.dead_letters d, jsonb_array_elements(d.fields) f,
                    jsonb_array_elements_text(CASE WHEN f ->> 0 = 'users' THEN (f ->> 1)::jsonb END) u
                """)
            let named = try letters.map { try $0.text(0) }
            #expect(Set(named) == Set((Array(1...40) + Array(49...88)).map { "u\($0)" }))
        }
    }
}
