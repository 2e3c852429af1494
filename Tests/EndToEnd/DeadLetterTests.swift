// Carillon · DeadLetterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Testing

/// Dead letters are listed, replayed and discarded, through the API and by command.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct DeadLetterTests {
    private static func admin() async throws -> String { try await Stack.token(user: "root", scope: .admin) }

    private static func letters(_ gateway: Gateway, _ query: String = "") async throws -> [JSONValue] {
        let answer = try await gateway.call(.get, "/v1/admin/dead-letters\(query)", token: try await Self.admin())
        #expect(answer.status == 200)
        return answer.body["dead_letters"]?.array ?? []
    }

    /// Inserts a dead letter with a job that is valid by now.
    private static func bury(_ stack: Stack, entry: String, _ fields: String, stream: String = "carillon:jobs")
        async throws
    {
        _ = try await stack.query(
            """
            INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at) VALUES ($1, $2, $3, $4, now())
            """,
            .text(stream), .text(entry), .text("type: is not in the catalog"), .jsonb(Array(fields.utf8))
        )
    }

    private static func job(_ user: String, _ title: String) -> String {
        #"[["user","\#(user)"],["type","invoice_created"],["title","\#(title)"]]"#
    }

    @Test("dead letters can be paged, filtered, shown and discarded")
    func list() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            for number in 0..<5 { try await stack.append([("user", "a"), ("type", "unknown-\(number)")]) }
            try await stack.append([("user", "a"), ("users", "[]"), ("type", "invoice_created")])
            try await eventually("all are set aside") { try await Self.letters(gateway).count == 6 }
            let first = try await gateway.call(
                .get, "/v1/admin/dead-letters?limit=4", token: try await Self.admin())
            #expect(first.body["dead_letters"]?.array?.count == 4)
            let cursor = try #require(first.body["next_cursor"]?.string)
            #expect(try await Self.letters(gateway, "?limit=4&cursor=\(cursor)").count == 2)
            #expect(try await Self.letters(gateway, "?reason=type").count == 5)
            #expect(try await Self.letters(gateway, "?type=unknown-3").count == 1)
            #expect(try await Self.letters(gateway, "?stream=carillon:jobs:bulk").isEmpty)
            #expect(try await Self.letters(gateway, "?until=2026-01-01T00:00:00Z").isEmpty)
            let one = try #require(try await Self.letters(gateway, "?type=unknown-3").first)
            let id = try #require(one["id"]?.integer)
            #expect(one["stream"]?.string == "carillon:jobs")
            #expect(one["fields"]?.array?.count == 2)

            let shown = try await stack.spawn("dispatcher", ["dead", "show", "\(id)"], name: "show")
            #expect(try await shown.waitForExit() == .code(0))
            #expect(shown.output().contains("type: unknown-3"))
            let listed = try await stack.spawn(
                "dispatcher", ["dead", "list", "--reason", "type", "--json"], name: "list")
            _ = try await listed.waitForExit()
            #expect(listed.output().split(separator: "\n").count == 5)

            let token = try await Self.admin()
            for path in [
                "/v1/admin/dead-letters", "/v1/admin/dead-letters?colour=red", "/v1/admin/dead-letters?since=x",
            ] {
                #expect(try await gateway.call(.delete, path, token: token).status == 400, "\(path)")
            }
            #expect(try await gateway.call(.delete, "/v1/admin/dead-letters/\(id)", token: token).status == 204)
            #expect(try await gateway.call(.delete, "/v1/admin/dead-letters/\(id)", token: token).status == 404)
            let counted = try await gateway.call(
                .get, "/v1/admin/dead-letters?reason=type&count=true&limit=1", token: token)
            let number = counted.body["count"]?.integer
            #expect(counted.body["replayable"]?.integer == number)
            let discarded = try await gateway.call(.delete, "/v1/admin/dead-letters?reason=type", token: token)
            #expect(discarded.body["count"]?.integer == number)
            #expect(discarded.body["count"]?.integer == 4)
            #expect(try await Self.letters(gateway).count == 1)
            let user = try await Stack.token(user: "ada", scope: .service)
            #expect(try await gateway.call(.get, "/v1/admin/dead-letters", token: user).status == 403)
            let refused = try await stack.spawn("dispatcher", ["dead", "discard"], name: "refused")
            #expect(try await refused.waitForExit() == .code(64))
            let all = try await stack.spawn("dispatcher", ["dead", "discard", "--all"], name: "all")
            #expect(try await all.waitForExit() == .code(0))
            #expect(try await Self.letters(gateway).isEmpty)
        }
    }

    @Test("replayed jobs notify once, however often the replay is requested or appended")
    func replay() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            for number in 0..<30 {
                try await Self.bury(stack, entry: "1795000000000-\(number)", Self.job("ada", "\(number)"))
            }
            let token = try await Self.admin()
            // Two admins at once, one of them twice, before any dispatcher runs.
            let counts = try await withThrowingTaskGroup(of: Int64.self) { group in
                for _ in 0..<3 {
                    group.addTask {
                        let answer = try await gateway.call(
                            .post, "/v1/admin/dead-letters/replay", token: token,
                            json: #"{"reason":"type","rate":1000}"#)
                        #expect(answer.status == 202)
                        return answer.body["count"]?.integer ?? -1
                    }
                }
                return try await group.reduce(into: [Int64]()) { $0.append($1) }
            }
            #expect(counts.reduce(0, +) == 30)
            // Appends one again, as a dispatcher does that crashed right after the append.
            try await stack.append([
                ("user", "ada"), ("type", "invoice_created"), ("title", "7"),
                ("carillon:replay", "carillon:jobs/1795000000000-7"),
            ])
            _ = try await stack.startDispatcher()
            try await eventually("all are notified and gone from the table") {
                let statuses = try await stack.statuses(user: "ada").count
                let left = try await Self.letters(gateway).count
                return statuses == 30 && left == 0
            }
            try await eventually("the stream is empty") {
                try await stack.connection.send("XLEN", "carillon:jobs").integer() == 0
            }
            let count = try await stack.query("SELECT count(*) FROM carillon.notifications")
            #expect(try count.first?.int8(0) == 30)
            // A replay renews the job's age, so it has not expired.
            let fresh = try await stack.query(
                "SELECT count(*) FROM carillon.notifications WHERE created_at > now() - interval '5 minutes'")
            #expect(try fresh.first?.int8(0) == 30)
        }
    }

    @Test("a replayed broadcast counts as new and has not expired")
    func broadcast() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            try await stack.query("INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 20) n")
            let fields = #"[["all","true"],["type","invoice_created"],["title","late"],["id","b1"]]"#
            try await Self.bury(stack, entry: "1795000000000-0", fields)
            let answer = try await gateway.call(
                .post, "/v1/admin/dead-letters/replay", token: try await Self.admin(), json: #"{"all":true}"#)
            #expect(answer.status == 202)
            let report = try await Broadcasts.waitFor("done", gateway, "b1")
            #expect(report["broadcast"]?["stored"]?.integer == 20)
            let fresh = """
                SELECT count(*) FROM carillon.notifications
                WHERE created_at > now() - interval '5 minutes' AND expires_at > now() + interval '1 hour'
                """
            #expect(try await Broadcasts.number(stack, fresh) == 20)
        }
    }

    @Test("dead letters return to jobs and deliveries of any provider, and to no other stream")
    func origins() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let elsewhere = ["carillon:presence:{ada}", "carillon:{Fcm}:deliveries:bulk", "elsewhere"]
            for stream in elsewhere + ["carillon:jobs:bulk", "carillon:{pigeon}:deliveries:bulk"] {
                try await Self.bury(stack, entry: "1795000000000-0", Self.job("ada", "back"), stream: stream)
            }
            let token = try await Self.admin()
            let replayed = try await gateway.call(
                .post, "/v1/admin/dead-letters/replay", token: token, json: #"{"all":true}"#)
            #expect(replayed.status == 202)
            #expect(replayed.body["count"]?.integer == 2)
            let left = try await stack.query(
                "SELECT id, stream FROM carillon.dead_letters WHERE replay_at IS NULL ORDER BY id")
            #expect(try left.map { try $0.text(1) } == elsewhere)
            for row in left {
                let path = "/v1/admin/dead-letters/\(try row.int8(0))/replay"
                #expect(try await gateway.call(.post, path, token: token).status == 422)
            }
        }
    }

    private static func catalog(_ title: String) -> String {
        """
        types:
          reminder:
            lane: bulk
            templates: {en: {title: "\(title)"}, de: {title: "Hallo"}}
        """
    }

    @Test("a scheduled job that failed returns to its lane's jobs and notifies once")
    func due() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog("Hello {{n}}{{late}}"))
            let gateway = try await stack.startGateway(environment: environment)
            let first = try await stack.startDispatcher(name: "first", environment: environment)
            try await stack.append([
                ("users", #"["ada","bob"]"#), ("type", "reminder"), ("vars", #"{"n":1}"#),
                ("deliver_at", Schedules.later(.seconds(3_600))),
            ])
            try await eventually("it waits") { try await Schedules.count(stack) == 1 }
            try await Schedules.makeDue(stack)
            let letter = try await eventualValue("it is set aside") { try await Self.letters(gateway).first }
            #expect(letter["stream"]?.string == "schedules")
            #expect(letter["reason"]?.string?.hasPrefix("vars.late") == true)
            try await first.stop()

            try stack.catalog(Self.catalog("Hello {{n}}"))
            _ = try await stack.startDispatcher(name: "second", environment: environment)
            let id = try #require(letter["id"]?.integer)
            let entry = try #require(letter["entry"]?.string)
            let answer = try await gateway.call(
                .post, "/v1/admin/dead-letters/\(id)/replay", token: try await Self.admin())
            #expect(answer.status == 202)
            #expect(answer.body["count"]?.integer == 1)
            try await eventually("both have it, and the letter is gone") {
                let ada = try await stack.texts(user: "ada")
                let bob = try await stack.texts(user: "bob")
                let left = try await Self.letters(gateway).count
                return ada == [["Hello 1", ""]] && bob == ada && left == 0
            }
            let lanes = try await stack.query("SELECT DISTINCT lane FROM carillon.notifications")
            #expect(try lanes.map { try $0.text(0) } == ["bulk"])
            // Appends it again, as a dispatcher does that crashed right after the append.
            let fields = try #require(letter["fields"]?.array).compactMap { $0.strings }
            try await stack.append(
                fields.map { ($0[0], $0[1]) } + [("carillon:replay", "schedules/\(entry)")],
                stream: "carillon:jobs:bulk")
            try await stack.append(
                [("user", "last"), ("type", "reminder"), ("vars", #"{"n":2}"#)], stream: "carillon:jobs:bulk")
            try await eventually("the last one has come") {
                try await stack.texts(user: "last") == [["Hello 2", ""]]
            }
            let count = try await stack.query("SELECT count(*) FROM carillon.notifications")
            #expect(try count.first?.int8(0) == 3)
        }
    }

    @Test("a replayed delivery starts over; a second failure is a dead letter again; the rate limit holds")
    func deliveries() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let device = try await gateway.register(user: "ada", platform: "android", token: "token-ada")
            _ = try await stack.query("UPDATE carillon.devices SET active = false")
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "late")])
            try await eventually("it is stored") { try await stack.statuses(user: "ada") == ["late": "sent"] }
            let id = try #require(
                try await stack.query("SELECT id::text FROM carillon.notifications").first?.text(0))
            _ = try await stack.query("UPDATE carillon.devices SET active = true")
            _ = try await stack.query("UPDATE carillon.notifications SET status = 'failed'")
            try await Self.bury(
                stack, entry: "1795000000000-0", #"[["d","1 \#(id) \#(device) 8 - ada"]]"#,
                stream: "carillon:{fcm}:deliveries:critical")
            let token = try await Self.admin()
            let letter = try #require(try await Self.letters(gateway).first?["id"]?.integer)
            let answer = try await gateway.call(.post, "/v1/admin/dead-letters/\(letter)/replay", token: token)
            #expect(answer.status == 202)
            #expect(answer.body["count"]?.integer == 1)
            try await eventually("it is pushed") { stack.pushed() == ["token-ada": ["late"]] }
            try await eventually("the letter is gone") {
                try await gateway.call(.post, "/v1/admin/dead-letters/\(letter)/replay", token: token).status == 404
            }

            try await Self.bury(stack, entry: "1795000000000-1", #"[["user","ada"],["type","unknown"]]"#)
            let command = try await stack.spawn(
                "dispatcher", ["dead", "replay", "--type", "unknown", "--json"], name: "replay")
            #expect(try await command.waitForExit() == .code(0))
            #expect(command.output().contains(#""count":1"#))
            try await eventually("it is a dead letter again, under a new entry") {
                let letters = try await Self.letters(gateway, "?type=unknown")
                return letters.count == 1 && letters.first?["entry"]?.string != "1795000000000-1"
            }
            // Ten at five a second.
            for number in 0..<10 {
                try await Self.bury(stack, entry: "1795000000001-\(number)", Self.job("bob", "\(number)"))
            }
            let clock = ContinuousClock()
            let start = clock.now
            _ = try await gateway.call(
                .post, "/v1/admin/dead-letters/replay", token: token, json: #"{"type":"invoice_created","rate":5}"#)
            try await eventually("all are there") { try await stack.statuses(user: "bob").count == 10 }
            #expect(clock.now - start > .milliseconds(1_500))
        }
    }
}
