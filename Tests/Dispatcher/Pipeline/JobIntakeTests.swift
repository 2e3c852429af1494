// Carillon · JobIntakeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import NIOPosix
import Support
import Testing

@testable import Core
@testable import Pipeline
@testable import Storage

@Suite("Intake of jobs", .timeLimit(.minutes(10)))
struct JobIntakeTests {
    private static let everyone = #"["ada","bob","eve"]"#

    /// Takes jobs with the same id, one after the other, and returns the letters that are stored.
    private static func letters(
        of jobs: [[(String, String)]],
        _ prepare: (TestDatabase) async throws -> Void = { _ in }
    ) async throws -> [DeadLetterStore.Letter] {
        let catalog = try CatalogParser.parse([
            (
                "c.yaml",
                """
                types:
                  news:
                    templates:
                      en: {title: "{{n}}"}
                      de: {title: "{{n}} {{late}}"}
                """
            )
        ])
        return try await TestDispatcher.with(catalog: catalog) { dispatcher, database in
            var settings = UserSettings()
            settings.locale = "de"
            _ = try await dispatcher.database.preferences.set(user: "ada", settings: settings)
            try await prepare(database)
            let group = dispatcher.group(dispatcher.keys.jobs(.normal))
            for (number, job) in jobs.enumerated() {
                let fields = [("type", "news"), ("id", "x")] + job
                let entry = StreamEntry(
                    id: "\(TestDispatcher.now.milliseconds)-\(number)",
                    fields: fields.map { ($0.0, Array($0.1.utf8)[...]) })
                let stored = try await JobIntake(dispatcher: dispatcher).store(
                    LaneBatch(lane: .normal, group: group, entries: [entry]))
                try await DeadLetterQueue(dispatcher: dispatcher).setAside(stored.dead)
            }
            return try await dispatcher.database.deadLetters.list(DeadLetterStore.Filter(), limit: 10)
        }
    }

    private static func users(of letter: DeadLetterStore.Letter?) -> String? {
        letter?.fields.first { $0.name == "users" }.map { String(decoding: $0.value, as: UTF8.self) }
    }

