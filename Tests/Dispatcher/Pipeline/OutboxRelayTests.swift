// Carillon · OutboxRelayTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Operations
import Support
import Synchronization
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

@Suite("Outbox relay", .timeLimit(.minutes(10)))
struct OutboxRelayTests {
    /// Makes a relay whose clock is a second later at each call.
    private static func make(
        _ database: TestDatabase,
        _ redis: RedisClient,
        _ prefix: String,
        _ configuration: PostgresConfiguration,
        _ registry: PrometheusRegistry
    ) throws -> OutboxRelay {
        let seconds = Mutex(0)
        let dispatcher = try TestDispatcher.make(
            database.pool, redis, Keyspace(prefix: prefix),
            now: {
                seconds.withLock { seconds in
                    seconds += 1
                    return TestDispatcher.now + .seconds(seconds)
                }
            })
        return OutboxRelay(dispatcher: dispatcher, name: "own", configuration: configuration, metrics: registry)
    }

    private static func value(_ name: String, _ registry: PrometheusRegistry) -> Double? {
        let start = "carillon_outbox_\(name){database=\"own\"} "
        let line = registry.render().split(separator: "\n").first { $0.hasPrefix(start) }
        return line.flatMap { Double($0.dropFirst(start.count)) }
    }

    @Test("the age grows while the outbox cannot be read")
    func unreachable() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let nowhere = PostgresConfiguration(
                    connectionString: "postgresql://127.0.0.1:1/none", applicationName: "test")
                let registry = PrometheusRegistry()
                let relay = try Self.make(database, redis, prefix, nowhere, registry)
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask { try? await relay.run() }
                    try await eventually("it has grown") { (Self.value("age", registry) ?? 0) >= 2 }
                    group.cancelAll()
                }
            }
        }
    }

    @Test("an edited letter of a row has the row's time in the ids of its notifications")
    func edited() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let enqueued = TestDispatcher.now - .seconds(60)
            let letters = dispatcher.database.deadLetters
            let deep = String(repeating: "[", count: 70) + String(repeating: "]", count: 70)
            let job = #"{"user":"ada","type":"news","title":"x","data":\#(deep)}"#
            try await database.pool.query("SELECT carillon.enqueue($1)", .jsonb(Array(job.utf8)))
            try await database.pool.query(
                "UPDATE carillon.outbox SET at = $1", .timestamptz(enqueued.microseconds))
            let relay = OutboxRelay(dispatcher: dispatcher, name: "own", configuration: database.configuration())
            let letter = try await withThrowingTaskGroup(
                of: Void.self, returning: DeadLetterStore.Letter.self
            ) { group in
                group.addTask { try? await relay.run() }
                defer { group.cancelAll() }
                return try await eventualValue("the row is a dead letter") {
                    try await letters.list(DeadLetterStore.Filter(), limit: 1).first
                }
            }
            _ = try await letters.replay(
                letter.id,
                with: [("user", Array("ada".utf8)), ("type", Array("news".utf8)), ("title", Array("x".utf8))])
            try await database.pool.query("UPDATE carillon.dead_letters SET replay_at = '2020-01-01'")
            #expect(try await ReplayService(dispatcher: dispatcher).replay().count == 1)

            let group = dispatcher.group(dispatcher.keys.jobs(.normal))
            try await group.create()
            let batch = LaneBatch(lane: .normal, group: group, entries: try await group.readWaiting(count: 100))
            let stored = try await JobIntake(dispatcher: dispatcher).store(batch)
            #expect(stored.toRoute.map(\.notification.id.milliseconds) == [enqueued.milliseconds])
        }
    }

    @Test(
        "an erasure and an export find rows that PostgreSQL accepts but that are no valid jobs",
        arguments: [
            #""title":"a\#(String(repeating: "\u{300}", count: 65))""#, #""badge":1e309"#,
            #""data":\#(String(repeating: "[", count: 70))\#(String(repeating: "]", count: 70))"#,
        ])
    func erasure(member: String) async throws {
        try await TestDispatcher.with(isLeased: false) { dispatcher, database in
            for audience in [#""user":"ada""#, #""users":["bob","ada"]"#, #""user":"bob""#] {
                let job = #"{"type":"news",\#(audience),\#(member)}"#
                try await database.pool.query("SELECT carillon.enqueue($1)", .jsonb(Array(job.utf8)))
            }
            let relay = OutboxRelay(dispatcher: dispatcher, name: "own", configuration: database.configuration())
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try? await relay.run() }
                try await eventually("the rows have moved") {
                    try await database.pool.query("SELECT FROM carillon.outbox").isEmpty
                }
                group.cancelAll()
            }
            let exported = try await dispatcher.database.exports.page(.deadLetters, user: "ada", after: nil)
            #expect(exported.rows.count == 2)
            let erased = try await dispatcher.database.deadLetters.erase(user: "ada")
            #expect(erased == 2)
            let left = try await database.pool.query("SELECT fields::text LIKE '%ada%' FROM carillon.dead_letters")
            let namesUser = try left.map { try $0.bool(0) }
            #expect(namesUser == [false])
        }
    }

    @Test("a long round counts the waiting rows again and again, and its batches grow")
    func longRound() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                try await database.pool.query(
                    """
                    SELECT carillon.enqueue(jsonb_build_object('user', 'ada', 'type', 'news', 'title', n::text))
                    FROM generate_series(1, 2000) n
                    """)
                var configuration = database.configuration()
                // A deletion that waits for the lock below must not end the round.
                configuration.timeout = .seconds(600)
                let registry = PrometheusRegistry()
                let relay = try Self.make(database, redis, prefix, configuration, registry)
                let running = try await database.pool.transaction { transaction in
                    // The third batch has this row, after 256 and 512 others.
                    try await transaction.query(
                        "SELECT FROM carillon.outbox WHERE fields ->> 'title' = '1500' FOR UPDATE")
                    let running = Task { _ = try? await relay.run() }
                    defer { running.cancel() }
                    try await eventually("two batches have moved, and the metric shows it") {
                        Self.value("waiting", registry) == 1_232
                    }
                    try await eventually("the third batch of 1,024 is appended") {
                        let jobs = Keyspace(prefix: prefix).jobs(.normal)
                        return try await redis.send("XLEN", .text(jobs)).integer() == 1_792
                    }
                    return running
                }
                await running.value
            }
        }
    }

    @Test("rows of an organisation whose overflow is full stay, and others pass them")
    func fullOverflow() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                let keys = Keyspace(prefix: prefix)
                try await redis.send("SADD", .text(keys.overflows), "loud")
                // In parts, because a script holds up the server.
                for _ in 0..<10 {
                    let fill = "for n = 1, 100000 do redis.call('XADD', KEYS[1], '*', 'a', 'b') end"
                    try await redis.send("EVAL", .text(fill), "1", .text(keys.overflow("loud")))
                }
                try await database.pool.query(
                    """
                    SELECT carillon.enqueue(
                        jsonb_strip_nulls(
                            jsonb_build_object('user', 'ada', 'type', 'news', 'title', 'x', 'org', o)))
                    FROM unnest(ARRAY['loud', 'calm', NULL]) o
                    """)
                let registry = PrometheusRegistry()
                let relay = try Self.make(database, redis, prefix, database.configuration(), registry)
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask { try? await relay.run() }
                    try await eventually("a round has kept rows") { (Self.value("held", registry) ?? 0) >= 1 }
                    group.cancelAll()
                }
                let left = try await database.pool.query("SELECT fields ->> 'org' FROM carillon.outbox")
                #expect(try left.map { try $0.text(0) } == ["loud"])
            }
        }
    }

    @Test("a job for a time of day means the day on which it was enqueued", arguments: ["user", "topic"])
    func localDay(audience: String) async throws {
        // 11:06:40 UTC, and an hour later.
        let enqueued = TestDispatcher.now
        try await TestDispatcher.with(now: { enqueued + .seconds(3_600) }, isLeased: false) { dispatcher, database in
            let job = #"{"\#(audience)":"ada","type":"news","title":"x","deliver_local":"11:30"}"#
            try await database.pool.query("SELECT carillon.enqueue($1)", .jsonb(Array(job.utf8)))
            try await database.pool.query(
                "UPDATE carillon.outbox SET at = $1", .timestamptz(enqueued.microseconds))
            let relay = OutboxRelay(dispatcher: dispatcher, name: "own", configuration: database.configuration())
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try? await relay.run() }
                try await eventually("the row has moved") {
                    try await database.pool.query("SELECT FROM carillon.outbox").isEmpty
                }
                group.cancelAll()
            }

            let group = dispatcher.group(dispatcher.keys.jobs(.normal))
            try await group.create()
            let batch = LaneBatch(lane: .normal, group: group, entries: try await group.readWaiting(count: 100))
            let stored = try await JobIntake(dispatcher: dispatcher).store(batch)
            #expect(stored.dead.isEmpty)
            let (sql, moment) =
                audience == "user"
                ? ("SELECT due_at FROM carillon.schedules", enqueued + .seconds(1_400))
                : ("SELECT created_at FROM carillon.broadcasts", enqueued)
            let moments = try await database.pool.query(sql).map { try $0.timestamptz(0) }
            #expect(moments == [moment.microseconds])
        }
    }

    @Test("a row stays while no replica has its job, which is appended once in that time and notifies once")
    func replicas() async throws {
        var options = RedisServer.Options()
        // A replica need not wait for others that may come.
        options.arguments = ["--repl-diskless-sync-delay", "0"]
        let master = try await RedisServer.start(options)
        options.arguments += ["--replicaof", "127.0.0.1", "\(master.port)"]
        let replica = try await RedisServer.start(options)
        let configuration = try master.configuration()
        try await TestRedis.with(configuration) { redis in
            try await TestRedis.with(configuration) { own in
                try await TestDatabase.with { database in
                    // Each round of the relay reads the clock about four times.
                    let readings = Mutex(0)
                    let dispatcher = try TestDispatcher.make(
                        database.pool, redis, Keyspace(),
                        now: {
                            readings.withLock { $0 += 1 }
                            return TestDispatcher.now
                        },
                        replicated: ReplicatedWrites(replicas: 1, on: own))
                    let stream = dispatcher.keys.jobs(.normal)
                    func waiting() async throws -> Int64? {
                        try await database.pool.query("SELECT count(*) FROM carillon.outbox").first?.int8(0)
                    }
                    try await eventually("the replica is in step") {
                        try await redis.send("INFO", "replication").string()?.contains("state=online") == true
                    }
                    try await replica.stall()
                    try await database.pool.query(
                        "SELECT carillon.enqueue(jsonb_build_object('user', 'ada', 'type', 'news', 'title', 'once'))")
                    let relay = OutboxRelay(
                        dispatcher: dispatcher, name: "own", configuration: database.configuration())
                    try await withThrowingTaskGroup(of: Void.self) { group in
                        group.addTask { try? await relay.run() }
                        try await eventually("the relay has tried again and again") {
                            readings.withLock { $0 } >= 16
                        }
                        let appended = try await redis.send("XLEN", .text(stream)).integer()
                        #expect(appended == 1)
                        #expect(try await waiting() == 1)
                        replica.resume()
                        try await eventually("the row is gone") { try await waiting() == 0 }
                        group.cancelAll()
                    }

                    let group = dispatcher.group(stream)
                    try await group.create()
                    let entries = try await group.readWaiting(count: 100)
                    #expect(entries.count > 1)
                    for entry in entries {
                        let batch = LaneBatch(lane: .normal, group: group, entries: [entry])
                        let stored = try await JobIntake(dispatcher: dispatcher).store(batch)
                        #expect(stored.dead.isEmpty)
                    }
                    #expect(try await database.pool.query("SELECT FROM carillon.notifications").count == 1)
                }
            }
        }
    }
}
