// Carillon · DeadLetterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import HTTP
@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct BadInputTests {
    private struct Case {
        let fields: [(String, [UInt8])]
        let reason: String

        init(_ fields: [(String, String)], _ reason: String) {
            self.fields = fields.map { ($0.0, Array($0.1.utf8)) }
            self.reason = reason
        }

        init(bytes: [(String, [UInt8])], _ reason: String) {
            self.fields = bytes
            self.reason = reason
        }
    }

    private static let type = ("type", "invoice_created")
    private static let cases: [Case] = [
        Case([("user", "u"), type, ("colour", "red")], "colour: is not a field of a job; see docs/jobs.md"),
        Case([("user", "u"), type, ("data", "{")], "data: is not valid JSON"),
        Case([("user", "u"), type, ("data", "[1]")], "data: must be a JSON object"),
        Case([("user", "u"), ("type", "unheard_of")], "type: is not in the catalog"),
        Case([type, ("title", "x")], "user: give one of user, users, topic, all"),
        Case([("user", "u"), ("users", #"["v"]"#), type], "user: give only one of"),
        Case([("user", "u"), type, ("title", String(repeating: "é", count: 256))], "title: is longer than 255"),
        Case([("user", "u"), type, ("body", String(repeating: "x", count: 1_048_576))], "body: is longer than"),
        Case([("user", ""), type], "user: is empty"),
        Case([("user", String(repeating: "u", count: 129)), type], "user: is longer than 128"),
        Case([("user", "u"), type, ("data", #"{"a":"\u0000"}"#)], "the character U+0000"),
        Case([("user", "u"), type, ("data", #"{"a":"\ud800"}"#)], "a lone surrogate"),
        Case(
            bytes: [("user", Array("u".utf8)), ("type", Array("invoice_created".utf8)), ("title", [0x61, 0, 0x62])],
            "title: holds the character U+0000"
        ),
        Case(
            bytes: [("user", Array("u".utf8)), ("type", Array("invoice_created".utf8)), ("title", [0xC3, 0x28])],
            "title: is not valid UTF-8"
        ),
        Case([("user", "u"), type, ("a\0b", "x")], "a\u{FFFD}b: is not a field of a job; see docs/jobs.md"),
        Case(
            [("user", "u"), type, ("carillon:replay", "a\0/1")],
            "carillon:replay: is not a field of a job; see docs/jobs.md"
        ),
        Case(
            [("user", "u"), type, ("carillon:origin", "jobs/" + String(repeating: "1", count: 1_020))],
            "carillon:origin: is not a field of a job; see docs/jobs.md"
        ),
    ]

    @Test("a faulty job goes to the dead letters with its fields and reason, and stops nothing")
    func faults() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "good")
            var expected: [String: String] = [:]
            for (index, item) in Self.cases.enumerated() {
                try await stack.append([("user", "good"), Self.type, ("title", "before \(index)")])
                expected[try await stack.append(bytes: item.fields)] = item.reason
            }
            try await stack.append([("user", "good"), Self.type, ("title", "after")])
            try await eventually("the good ones came") { socket.titles.count == Self.cases.count + 1 }
            try await eventually("the bad ones were dead-lettered") {
                try await stack.deadReasons().count == Self.cases.count
            }
            let reasons = try await stack.deadReasons()
            for (entry, reason) in expected {
                #expect(reasons[entry]?.contains(reason) == true, "\(reason): \(reasons[entry] ?? "nothing")")
            }
            #expect(try await stack.connection.send("EXISTS", "carillon:dead").integer() == 0)
            try await eventually("all are acknowledged") {
                try await stack.connection.send("XLEN", "carillon:jobs").integer() == 0
            }
        }
    }

    @Test("an entry of half a million fields becomes one dead letter, and the next job arrives")
    func countless() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await TestSocket.synced(port: gateway.port, user: "good")
            let field = ("a", Array("1".utf8))
            let entry = try await stack.append(bytes: Array(repeating: field, count: 500_001))
            try await stack.append([("user", "good"), Self.type, ("title", "survivor")])
            _ = try await stack.startDispatcher()
            try await eventually("the next job arrives") { socket.titles == ["survivor"] }
            try await eventually("the entry is dead-lettered") {
                try await stack.deadReasons() == [entry: "fields: are more than 64"]
            }
        }
    }

    @Test("a job after ten thousand garbage entries arrives")
    func garbage() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await TestSocket.synced(port: gateway.port, user: "good")
            for index in 0..<100 {
                var batch = RedisBatch()
                for number in 0..<100 {
                    let noise = (0..<32).map { UInt8(truncatingIfNeeded: index &* 31 &+ number &* 17 &+ $0 &* 7) }
                    batch.append("XADD", "carillon:jobs", "*", .text("\(number)"), .bytes(noise))
                }
                try await stack.connection.run(batch)
            }
            try await stack.append([("user", "good"), Self.type, ("title", "survivor")])
            _ = try await stack.startDispatcher()
            try await eventually("the good job arrives") { socket.titles == ["survivor"] }
            try await eventually("all the garbage is dead-lettered") {
                try await stack.query("SELECT FROM carillon.dead_letters").count == 10_000
            }
        }
    }
}

/// Dead letters are listed, replayed and discarded, through the API and by command.
@Suite(.timeLimit(.minutes(10)))
struct DeadLetterTests {
    private static func admin() async throws -> String { Stack.token(user: "root", scope: .admin) }

    private static func letters(_ gateway: Gateway, _ query: String = "") async throws -> [JSONValue] {
        let answer = try await gateway.call(.get, "/v1/admin/dead-letters\(query)", token: try await Self.admin())
        #expect(answer.status == 200)
        return answer.body["dead_letters"]?.array ?? []
    }

    /// Inserts a dead letter with a job that is valid by now.
    private static func insertLetter(_ stack: Stack, entry: String, _ fields: String, stream: String = "carillon:jobs")
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
            let gateway = try await stack.startBoth()
            for number in 0..<5 { try await stack.append([("user", "a"), ("type", "unknown-\(number)")]) }
            try await stack.append([("user", "a"), ("users", "[]"), ("type", "invoice_created")])
            try await eventually("all are dead-lettered") { try await Self.letters(gateway).count == 6 }
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
                .get, "/v1/admin/dead-letters?reason=type&count=true&limit=1&until=2099-01-01T00:00:00Z", token: token)
            let number = counted.body["count"]?.integer
            #expect(counted.body["replayable"]?.integer == number)
            // It counts up to now.
            #expect(counted.body["until"]?.string?.hasPrefix("2099") == false)
            let discarded = try await gateway.call(.delete, "/v1/admin/dead-letters?reason=type", token: token)
            #expect(discarded.body["count"]?.integer == number)
            #expect(discarded.body["count"]?.integer == 4)
            #expect(try await Self.letters(gateway).count == 1)
            let user = Stack.token(user: "ada", scope: .service)
            #expect(try await gateway.call(.get, "/v1/admin/dead-letters", token: user).status == 403)
            let refused = try await stack.spawn("dispatcher", ["dead", "discard"], name: "refused")
            #expect(try await refused.waitForExit() == .code(64))
            let all = try await stack.spawn("dispatcher", ["dead", "discard", "--all"], name: "all")
            #expect(try await all.waitForExit() == .code(0))
            #expect(try await Self.letters(gateway).isEmpty)
        }
    }

    @Test("a list of large letters comes in several pages")
    func largePages() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await stack.query(
                """
                INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
                SELECT 'carillon:jobs', '1795000000000-' || n, 'tried',
                    jsonb_build_array(jsonb_build_array('users', repeat('u', 1000000))), now()
                FROM generate_series(1, 8) n
                """)
            let token = try await Self.admin()
            var entries: [String] = []
            var pages = 0
            var cursor: String? = ""
            while let place = cursor, pages < 8 {
                let page = try await gateway.call(.get, "/v1/admin/dead-letters?limit=100\(place)", token: token)
                entries += page.body["dead_letters"]?.array?.compactMap { $0["entry"]?.string } ?? []
                pages += 1
                cursor = page.body["next_cursor"]?.string.map { "&cursor=\($0)" }
            }
            #expect((2..<8).contains(pages))
            #expect(entries == (1...8).reversed().map { "1795000000000-\($0)" })
            let listed = try await stack.spawn("dispatcher", ["dead", "list"], name: "list")
            #expect(try await listed.waitForExit() == .code(0))
            #expect(listed.output().split(separator: "\n").count { $0.contains("tried") } == 8)
        }
    }

    @Test("replayed jobs notify once, however often the replay is requested or appended")
    func replay() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            for number in 0..<30 {
                try await Self.insertLetter(stack, entry: "1795000000000-\(number)", Self.job("ada", "\(number)"))
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
            let gateway = try await stack.startBoth()
            try await stack.query("INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 20) n")
            let fields = #"[["all","true"],["type","invoice_created"],["title","late"],["id","b1"]]"#
            try await Self.insertLetter(stack, entry: "1795000000000-0", fields)
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
                try await Self.insertLetter(stack, entry: "1795000000000-0", Self.job("ada", "back"), stream: stream)
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
            let letter = try await eventualValue("it is dead-lettered") { try await Self.letters(gateway).first }
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
            let gateway = try await stack.startBoth()
            let device = try await gateway.register(user: "ada", platform: "android", token: "token-ada")
            _ = try await stack.query("UPDATE carillon.devices SET active = false")
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "late")])
            try await eventually("it is stored") { try await stack.statuses(user: "ada") == ["late": "sent"] }
            let id = try #require(
                try await stack.query("SELECT id::text FROM carillon.notifications").first?.text(0))
            _ = try await stack.query("UPDATE carillon.devices SET active = true")
            _ = try await stack.query("UPDATE carillon.notifications SET status = 'failed'")
            try await Self.insertLetter(
                stack, entry: "1795000000000-0", #"[["d","1 \#(id) \#(device) 8 - ada"]]"#,
                stream: "carillon:{fcm}:deliveries:critical")
            let token = try await Self.admin()
            let letter = try #require(try await Self.letters(gateway).first?["id"]?.integer)
            let answer = try await gateway.call(.post, "/v1/admin/dead-letters/\(letter)/replay", token: token)
            #expect(answer.status == 202)
            #expect(answer.body["count"]?.integer == 1)
            try await eventually("it is pushed") { stack.pushed() == ["token-ada": ["late"]] }
            try await eventually("the dead letter is gone") {
                try await gateway.call(.post, "/v1/admin/dead-letters/\(letter)/replay", token: token).status == 404
            }

            try await Self.insertLetter(stack, entry: "1795000000000-1", #"[["user","ada"],["type","unknown"]]"#)
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
                try await Self.insertLetter(stack, entry: "1795000000001-\(number)", Self.job("bob", "\(number)"))
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

/// Jobs that kill every dispatcher that handles them end as dead letters and take nothing with
/// them.
@Suite(.timeLimit(.minutes(10)))
struct PoisonJobTests {
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
            let taken = try await group.readWaiting(count: 10)
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
                _ = try await stack.startDispatcher(awaitsSweep: false)
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
            try await eventually("the neighbours have arrived") { socket.titles.count >= 3 }
            try await eventually("only the deadly one is dead-lettered") {
                try await stack.deadReasons() == [deadly: Self.reason]
            }
            try await eventually("the dead dispatcher's consumer is gone") {
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
            let store = Database(try #require(stack.database?.pool)).schedules
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
            try await eventually("the neighbours have arrived") { socket.titles.count >= 2 }
            try await eventually("only the deadly one is dead-lettered") {
                try await Array(stack.deadReasons().values) == [Self.reason]
            }
            let letters = try await stack.query("SELECT stream, fields::text FROM carillon.dead_letters")
            #expect(try letters.map { try $0.text(0) } == ["schedules"])
            #expect(try letters.first?.text(1).contains("deadly") == true)
            #expect(socket.titles.sorted() == ["once", "twice"])
        }
    }
}