    @Test("a text that fails for one user and an id that another user has make one letter with both")
    func both() async throws {
        let letters = try await Self.letters(of: [
            [("user", "bob"), ("vars", #"{"n":1}"#)],
            [("users", Self.everyone), ("vars", #"{"n":2}"#)],
        ])
        #expect(letters.count == 1)
        let reasons = ["vars.late: is missing, in type news, locale de", JobIntake.conflictReason]
        #expect(letters.first?.reason == reasons.joined(separator: "; "))
        #expect(Self.users(of: letters.first) == #"["ada","bob"]"#)
    }

    @Test("a waiting job whose id another has in one time zone gets a dead letter for the users there")
    func otherZone() async throws {
        let local = ("deliver_local", "23:00")
        let letters = try await Self.letters(of: [
            [("user", "bob"), ("vars", #"{"n":1}"#), local], [("users", Self.everyone), ("vars", #"{"n":2}"#), local],
        ]) { database in
            _ = try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, zone) VALUES ('bob', 'Asia/Tokyo')")
        }
        #expect(letters.count == 1)
        #expect(letters.first?.reason.hasPrefix("id: is scheduled already") == true)
        #expect(Self.users(of: letters.first) == #"["bob"]"#)
    }

    @Test("a job that PostgreSQL refuses has a letter with all users, even if a text fails for some")
    func refused() async throws {
        let letters = try await Self.letters(of: [[("users", Self.everyone), ("vars", #"{"n":1}"#)]]) { database in
            _ = try await database.pool.query(
                "ALTER TABLE carillon.notifications ADD CONSTRAINT no_bob CHECK (user_id <> 'bob')")
        }
        #expect(letters.count == 1)
        #expect(letters.first?.reason == "PostgreSQL refused it: SQLSTATE 23514")
        #expect(Self.users(of: letters.first) == Self.everyone)
    }

    @Test("a waiting job that PostgreSQL refuses for one user fails alone")
    func refusedLater() async throws {
        let fields = [("users", Self.everyone), ("vars", #"{"n":1}"#), ("deliver_local", "23:00")]
        let letters = try await Self.letters(of: [fields]) { database in
            _ = try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, zone) VALUES ('bob', 'Asia/Tokyo')")
            _ = try await database.pool.query(
                "ALTER TABLE carillon.schedules ADD CONSTRAINT no_bob CHECK (user_id <> 'bob')")
        }
        #expect(letters.map(\.reason) == ["PostgreSQL refused it: SQLSTATE 23514"])
        #expect(Self.users(of: letters.first) == #"["bob"]"#)
    }

    @Test(
        "halves a batch that outlasts PostgreSQL's time limit, so that the jobs before a locked row are stored",
        arguments: [
            ("notifications", []), ("schedules", [("deliver_at", (TestDispatcher.now + .seconds(3_600)).rfc3339)]),
            ("digest_items", [("digest", "thread")]),
        ] as [(String, [(String, String)])])
    func tooLong(table: String, more: [(String, String)]) async throws {
        try await TestRedis.with { redis, prefix in
            try await TestDatabase.with { database in
                var configuration = database.configuration()
                // PostgreSQL ends a statement after nine tenths of it.
                configuration.timeout = .seconds(3)
                let pool = try PostgresPool(configuration, logger: TestLog.logger)
                defer { pool.close() }
                var type = NotificationType(name: "news")
                type.digest = DigestRule(window: .seconds(60))
                let dispatcher = try TestDispatcher.make(pool, redis, Keyspace(prefix: prefix), types: [type])
                dispatcher.leaseClock.hold()
                let entries = ["ada", "bob"].enumerated().map { number, user in
                    let fields = [("user", user), ("type", "news"), ("title", "hello")] + more
                    return StreamEntry(
                        id: "\(TestDispatcher.now.milliseconds)-\(number)",
                        fields: fields.map { ($0.0, Array($0.1.utf8)[...]) })
                }
                let batch = LaneBatch(
                    lane: .normal, group: dispatcher.group(dispatcher.keys.jobs(.normal)), entries: entries)
                func stored() async throws -> [String] {
                    try await database.pool.query("SELECT user_id FROM carillon.\(table) ORDER BY user_id").texts()
                }
                try await database.pool.withScriptConnection { connection in
                    try connection.execute(
                        """
                        CREATE FUNCTION carillon.await() RETURNS trigger LANGUAGE plpgsql AS $$
                        BEGIN
                            PERFORM pg_advisory_xact_lock(1);
                            RETURN NEW;
                        END $$;
                        CREATE TRIGGER await BEFORE INSERT ON carillon.\(table) FOR EACH ROW
                        WHEN (NEW.user_id = 'bob') EXECUTE FUNCTION carillon.await();
                        """
                    )
                }
                let taken = try await withThrowingTaskGroup(of: StoredBatch.self) { group in
                    try await database.pool.transaction { transaction in
                        try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                        group.addTask { try await JobIntake(dispatcher: dispatcher).store(batch) }
                        try await eventually("the other user's job is stored") { try await stored() == ["ada"] }
                    }
                    return try await group.next()
                }
                #expect(try await stored() == ["ada", "bob"])
                #expect(taken?.toRoute.map(\.notification.user) == (more.isEmpty ? ["ada", "bob"] : []))
                #expect(taken?.dead.isEmpty == true)
            }
        }
    }

    @Test("stores the broadcasts of a batch in one transaction; one that PostgreSQL refuses fails alone")
    func broadcasts() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let group = dispatcher.group(dispatcher.keys.jobs(.normal))
            func store(_ topics: [String]) async throws {
                let entries = topics.map { topic in
                    let fields = [("topic", topic), ("id", topic), ("type", "news"), ("title", "hello")]
                    return StreamEntry(
                        id: "\(TestDispatcher.now.milliseconds)-\(topic.count)",
                        fields: fields.map { ($0.0, Array($0.1.utf8)[...]) })
                }
                _ = try await JobIntake(dispatcher: dispatcher).store(
                    LaneBatch(lane: .normal, group: group, entries: entries))
            }
            func topics() async throws -> [String] {
                try await database.pool.query("SELECT topic FROM carillon.broadcasts ORDER BY topic").texts()
            }
            try await store(["a", "aa", "aaa"])
            let transactions = try await database.pool.query("SELECT DISTINCT xmin::text FROM carillon.broadcasts")
            #expect(transactions.count == 1)
            _ = try await database.pool.query(
                "ALTER TABLE carillon.broadcasts ADD CONSTRAINT no_five CHECK (topic <> 'aaaaa')")
            try await store(["aaaa", "aaaaa", "aaaaaa"])
            #expect(try await topics() == ["a", "aa", "aaa", "aaaa", "aaaaaa"])
            let letters = try await dispatcher.database.deadLetters.list(DeadLetterStore.Filter(), limit: 10)
            #expect(letters.map(\.reason) == ["PostgreSQL refused it: SQLSTATE 23514"])
            #expect(letters.first?.fields.first { $0.name == "topic" }?.value == Array("aaaaa".utf8))
        }
    }

    @Test("a job that is refused or has expired on arrival replaces nothing and leaves no collapse key")
    func withoutChannels() async throws {
        try await TestDispatcher.with { dispatcher, database in
            try await dispatcher.database.preferences.set(
                user: "eve", preferences: ["news": TypePreference(inApp: false, push: false, email: false)])
            let intake = JobIntake(dispatcher: dispatcher)
            let group = dispatcher.group(dispatcher.keys.jobs(.normal))
            func store(_ number: Int, _ more: [(String, String)]) async throws -> StoredBatch {
                let fields = [("type", "news"), ("title", "t"), ("collapse_key", "k")] + more
                let entry = StreamEntry(
                    id: "\(TestDispatcher.now.milliseconds)-\(number)",
                    fields: fields.map { ($0.0, Array($0.1.utf8)[...]) })
                return try await intake.store(LaneBatch(lane: .normal, group: group, entries: [entry]))
            }
            #expect(try await store(1, [("user", "ada")]).toRoute.count == 1)
            let late = [("users", #"["ada","eve"]"#), ("expires_at", "2020-01-01T00:00:00Z")]
            for (number, more) in [(2, late), (3, [("user", "eve")])] {
                #expect(try await store(number, more).replaced.isEmpty)
            }
            let rows = try await database.pool.query(
                "SELECT concat_ws(' ', user_id, status, collapse_key) FROM carillon.notifications")
            #expect(
                try rows.map { try $0.text(0) }.sorted() == [
                    "ada expired", "ada pending k", "eve expired", "eve suppressed",
                ])
        }
    }

    @Test("a job whose dispatcher died before it routed it is routed as stored, and the gate knows of an opt-out since")
    func takenOver() async throws {
        try await TestDispatcher.with(FakeChannel()) { dispatcher, database in
            let (keys, store) = (dispatcher.keys, dispatcher.database.notifications)
            _ = try await dispatcher.database.devices.register(TestDispatcher.phone())
            let connection = ConnectionPresence(
                connection: "c1", node: "n", dialect: .native, state: .active, since: TestDispatcher.now)
            _ = try await dispatcher.presence.register([("ada", connection)])
            try await dispatcher.redis.send("SET", .text(keys.nodeLease("n")), "gateway")
            let heard = HeardFrames()
            let subscription = try RedisSubscription(
                try await TestRedis.configuration(), channels: [keys.nodeChannel("n")],
                on: MultiThreadedEventLoopGroup.singleton.next(), logger: TestLog.logger
            ) { heard.note($0) }
            try await eventually("the node listens") { heard.isReady }
            let fields = [("user", "ada"), ("type", "news"), ("title", "hello"), ("delivery", "push")]
            let entry = StreamEntry(
                id: "\(TestDispatcher.now.milliseconds)-0", fields: fields.map { ($0.0, Array($0.1.utf8)[...]) })
            let group = dispatcher.group(keys.jobs(.normal))
            try await group.create()
            var batch = LaneBatch(lane: .normal, group: group, entries: [entry])
            let stored = try await JobIntake(dispatcher: dispatcher).store(batch)
            let id = try #require(stored.toRoute.first).notification.id

            var settings = UserSettings()
            settings.isOptedOut = true
            try await dispatcher.database.preferences.set(user: "ada", settings: settings)
            batch.areRepeats = true
            let router = Router(dispatcher: dispatcher)
            try await router.routeAndAcknowledge(try await JobIntake(dispatcher: dispatcher).store(batch))
            try await eventually("a frame is there") { !heard.frames.isEmpty }
            #expect(heard.frames.map(\.id) == [id])
            await subscription.close()

            // No socket proves it.
            try await router.fallBack(try await store.load([NotificationKey(user: "ada", id: id)]))
            let stream = keys.deliveries(.fcm, .normal)
            let deliveries = LaneBatch(
                lane: .normal, group: dispatcher.group(stream), entries: try await dispatcher.redis.entries(of: stream))
            let sender = DeliverySender(dispatcher: dispatcher, provider: .fcm, calls: 512)
            let settler = DeliverySettler(
                dispatcher: dispatcher, provider: .fcm, metrics: PipelineMetrics.Deliveries(.fcm))
            try await settler.settle(try await sender.sendAlone(deliveries))
            let states = try await database.pool.query(
                "SELECT concat_ws(' ', status, status_reason, sent_via) FROM carillon.notifications")
            #expect(try states.map { try $0.text(0) } == ["sent opted_out inbox"])
        }
    }
}
