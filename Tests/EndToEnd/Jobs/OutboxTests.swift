// Carillon · OutboxTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

/// Jobs that an app enqueues in its own transaction notify once, with the commit.
@Suite(.timeLimit(.minutes(10)))
struct OutboxTests {
    private static let insert = "SELECT carillon.enqueue($1)"

    private static func job(_ user: String, _ title: String, _ more: String = "") -> PostgresValue {
        .jsonb(Array(#"{"user":"\#(user)","type":"invoice_created","title":"\#(title)"\#(more)}"#.utf8))
    }

    /// A user's titles in the order of their stream entries.
    private static func titles(_ stack: Stack, user: String) async throws -> [String] {
        let rows = try await stack.query(
            """
            SELECT title FROM carillon.notifications WHERE user_id = $1
            ORDER BY split_part(split_part(job_entry, '/', 2), '-', 1)::int8,
                split_part(split_part(job_entry, '/', 2), '-', 2)::int8
            """,
            .text(user)
        )
        return try rows.map { try $0.text(0) }
    }

    private static func waiting(_ stack: Stack) async throws -> Int64 {
        try await stack.query("SELECT count(*) FROM carillon.outbox").first?.int8(0) ?? 0
    }

    @Test("a commit notifies, a rollback does not, and fields keep their values")
    func commit() async throws {
        try await Stack.with { stack in
            let dispatcher = try await stack.startDispatcher()
            let pool = try #require(stack.database?.pool)
            struct Regret: Error {}
            do {
                try await pool.transaction { transaction in
                    try await transaction.query(Self.insert, Self.job("ada", "never"))
                    throw Regret()
                }
            } catch is Regret {}
            try await pool.transaction { transaction in
                let first = try await transaction.query(
                    Self.insert,
                    Self.job(
                        "ada", "rich", #","data":{"invoice":9,"lines":[1,2.50]},"badge":3,"id":"i-1","state":null"#)
                )
                #expect(try (first.first?.int8(0) ?? 0) > 0)
                try await transaction.query(Self.insert, Self.job("ada", "second"))
            }
            try await eventually("both are there") { try await Self.titles(stack, user: "ada") == ["rich", "second"] }
            let row = try #require(
                try await stack.query(
                    "SELECT data::text, extras ->> 'badge', job_id FROM carillon.notifications WHERE title = 'rich'"
                ).first)
            #expect(try row.text(0) == #"{"lines": [1, 2.50], "invoice": 9}"#)
            #expect(try row.text(2) == "i-1")
            let own = try await stack.query("SELECT job_id FROM carillon.notifications WHERE title = 'second'")
            #expect(try own.first?.text(0).hasPrefix("outbox:") == true)
            try await eventually("nothing waits") { try await Self.waiting(stack) == 0 }
            #expect(dispatcher.exit == nil)
        }
    }

    @Test("an invalid job is refused when it is enqueued, and nothing changes")
    func refusals() async throws {
        // Each is short in binary and has 131,072 digits as text.
        let digits = Array(repeating: "1e131071", count: 20).joined(separator: ",")
        try await TestDatabase.with { database in
            for text in [
                "[]", "null", #"{"user":"a"}"#, #"{"type":"x"}"#, #"{"type":"x","user":"a","all":true}"#,
                #"{"type":null,"user":"a"}"#, #"{"type":"x","user":"a","data":[\#(digits)]}"#,
            ] {
                await #expect(throws: PostgresError.self, "\(text)") {
                    try await database.pool.query(Self.insert, .jsonb(Array(text.utf8)))
                }
            }
            // A plain INSERT bypasses the function.
            for data in ["[\(digits)]", "\"\(String(repeating: "x", count: 3_000_000))\""] {
                await #expect(throws: PostgresError.self) {
                    try await database.pool.query(
                        "INSERT INTO carillon.outbox (fields) VALUES ($1)", .jsonb(Array("{\"data\":\(data)}".utf8)))
                }
            }
            let count = try await database.pool.query("SELECT count(*) FROM carillon.outbox")
            #expect(try count.first?.int8(0) == 0)
        }
    }

