// Carillon · UserStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct UserStoreTests {
    @Test("stores records of several users at once and returns the devices of each")
    func records() async throws {
        try await Samples.withStores { database in
            let users = database.users
            let records = ["b", "a", "c"].map { user in
                var record = UserRecord(user: user)
                if user != "c" { record.devices = [Samples.device(user: user, token: "t-\(user)")] }
                record.preferences = ["x": TypePreference(push: false)]
                record.topics = ["news", "news"]
                return record
            }
            for _ in 0..<2 {
                let devices = try await users.put(records)
                #expect(devices.map { $0.map(\.device.token) } == [["t-b"], ["t-a"], []])
            }
            #expect(try await database.people.topics(of: "a") == ["news"])
            #expect(try await database.preferences.preferences(user: "c")["x"]?.push == false)
        }
    }

    /// The users of a call and their tokens.
    private typealias Call = [(user: String, tokens: [String])]

    @Test("simultaneous calls that name the same tokens in different orders all succeed")
    func oppositeOrders() async throws {
        try await Self.put([("ada", ["t1", "t2"])], then: [("eve", ["t2", "t1"])])
    }

    @Test("a call for two users succeeds while another moves a token of the first to the second")
    func movedToken() async throws {
        try await Self.put([("ada", ["t1"]), ("eve", [])], then: [("eve", ["t1"])])
    }

    /// Begins a call while another one has stored its first token, and expects both to succeed.
    private static func put(_ first: Call, then second: Call) async throws {
        try await Samples.withConcurrentStores { database in
            try await Samples.holdInserts(into: "devices", database)
            let users = database.users
            let puts = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                var puts: [Task<Void, any Error>] = []
                for call in [first, second] {
                    let records = call.map { user, tokens in
                        var record = UserRecord(user: user)
                        record.devices = tokens.map { Samples.device(user: user, token: $0) }
                        return record
                    }
                    puts.append(Task { _ = try await users.put(records) })
                    try await eventually("the call waits") { try await Samples.areWaiting(puts.count, database) }
                }
                return puts
            }
            for put in puts { try await put.value }
            #expect(try await database.devices.list(user: "ada").isEmpty, "the second call took the tokens")
            let moved = second.flatMap(\.tokens)
            #expect(try await Set(database.devices.list(user: "eve").map(\.token)) == Set(moved))
        }
    }

    @Test(
        "a call during an erasure waits for it and creates the user again",
        arguments: ["settings", "preferences", "device", "topic"])
    func duringErasure(call: String) async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            _ = try await database.users.put([UserRecord(user: "ada")])
            let storing = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT FROM carillon.users WHERE user_id = 'ada' FOR UPDATE")
                let storing = Task {
                    switch call {
                    case "settings": try await second.preferences.set(user: "ada", settings: UserSettings())
                    case "preferences":
                        try await second.preferences.set(user: "ada", preferences: ["x": TypePreference(push: false)])
                    case "device": _ = try await second.devices.register(Samples.device(user: "ada", token: "t"))
                    default: _ = try await second.topics.subscribe(user: "ada", topic: "news")
                    }
                }
                try await eventually("the call waits") { try await Samples.areWaiting(1, database) }
                try await transaction.query("DELETE FROM carillon.users WHERE user_id = 'ada'")
                return storing
            }
            try await storing.value
            let users = try await database.pool.query("SELECT user_id FROM carillon.users").texts()
            #expect(users == ["ada"])
        }
    }

    @Test(
        "an erasure also deletes the rows of a transaction for which it waits",
        arguments: ["delivery_attempts", "digest_items"])
    func afterWaiting(table: String) async throws {
        try await Samples.withConcurrentStores { database in
            let notification = Samples.notification(1, user: "ada")
            _ = try await database.notifications.store([notification], areRepeats: false)
            func gather(_ number: Int) async throws {
                let item = DigestStore.Item(
                    notification: Samples.notification(number, user: "ada"), key: "k",
                    rule: DigestRule(window: .seconds(60)))
                _ = try await database.digests.gather([item], now: Samples.start)
            }
            func settle() async throws {
                var settlement = DeliveryStore.Settlement()
                settlement.attempts = [
                    DeliveryStore.Attempt(
                        at: Samples.start, user: "ada", notification: notification.id, device: nil, provider: .fcm,
                        kind: "push", attempt: 1, outcome: .accepted)
                ]
                settlement.accepted = [(notification.key, "fcm", DeviceID(high: 1, low: 1))]
                try await database.deliveries.settle(settlement)
            }
            // The window is there, and the next item locks it.
            try await gather(2)
            let isDigest = table == "digest_items"
            try await Samples.holdInserts(into: isDigest ? table : "notifications", orUpdates: true, database)
            let (writing, erasing) = try await database.pool.transaction { transaction in
                try await transaction.query("SELECT pg_advisory_xact_lock(1)")
                let writing = Task { if isDigest { try await gather(3) } else { try await settle() } }
                try await eventually("the writer waits") { try await Samples.areWaiting(1, database) }
                let erasing = Task { try await database.users.erase(user: "ada") }
                try await eventually("the erasure waits") { try await Samples.areWaiting(2, database) }
                return (writing, erasing)
            }
            try await writing.value
            let erasure = try await erasing.value
            #expect(erasure.rows.first { $0.table == table }?.count == (isDigest ? 2 : 1))
            #expect(try await database.pool.query("SELECT FROM carillon.\(table)").isEmpty)
        }
    }

    @Test("lists at most 1,000 topics of a user")
    func manyTopics() async throws {
        try await Samples.withStores { database in
            var record = UserRecord(user: "a")
            record.topics = (0...1_000).map { "t\($0)" }
            _ = try await database.users.put([record])
            let topics = try await database.people.topics(of: "a")
            #expect(topics.count == 1_000)
        }
    }

    @Test("keeps the devices within an app's limit and names those that it switched off")
    func tooManyDevices() async throws {
        try await Samples.withStores { database in
            let users = database.users(limits: DeviceLimits(standard: 2))
            var record = UserRecord(user: "a")
            record.devices = (1...3).map { Samples.device(user: "a", token: "t\($0)", at: Int64($0)) }
            let registrations = try #require(try await users.put([record]).first)
            #expect(registrations.map(\.device.isActive) == [false, true, true])
            #expect(registrations.flatMap(\.switchedOff).map(\.token) == ["t1"])
        }
    }

    @Test("keeps the latest time for known users")
    func lastSeen() async throws {
        try await Samples.withStores { database in
            let users = database.users
            let now = Samples.start
            try await users.markSeen([("a", now), ("b", now)])
            #expect(try await database.pool.query("SELECT FROM carillon.users").count == 0)
            _ = try await users.put([UserRecord(user: "a"), UserRecord(user: "b")])
            try await users.markSeen([("a", now + .seconds(-1)), ("b", now), ("a", now)])
            try await users.markSeen([("a", now + .seconds(5))])
            try await users.markSeen([("b", now + .seconds(-5))])
            try await users.markSeen([("nobody", now), ("a", now)])
            #expect(try await users.lastSeen(["b", "nobody", "a"]) == [now, nil, now + .seconds(5)])
            #expect(try await database.pool.query("SELECT FROM carillon.users").count == 2)
            // A gateway's clock is ahead.
            try await users.markSeen([("a", Timestamp(seconds: 4_000_000_000))])
            let clock = try await database.clock()
            let seen = try #require(try await users.lastSeen(["a"])[0])
            #expect(now + .seconds(5) < seen && seen <= clock)
        }
    }

    @Test("exports every table with rows of a user")
    func exportIsWhole() async throws {
        try await Samples.withStores { database in
            let tables = Set(try await database.users.tables().map(\.name))
            let exported =
                UserExportStore.Single.allCases.map(\.rawValue) + UserExportStore.Section.allCases.map(\.rawValue)
            #expect(tables.subtracting(exported).isEmpty, "add these to UserExportStore")
        }
    }

    @Test("finds a user's rows by index in every table from which an erasure deletes them")
    func erasureIndexes() async throws {
        try await Samples.withStores { database in
            let tables = try await database.users.tables().map(\.name)
            let unindexed = try await database.pool.query(
                """
                SELECT t.name FROM unnest($1) AS t (name)
                WHERE NOT EXISTS (
                    SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                    WHERE i.indrelid = ('carillon.' || t.name)::regclass AND a.attname = 'user_id'
                        AND coalesce(pg_get_expr(i.indpred, i.indrelid), '(user_id IS NOT NULL)')
                            = '(user_id IS NOT NULL)'
                )
                """,
                .texts(tables))
            #expect(try unindexed.map { try $0.text(0) }.isEmpty)
        }
    }

    @Test("two erasures at once take both users out of a list", arguments: ["dead_letters", "schedules"])
    func simultaneousErasures(table: String) async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            let list = Array(#"["ada","bob","eve"]"#.utf8)
            let fields = [(name: "users", value: list[...])]
            try await database.deadLetters.add([
                DeadLetter(stream: "jobs", entry: "1", reason: "r", at: Samples.start, fields: fields)
            ])
            _ = try await database.schedules.add([
                Schedule(
                    id: NotificationID(high: 1, low: 1), fields: [("users", list)], dueAt: Samples.start,
                    createdAt: Samples.start)
            ])
            let erasing = try await database.pool.transaction { transaction in
                // The other erasure, before its commit.
                try await transaction.query(
                    "UPDATE carillon.\(table) SET fields = $1",
                    .jsonb(Array(#"[["users","[\"ada\",\"eve\"]"]]"#.utf8)))
                let erasing = Task {
                    try await table == "schedules"
                        ? second.schedules.erase(user: "ada") : second.deadLetters.erase(user: "ada")
                }
                try await eventually("the erasure waits") { try await Samples.areWaiting(1, database) }
                return erasing
            }
            #expect(try await erasing.value == 1)
            let left = try await database.pool.query("SELECT fields #>> '{0,1}' FROM carillon.\(table)")
            #expect(try left.map { try $0.text(0) } == [#"["eve"]"#])
        }
    }

    /// Stores 25 notifications of ada, some of them read, deleted or unlisted, 25 audit rows of
    /// ada, and one notification of eve.
    private static func fill(_ database: Database) async throws {
        let notifications = (1...25).map { number in
            Samples.notification(number, user: "ada") { if number > 20 { $0.channels = [.push] } }
        }
        let other = Samples.notification(1, user: "eve")
        _ = try await database.notifications.store(notifications + [other], areRepeats: false)
        let ids = notifications.map(\.id)
        _ = try await database.inboxes.markRead(user: "ada", ids: Array(ids[..<5]), at: Samples.start)
        for id in ids[4..<8] { _ = try await database.inboxes.delete(user: "ada", id: id, at: Samples.start) }
        try await database.pool.query(
            """
            INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome)
            SELECT now() + n * interval '1 hour', 'ada', 'fcm', 'push', 1, 'accepted' FROM generate_series(1, 25) n
            """)
    }

    @Test("erases notifications and audit rows in bounded batches, and counts all")
    func erasureBatches() async throws {
        try await Samples.withStores { database in
            try await Self.fill(database)
            let pool = database.pool
            try await pool.query("CREATE TABLE carillon.erased (name text, count int4)")
            try await pool.query(
                """
                CREATE FUNCTION carillon.note_erased() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    INSERT INTO carillon.erased SELECT TG_TABLE_NAME, count(*) FROM gone;
                    RETURN NULL;
                END $$
                """)
            for table in ["notifications", "delivery_attempts"] {
                try await pool.query(
                    """
                    CREATE TRIGGER erased AFTER DELETE ON carillon.\(table) REFERENCING OLD TABLE AS gone
                    FOR EACH STATEMENT EXECUTE FUNCTION carillon.note_erased()
                    """)
            }
            let pending = try await pool.query(
                "SELECT id FROM carillon.notifications WHERE user_id = 'ada' AND status = 'pending'"
            ).ids()
            let erasure = try await database.users.erase(user: "ada", batch: 10)
            #expect(pending.count > 20 && erasure.pending.map(\.id).sorted() == pending.sorted())
            for table in ["notifications", "delivery_attempts"] {
                #expect(erasure.rows.first { $0.table == table }?.count == 25)
                let batches = try await pool.query(
                    "SELECT count FROM carillon.erased WHERE name = $1 AND count > 0 ORDER BY count", .text(table))
                #expect(try batches.map { try $0.int4(0) } == [5, 10, 10], "\(table)")
            }
            #expect(try await pool.query("SELECT user_id FROM carillon.notifications").texts() == ["eve"])
        }
    }

    @Test("an erasure that fails leaves an inbox with the right counts, and another call finishes it")
    func interruptedErasure() async throws {
        try await Samples.withStores { database in
            try await Self.fill(database)
            let (inbox, pool) = (database.inboxes, database.pool)
            let before = try await inbox.state(of: "ada")
            #expect(before.total == 16 && before.unread == 12)
            // Fails the second batch.
            let refused = Samples.notification(15, user: "ada").id
            try await pool.query(
                """
                CREATE FUNCTION carillon.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    RAISE EXCEPTION 'refused';
                END $$
                """)
            try await pool.query(
                """
                CREATE TRIGGER refuse BEFORE DELETE ON carillon.notifications
                FOR EACH ROW WHEN (OLD.id = '\(refused)') EXECUTE FUNCTION carillon.refuse()
                """)
            await #expect(throws: PostgresError.self) { try await database.users.erase(user: "ada", batch: 10) }
            let between = try await inbox.state(of: "ada")
            let page = try await inbox.page(user: "ada", filter: .init(limit: 100))
            #expect(page.notifications.count == 10 && between.total == 10)
            let unread = try await inbox.page(user: "ada", filter: .init(limit: 100, unreadOnly: true))
            #expect(unread.notifications.count == 10 && between.unread == 10)
            #expect(between.version == before.version + 1 && between.floor == between.version, "clients start over")
            try await pool.query("DROP TRIGGER refuse ON carillon.notifications")
            let erasure = try await database.users.erase(user: "ada", batch: 10)
            #expect(erasure.rows.first { $0.table == "notifications" }?.count == 15)
            #expect(try await pool.query("SELECT FROM carillon.inboxes WHERE user_id = 'ada'").isEmpty)
        }
    }

    @Test("a notification for a user is stored while the user's audit is erased")
    func storingDuringErasure() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            try await Self.fill(database)
            let erasing = try await database.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.delivery_attempts IN SHARE MODE")
                let erasing = Task { try await second.users.erase(user: "ada") }
                try await eventually("the erasure waits") { try await Samples.areWaiting(1, database) }
                _ = try await database.notifications.store([Samples.notification(26, user: "ada")], areRepeats: false)
                return erasing
            }
            #expect(try await erasing.value.rows.first { $0.table == "notifications" }?.count == 26)
        }
    }

    @Test("keeps no inbox locked while it waits for broadcasts")
    func erasureWithoutBroadcasts() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            _ = try await database.notifications.store([Samples.notification(1, user: "ada")], areRepeats: false)
            try await database.pool.transaction { transaction in
                try await transaction.query(
                    """
                    LOCK TABLE carillon.broadcasts, carillon.broadcast_chains, carillon.broadcast_pages
                    IN ACCESS EXCLUSIVE MODE
                    """)
                let erasure = try await second.users.erase(user: "ada")
                #expect(erasure.pending.count == 1)
            }
        }
    }

    @Test("erases a user from dead letters beyond the first page")
    func deadLetterPages() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
                SELECT 'jobs', lpad(n::text, 4, '0'), 'r',
                    jsonb_build_array(jsonb_build_array('user', CASE WHEN n = 1200 THEN 'ada' ELSE 'bob' END)), now()
                FROM generate_series(1, 1200) n
                """)
            #expect(try await database.deadLetters.erase(user: "ada") == 1)
            let left = try await database.pool.query("SELECT FROM carillon.dead_letters")
            #expect(left.count == 1_199)
        }
    }

    @Test("an erasure from dead letters, and their export, may take longer than other calls", arguments: [true, false])
    func slowDeadLetters(isErasure: Bool) async throws {
        try await TestDatabase.with(isMigrated: true, { $0.sessionSettings = StoreSession.settings }) { test in
            let database = Database(test.pool)
            let fields = [(name: "user", value: Array("ada".utf8)[...])]
            try await database.deadLetters.add([
                DeadLetter(stream: "jobs", entry: "1", reason: "r", at: Samples.start, fields: fields)
            ])
            var configuration = test.configuration()
            configuration.timeout = .seconds(1)
            let hurried = try PostgresPool(configuration, logger: TestLog.logger)
            defer { hurried.close() }
            let call = try await database.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.dead_letters IN ACCESS EXCLUSIVE MODE")
                let call = Task {
                    let stores = Database(hurried)
                    guard !isErasure else { return try await stores.deadLetters.erase(user: "ada") }
                    return try await stores.exports.page(.deadLetters, user: "ada", after: nil).rows.count
                }
                try await eventually("the call waits") { try await Samples.areWaiting(1, database) }
                // Fails after the second that other calls have.
                await #expect(throws: PostgresError.self) {
                    try await hurried.query("SELECT count(*) FROM carillon.dead_letters")
                }
                return call
            }
            let count = try await call.value
            #expect(count == 1)
        }
    }

    @Test("limits a user's topics but not those that a service adds")
    func topicLimit() async throws {
        try await Samples.withStores { database in
            let topics = database.topics
            let first = try await topics.subscribe(user: "u", topic: "a", limit: 2)
            #expect(first)
            #expect(try await topics.subscribe(user: "u", topic: "b", limit: 2))
            #expect(try await topics.subscribe(user: "u", topic: "c", limit: 2) == false)
            #expect(try await topics.subscribe(user: "u", topic: "a", limit: 2))
            #expect(try await topics.subscribe(user: "u", topic: "c"))
            #expect(try await topics.unsubscribe(user: "u", topic: "c"))
            #expect(try await topics.unsubscribe(user: "u", topic: "c") == false)
        }
    }
}

/// Exports of rows that may name several users.
@Suite(.timeLimit(.minutes(10)))
struct UserExportTests {
    /// The `fields` of all rows of a section, by name.
    private static func fields(
        _ section: UserExportStore.Section,
        _ user: String,
        _ database: Database
    ) async throws -> [[String: JSONValue]] {
        let store = database.exports
        var shown: [[String: JSONValue]] = []
        var cursor: String?
        repeat {
            let page = try await store.page(section, user: user, after: cursor)
            for row in page.rows {
                var fields: [String: JSONValue] = [:]
                for field in try JSONParser.parse(row)["fields"]?.array ?? [] {
                    fields[field.array?.first?.string ?? ""] = field.array?.last
                }
                shown.append(fields)
            }
            cursor = page.cursor
        } while cursor != nil
        return shown
    }

    @Test("exports dead letters that name the user, without other names")
    func deadLetters() async throws {
        try await Samples.withStores { database in
            let store = database.deadLetters
            let letters: [[(name: String, value: String)]] = [
                [("user", "ada"), ("title", "own")],
                [("users", #"["bob","ada"]"#), ("title", "shared"), ("except", #"["eve"]"#)],
                [("topic", "news"), ("title", "for others"), ("except", #"["bob","ada"]"#)],
                [("d", "1 n d 0 - ada")], [("d", "1 n d 0 - bob ada")],
                [("users", "[ada, bob"), ("title", "unreadable")],
                [("job", #"{"title":"unreadable","users":["bob","ada"]}"#)], [("job", #"{"user":"bob"}"#)],
                // Dead letters of other users, some with names that begin alike.
                [("user", "adalbert")], [("users", #"["adalbert"]"#)], [("user", "bob"), ("title", "ada")],
            ]
            try await store.add(
                letters.enumerated().map { number, fields in
                    DeadLetter(
                        stream: "jobs", entry: "\(number)", reason: "r", at: Samples.start,
                        fields: fields.map { (name: $0.name, value: ArraySlice($0.value.utf8)) })
                })
            // Lists in Latin-1: one that names the user, one in a job for the user, and one of
            // others.
            let lists: [(String, String?, String)] = [("91", nil, "ada"), ("92", "ada", "bob"), ("93", nil, "bob")]
            for (entry, user, name) in lists {
                let list: [UInt8] = Array("[\"\(name)\",\"zo".utf8) + [0xe9] + Array("\"]".utf8)
                var fields = [(name: "users", value: list[...])]
                if let user { fields.append((name: "user", value: Array(user.utf8)[...])) }
                try await store.add([
                    DeadLetter(stream: "jobs", entry: entry, reason: "r", at: Samples.start, fields: fields)
                ])
            }
            #expect(
                try await Self.fields(.deadLetters, "ada", database) == [
                    ["user": .string("ada"), "title": .string("own")],
                    ["users": .string(#"["ada"]"#), "title": .string("shared")],
                    ["except": .string(#"["ada"]"#)],
                    ["d": .string("1 n d 0 - ada")],
                    ["users": .null, "title": .string("unreadable")],
                    ["job": .null],
                    ["users": .null],
                    ["user": .string("ada")],
                ])
            // Erasure finds the same number.
            #expect(try await store.erase(user: "ada") == 8)
            #expect(try await Self.fields(.deadLetters, "ada", database).isEmpty)
            #expect(try await store.reason(stream: "jobs", entry: "93") == "r")
        }
    }

    @Test(
        "finds a name that is escaped in a list",
        arguments: [
            (#"a"da"#, #"["bob","a\"da"]"#), (#"a\da"#, #"["bob","a\\da"]"#), ("a/da", #"["bob","a\/da"]"#),
            ("zoé", #"["bob","zo\u00e9"]"#), ("😀", #"["bob","\ud83d\ude00"]"#), ("ada", #"["bob","\u0061da"]"#),
            ("zoé", #"["bob","zoé"]"#),
        ]
    )
    func escaped(user: String, list: String) async throws {
        try await Samples.withStores { database in
            let letters = database.deadLetters
            let schedules = database.schedules
            // A user in no list keeps all, escapes or not.
            let jobs: [[(name: String, value: String)]] = [
                [("users", list)], [("topic", "news"), ("except", list)], [("users", #"["bob","\u00e9ve"]"#)],
            ]
            try await letters.add(
                jobs.enumerated().map { number, fields in
                    DeadLetter(
                        stream: "jobs", entry: "\(number)", reason: "r", at: Samples.start,
                        fields: fields.map { (name: $0.name, value: ArraySlice($0.value.utf8)) })
                })
            _ = try await schedules.add(
                jobs.enumerated().map { number, fields in
                    var schedule = Schedule(
                        id: NotificationID(high: 1, low: UInt64(number)),
                        fields: fields.map { (name: $0.name, value: Array($0.value.utf8)) },
                        dueAt: Samples.start,
                        createdAt: Samples.start
                    )
                    schedule.source = "jobs/\(number)"
                    schedule.content = Int64(number)
                    return schedule
                })
            let own = String(decoding: JSONWriter.bytes(of: .array([.string(user)])), as: UTF8.self)
            let shown: [[String: JSONValue]] = [["users": .string(own)], ["except": .string(own)]]
            #expect(try await Self.fields(.deadLetters, user, database) == shown)
            #expect(try await Self.fields(.schedules, user, database) == shown)
            #expect(try await letters.erase(user: user) == 2)
            #expect(try await schedules.erase(user: user) == 2)
            for section in [UserExportStore.Section.deadLetters, .schedules] {
                #expect(try await Self.fields(section, user, database).isEmpty)
                #expect(try await Self.fields(section, "bob", database).count == 3)
            }
        }
    }

    @Test("exports schedules for several users, without other names, page by page")
    func schedules() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.schedules
                    (id, org_id, part, user_id, source, lane, fields, content, due_at, wake_at, created_at)
                SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, '', '',
                    CASE WHEN n = 1 THEN 'ada' WHEN n = 2 THEN 'bob' END, 'x', 0,
                    jsonb_build_array(
                        CASE WHEN n = 1 THEN '["user", "ada"]'::jsonb
                            WHEN n = 2 THEN '["user", "bob"]'
                            WHEN n % 2 = 1 THEN '["users", "[\\"ada\\",\\"bob\\"]"]'
                            ELSE '["users", "[\\"adalbert\\"]"]' END,
                        jsonb_build_array('title', n::text)
                    ), n, now(), now(), now()
                FROM generate_series(1, 451) n
                """
            )
            let shown = try await Self.fields(.schedules, "ada", database)
            #expect(shown.first == ["user": .string("ada"), "title": .string("1")])
            #expect(shown.dropFirst().first == ["users": .string(#"["ada"]"#), "title": .string("3")])
            #expect(shown.count == 226)
            let bobs = try await Self.fields(.schedules, "bob", database)
            #expect(bobs.count == 226)
            #expect(bobs.allSatisfy { $0["users"] == nil || $0["users"] == .string(#"["bob"]"#) })
            // A page without a hit ends after its rows, rather than at the end of the table.
            let none = try await database.exports.page(.schedules, user: "eve", after: nil)
            #expect(none.rows.isEmpty && none.cursor != nil)
        }
    }

    @Test("a later page of an export begins at its cursor by index")
    func pagePlan() async throws {
        try await Samples.withStores { database in
            let plan = try await Samples.plan(
                of: UserExportStore.statement(.notifications, isFirst: false), "text, text, int4",
                "'u', '\(NotificationID(high: 1, low: 1))', 200", database)
            let lines = plan.split(separator: "\n")
            #expect(lines.contains { $0.contains("Index Cond") && $0.contains("(id > ") }, "\(plan)")
        }
    }

    @Test("finds a user whom an operator looks for by index")
    func searchPlan() async throws {
        try await Samples.withStores { database in
            let plan = try await database.pool.query("EXPLAIN " + PeopleStore.search, .text("a"), .int4(20))
                .map { try $0.text(0) }
            let lookup = plan.drop { !$0.contains("users_pkey") }.dropFirst().first ?? ""
            #expect(lookup.contains("Index Cond: (user_id = "), "\(plan.joined(separator: "\n"))")
        }
    }
}