    @Test("an invalid row becomes a dead letter and delays nothing")
    func poison() async throws {
        try await Stack.with { stack in
            var deep = "1"
            for _ in 0..<70 { deep = "[\(deep)]" }
            _ = try await stack.query(Self.insert, Self.job("ada", "deep", #","data":{"a":\#(deep)}"#))
            _ = try await stack.query(Self.insert, Self.job("ada", "unknown", #","colour":"red""#))
            _ = try await stack.query(Self.insert, Self.job("ada", "good"))
            _ = try await stack.startDispatcher()
            try await eventually("the good one is there") { try await Self.titles(stack, user: "ada") == ["good"] }
            try await eventually("the others are dead-lettered") {
                let reasons = try await stack.deadReasons()
                return reasons.values.contains { $0.contains("nested too deeply") }
                    && reasons.values.contains { $0.contains("colour") }
            }
            // A row is deleted once its outcome is stored.
            try await eventually("nothing waits") { try await Self.waiting(stack) == 0 }
        }
    }

    @Test("a row keeps no transaction open while Redis is unreachable")
    func withoutRedis() async throws {
        try await Stack.with { stack in
            let proxy = try await TripwireProxy.start(port: stack.redis.port)
            // Redis becomes unreachable at the write to the jobs stream.
            proxy.arm("out of reach", .before)
            _ = try await stack.startDispatcher(environment: ["REDIS_URL": "redis://127.0.0.1:\(proxy.port)/0"])
            _ = try await stack.query(Self.insert, Self.job("ada", "out of reach"))
            try await eventually("Redis is unreachable") { proxy.isTripped }
            try await eventually("the transaction with the outbox's lock ends") {
                try await stack.query(
                    """
                    SELECT 1 FROM pg_locks l
                    JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                    WHERE l.locktype = 'advisory'
                    """
                ).isEmpty
            }
            #expect(try await Self.waiting(stack) == 1)
            await proxy.close()
        }
    }

    @Test("two dispatchers relay each row once, in order unless one is killed")
    func twoDispatchers() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            var first = try await stack.startDispatcher(name: "dispatcher-0")
            _ = try await stack.startDispatcher(name: "dispatcher-1")
            let count = 1_200
            for part in 0..<12 {
                _ = try await stack.query(
                    """
                    SELECT carillon.enqueue(jsonb_build_object('user', 'ada', 'type', 'invoice_created', 'title', n::text))
                    FROM generate_series($1::int8, $2::int8) n
                    """,
                    .int8(Int64(part * 100)), .int8(Int64(part * 100 + 99))
                )
                if part == 5 {
                    first.send(SIGKILL)
                    first = try await stack.startDispatcher(name: "dispatcher-2")
                }
            }
            try await eventually("all are there") {
                try await Self.titles(stack, user: "ada").count == count
            }
            let titles = try await Self.titles(stack, user: "ada")
            // Rows that the killed dispatcher appended and did not delete are appended again;
            // either entry of a row may be taken first.
            #expect(Set(titles.prefix(600)) == Set((0..<600).map { "\($0)" }))
            #expect(titles.dropFirst(600).elementsEqual((600..<count).map { "\($0)" }))
            try await eventually("nothing waits") { try await Self.waiting(stack) == 0 }
        }
    }

    @Test("a dispatcher killed between append and delete relays its row once")
    func killed() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let pool = try #require(stack.database?.pool)
            let dispatcher = try await stack.startDispatcher(name: "dispatcher-0")
            // A row lock lets the relay read the row but not delete it.
            let title = try await pool.transaction { transaction in
                var attempt = 0
                try await eventually("a row is locked before the relay has moved it") {
                    attempt += 1
                    _ = try await stack.query(Self.insert, Self.job("ada", "once-\(attempt)"))
                    return try await !transaction.query("SELECT id FROM carillon.outbox FOR UPDATE").isEmpty
                }
                let title = "once-\(attempt)"
                try await eventually("the job was appended") {
                    try await Self.titles(stack, user: "ada").last == title
                }
                dispatcher.send(SIGKILL)
                return title
            }
            #expect(try await Self.waiting(stack) == 1)
            _ = try await stack.startDispatcher(name: "dispatcher-1")
            try await eventually("the row is moved again") { try await Self.waiting(stack) == 0 }
            _ = try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "after")])
            try await eventually("the job after it is there") {
                try await Self.titles(stack, user: "ada").contains("after")
            }
            let titles = try await Self.titles(stack, user: "ada")
            #expect(titles.suffix(2) == [title, "after"])
            #expect(Set(titles).count == titles.count)
        }
    }

    /// Fills the bulk lane to its limit.
    private static func fillBulk(_ stack: Stack) async throws {
        let script = """
            for _ = 1, tonumber(ARGV[1]) do
                redis.call('XADD', KEYS[1], '*', 'user', 'b', 'type', 'mass', 'title', 'mass')
            end
            """
        // In parts, because Redis answers no one during a script.
        for _ in 0..<100 {
            try await stack.connection.send("EVAL", .text(script), "1", "carillon:jobs:bulk", "10000")
        }
    }

    @Test("a full lane refuses jobs over HTTP, keeps them in the outbox, and lets other lanes' jobs pass")
    func fullLane() async throws {
        try await Stack.with { stack in
            let catalog = try stack.catalog(
                """
                types:
                  mass: {severity: info, delivery: in_app, lane: bulk}
                  alarm: {severity: alert, delivery: in_app, lane: critical}
                """
            )
            let gateway = try await stack.startGateway(environment: catalog)
            let dispatcher = try await stack.startDispatcher(
                environment: catalog.merging(["OVERFLOW_BACKLOG": "0"]) { $1 })
            let metrics = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            func held() async throws -> Double {
                let samples = try await MetricsText.page("\(metrics)/metrics", stack).samples
                return samples.filter { $0.key.hasPrefix("carillon_outbox_held{") }.values.reduce(0, +)
            }
            let pool = try #require(stack.database?.pool)
            try await pool.transaction { transaction in
                // The lock keeps jobs from being stored, so none leaves its lane.
                try await transaction.query("LOCK TABLE carillon.inboxes IN ACCESS EXCLUSIVE MODE")
                try await Self.fillBulk(stack)
                let refused = try await Broadcasts.post(gateway, #"{"type":"mass","user":"b","title":"no"}"#)
                #expect(refused.status == 503)
                #expect(refused.header("retry-after") == "5")
                let taken = try await Broadcasts.post(gateway, #"{"type":"alarm","user":"b","title":"yes"}"#)
                #expect(taken.status == 202)

                // More than one read takes, with the lane from the type and from the job.
                for job in [
                    "'user', 'ada', 'type', 'mass', 'title', 'held'",
                    "'user', 'ada', 'type', 'alarm', 'title', 'held', 'lane', 'bulk'",
                ] {
                    _ = try await stack.query(
                        "SELECT carillon.enqueue(jsonb_build_object(\(job))) FROM generate_series(1, 300)")
                }
                for job in [
                    "'user', 'ada', 'type', 'alarm', 'title', 'critical'",
                    "'user', 'ada', 'type', 'mass', 'title', 'normal', 'lane', 'normal'",
                    "'user', 'ada', 'type', 'no_such_type', 'title', 'unknown'",
                ] {
                    _ = try await stack.query("SELECT carillon.enqueue(jsonb_build_object(\(job)))")
                }
                try await eventually("the others' jobs were moved") {
                    try await stack.query("SELECT 1 FROM carillon.outbox WHERE fields ->> 'title' <> 'held'").isEmpty
                }
                try await eventually("the metric counts held rows") { try await held() > 0 }
                #expect(try await Self.waiting(stack) == 600)
                try await stack.connection.send("XTRIM", "carillon:jobs:bulk", "MAXLEN", "0")
                try await eventually("all were moved") { try await Self.waiting(stack) == 0 }
            }
        }
    }

    @Test("the printed script installs an outbox in another database, and jobs from there arrive")
    func otherDatabase() async throws {
        try await TestDatabase.with(isMigrated: false) { shop in
            try await Stack.with { stack in
                let command = try await stack.spawn("dispatcher", ["outbox-sql"], name: "outbox-sql")
                _ = try await command.waitForExit()
                let script = command.output()
                // Twice, because an operator may run it again.
                for _ in 0..<2 { try await shop.pool.withScriptConnection { try $0.execute(script) } }
                _ = try await stack.startDispatcher(environment: ["OUTBOX_DATABASE_URLS": shop.url])
                try await shop.pool.query(Self.insert, Self.job("ada", "from the shop"))
                try await eventually("it is there") {
                    try await Self.titles(stack, user: "ada") == ["from the shop"]
                }
                try await eventually("nothing waits") {
                    try await shop.pool.query("SELECT FROM carillon.outbox").isEmpty
                }
            }
        }
    }

    @Test("an unreachable outbox database delays nothing, and its password is never logged")
    func unreachable() async throws {
        try await Stack.with { stack in
            let urls = "postgresql://app:hunter2@127.0.0.1:1/x,postgresql://app:hunter2@127.0.0.1:2/x"
            let dispatcher = try await stack.startDispatcher(environment: ["OUTBOX_DATABASE_URLS": urls])
            _ = try await stack.query(Self.insert, Self.job("ada", "own"))
            try await eventually("the own outbox is relayed") {
                try await Self.titles(stack, user: "ada") == ["own"]
            }
            try await eventually("the faults of the others are logged") {
                dispatcher.errors().contains("outbox=1") && dispatcher.errors().contains("outbox=2")
            }
            #expect(!dispatcher.errors().contains("hunter2"))
        }
    }

    @Test("the relay resumes after PostgreSQL was killed")
    func restart() async throws {
        let server = try await PostgresServer.start()
        try await Stack.with(database: server.url) { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            let pool = try PostgresPool(TestDatabase.patientConfiguration(url: server.url), logger: TestLog.logger)
            defer { pool.close() }
            try await pool.query(Self.insert, Self.job("ada", "before"))
            try await eventually("it works before") { socket.titles == ["before"] }
            try await server.kill()
            try await server.start()
            try await eventually("it can be enqueued again") {
                (try? await pool.query(Self.insert, Self.job("ada", "after", #","id":"after""#))) != nil
            }
            try await eventually("it works again") { socket.titles == ["before", "after"] }
        }
    }
}
