// Carillon · NotificationStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct NotificationStoreTests {
    @Test("numbers a batch in order for each inbox and skips unlisted rows")
    func versions() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let batch = [
                Samples.notification(1, user: "a"), Samples.notification(2, user: "b"),
                Samples.notification(3, user: "a"),
                Samples.notification(4, user: "a") {
                    $0.status = .suppressed
                    $0.channels = []
                },
                Samples.notification(5, user: "a"),
            ]
            #expect(
                try await store.store(batch, areRepeats: false).outcomes == [
                    .stored(version: 1, unread: 1), .stored(version: 1, unread: 1), .stored(version: 2, unread: 2),
                    .stored(version: 0, unread: 2), .stored(version: 3, unread: 3),
                ]
            )
            let states = try await InboxStore(database).states(["a", "b", "nobody"])
            #expect(states.map(\.version) == [3, 1, 0])
            #expect(states.map(\.unread) == [3, 1, 0])
            #expect(states.map(\.total) == [3, 1, 0])
            // A batch on existing inboxes continues their versions; unknown users are created.
            let next = [
                Samples.notification(6, user: "c"), Samples.notification(7, user: "b"),
                Samples.notification(8, user: "a"), Samples.notification(9, user: "b"),
            ]
            #expect(
                try await store.store(next, areRepeats: false).outcomes == [
                    .stored(version: 1, unread: 1), .stored(version: 2, unread: 2), .stored(version: 4, unread: 4),
                    .stored(version: 3, unread: 3),
                ]
            )
            let users = try await database.pool.query("SELECT user_id FROM carillon.users ORDER BY user_id").map {
                try $0.text(0)
            }
            #expect(users == ["a", "b", "c"])
        }
    }

    @Test("batches of an old and a new user do not deadlock")
    func noDeadlock() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            _ = try await store.store([Samples.notification(1, user: "a")], areRepeats: false)
            let users = PostgresValue.array(PostgresArray(texts: ["a", "b"]))
            let batch = [Samples.notification(2, user: "a"), Samples.notification(3, user: "b")]
            try await withThrowingTaskGroup(of: Void.self) { group in
                // The first statement of a batch that may have repeats, which then goes on.
                try await database.pool.transaction { transaction in
                    try await transaction.query(NotificationSQL.makeInboxes, users)
                    group.addTask {
                        // On a connection of its own, so that no query waits behind it.
                        try await database.pool.transaction { other in
                            _ = try await other.run(NotificationStore.statements(for: batch, areRepeats: false))
                        }
                    }
                    try await eventually("the other waits") {
                        try await database.pool.query(
                            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                        ).count == 1
                    }
                    try await transaction.query(NotificationSQL.lockInboxes, users)
                }
                try await group.waitForAll()
            }
            #expect(try await InboxStore(database).states(["a", "b"]).map(\.version) == [2, 1])
        }
    }

    @Test("changes of the same notifications do not deadlock, whatever their order")
    func changesInOrder() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            let batch = ["a", "b"].enumerated().map { Samples.notification($0, user: $1) }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let rows = batch.reversed().map { $0.key }
            var settlements = [DeliveryStore.Settlement](repeating: DeliveryStore.Settlement(), count: 4)
            settlements[0].accepted = rows.map { ($0, "fcm", DeviceID(high: 1, low: 2)) }
            settlements[1].failed = rows.map { ($0, "unregistered", true) }
            settlements[2].attempts = rows.map {
                DeliveryStore.Attempt(
                    at: Samples.start, user: $0.user, notification: $0.id, device: nil, provider: .fcm, kind: "push",
                    attempt: 1, outcome: .skipped, reason: "cancelled")
            }
            settlements[3].failed = [(rows[0], "unregistered", true)]
            settlements[3].obsolete = [(rows[1], "read")]
            let (accepted, failed, stopped) = (settlements[0], settlements[1], settlements[2])
            let mixed = settlements[3]
            let changes: [(name: String, change: @Sendable () async throws -> Void)] = [
                ("accepted", { _ = try await second.deliveries.settle(accepted) }),
                ("failed", { _ = try await second.deliveries.settle(failed) }),
                ("stopped", { _ = try await second.deliveries.settle(stopped) }),
                ("failed and obsolete", { _ = try await second.deliveries.settle(mixed) }),
                (
                    "marked",
                    { try await second.notifications.mark(rows.map { ($0, .sent, "offline", "inbox") }) }
                ),
                (
                    "delivered",
                    {
                        _ = try await second.notifications.markDelivered(
                            rows.map { ($0, Samples.start) }, via: "socket")
                    }
                ),
            ]
            let lock = "SELECT FROM carillon.notifications WHERE user_id = $1 FOR UPDATE"
            for (name, change) in changes {
                try await database.pool.query(
                    "UPDATE carillon.notifications SET status = $1, status_reason = $2",
                    .text(name == "stopped" ? "cancelled" : "pending"),
                    .text(name == "stopped" ? "in_flight" : "queued"))
                let changing = try await database.pool.transaction { transaction in
                    try await transaction.query(lock, .text("a"))
                    let changing = Task { try await change() }
                    try await eventually("\(name): waits") { try await Samples.areWaiting(1, database) }
                    // A change that had locked the other notification first would now deadlock.
                    try await transaction.query(lock, .text("b"))
                    return changing
                }
                try await changing.value
            }
        }
    }

    @Test("tells a repeat of an entry from a duplicate of its job")
    func repeats() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let first = Samples.notification(1, user: "a", job: "order")
            let second = Samples.notification(2, user: "a", job: "order") { $0.title = "n1" }
            let different = Samples.notification(4, user: "a", job: "order")
            let other = Samples.notification(3, user: "b", job: "order")
            _ = try await store.store([first], areRepeats: false)
            #expect(
                try await store.store([first, second, other], areRepeats: true).outcomes == [
                    .known(version: 1, unread: 1, status: .pending, isOwned: false), .duplicate(of: first.id),
                    .stored(version: 1, unread: 1),
                ]
            )
            #expect(try await store.store([different], areRepeats: false).outcomes == [.conflict(with: first.id)])
            // Delivered again without the repeat flag, as after a failover.
            let plain = Samples.notification(9, user: "a")
            _ = try await store.store([plain], areRepeats: false)
            #expect(
                try await store.store([plain], areRepeats: false).outcomes == [
                    .known(version: 2, unread: 2, status: .pending, isOwned: false)
                ]
            )
            try await store.mark([(plain.key, .pending, "queued", nil)])
            #expect(
                try await store.store([plain], areRepeats: true).outcomes == [
                    .known(version: 2, unread: 2, status: .pending, isOwned: true)
                ]
            )
        }
    }

    @Test("ends the notifications of a summary when it is stored, once, and leaves those that have ended")
    func summary() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let items = (1...3).map { Samples.notification($0, user: "a") }
            _ = try await store.store(items, areRepeats: false)
            let releases = items.map { FollowUpStore.Item(user: "a", notification: $0.id, kind: .release) }
            try await database.followUps.postpone(
                releases.map { ($0, Samples.start, "quiet_hours") }, now: Samples.start)
            try await store.mark([(items[2].key, .sent, nil, "fcm")])
            try await database.pool.query(
                "UPDATE carillon.notifications SET status = 'pending' WHERE id = $1", .id(items[0].id))
            let summary = Samples.notification(4, user: "a") { $0.channels = .push }
            let until = Samples.start + .seconds(30)
            let claimed = try await database.followUps.claim(now: Samples.start, until: until, limit: 10)
            #expect(claimed.count == 3)
            func storeSummary(claimedUntil end: Timestamp) async throws -> [NotificationStore.Outcome]? {
                try await store.storeSummaries(
                    [summary], endingItems: items.map { ($0.key, summary.id) }, claimedUntil: end, at: Samples.start)
            }
            #expect(try await storeSummary(claimedUntil: Samples.start) == nil, "the claim has ended")
            #expect(try await store.load([summary.key]).isEmpty)
            #expect(try await storeSummary(claimedUntil: until) == [.stored(version: 0, unread: 3)])
            #expect(try await database.pool.query("SELECT FROM carillon.follow_ups").isEmpty)
            // As after a commit without an answer.
            #expect(try await storeSummary(claimedUntil: until) == nil)
            let stored = try await store.load(items.map { $0.key })
            #expect(Set(stored.map(\.status)) == [.sent])
            #expect(stored.count { $0.statusReason == "summarised" } == 2)
            let steps = try await database.pool.query(
                "SELECT provider_id FROM carillon.delivery_attempts WHERE outcome = 'summarised'")
            #expect(try steps.map { try $0.text(0) } == Array(repeating: summary.id.description, count: 3))
        }
    }

    @Test("stores concurrent batches to the same inboxes without deadlock, with exact counts")
    func concurrency() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let users = (0..<20).map { "u\($0)" }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for writer in 0..<8 {
                    group.addTask {
                        for round in 0..<10 {
                            let order = writer % 2 == 0 ? users : users.reversed()
                            let batch = order.enumerated().map { index, user in
                                Samples.notification(writer * 100_000 + round * 1_000 + index, user: user)
                            }
                            _ = try await store.store(batch, areRepeats: false)
                        }
                    }
                }
                try await group.waitForAll()
            }
            let states = try await InboxStore(database).states(users)
            #expect(states.allSatisfy { $0.version == 80 && $0.unread == 80 && $0.total == 80 })
            let gaps = try await database.pool.query(
                """
                SELECT count(*) FROM (
                    SELECT user_id, count(DISTINCT version) AS n, max(version) AS top
                    FROM carillon.notifications GROUP BY user_id) v
                WHERE n <> 80 OR top <> 80
                """
            )
            #expect(try gaps.first?.int8(0) == 0)
        }
    }

    @Test("reads preferences of users who have set some, and defaults for the others")
    func preferred() async throws {
        try await Samples.withStores { database in
            let preferences = database.preferences
            try await preferences.set(user: "picky", preferences: ["invoice_created": TypePreference(inApp: false)])
            var settings = UserSettings()
            settings.isOptedOut = true
            try await preferences.set(user: "out", settings: settings)
            let found = try await database.recipients.preferences([
                RecipientStore.Key(user: "plain", type: "invoice_created", category: nil),
                RecipientStore.Key(user: "picky", type: "invoice_created", category: nil),
                RecipientStore.Key(user: "out", type: "x", category: nil),
            ])
            #expect(found.map(\.preference.inApp) == [nil, false, nil])
            #expect(found.map(\.settings.isOptedOut) == [false, false, true])
        }
    }

    @Test("the proofs of a batch change its rows on their pages, so no index changes")
    func proofsOnPages() async throws {
        try await Samples.withStores { database in
            let batch = (0..<256).map { Samples.notification($0, user: "u\($0 % 64)") }
            let store = database.notifications
            _ = try await store.store(batch, areRepeats: false)
            let pages = "SELECT (ctid::text::point)[0]::int8 FROM carillon.notifications ORDER BY user_id, id"
            let before = try await database.pool.query(pages).map { try $0.int8(0) }
            let proven = try await store.markDelivered(batch.map { ($0.key, Samples.start) }, via: "socket")
            let after = try await database.pool.query(pages).map { try $0.int8(0) }
            #expect(proven.count == 256 && before.count == 256)
            #expect(before == after)
        }
    }

    @Test("tells apart users whose ids look alike")
    func exactUsers() async throws {
        try await Samples.withStores { database in
            let composed = "caf\u{E9}"
            let decomposed = "cafe\u{301}"
            let batch = [Samples.notification(1, user: composed), Samples.notification(2, user: decomposed)]
            let outcomes = try await database.notifications.store(batch, areRepeats: false).outcomes
            #expect(outcomes == [.stored(version: 1, unread: 1), .stored(version: 1, unread: 1)])
            let inbox = InboxStore(database)
            let first = try await inbox.page(user: composed, filter: .init(limit: 5))
            let second = try await inbox.page(user: decomposed, filter: .init(limit: 5))
            #expect(try first.titles() == ["n1"])
            #expect(try second.titles() == ["n2"])
        }
    }

    @Test("lists the columns of digests in the order of their table")
    func columns() async throws {
        try await Samples.withStores { database in
            func columns(_ table: String) async throws -> [String] {
                let rows = try await database.pool.query(
                    """
                    SELECT attname::text FROM pg_attribute
                    WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
                    """,
                    .text("carillon.\(table)"))
                return try rows.map { try $0.text(0) }
            }
            let item = NotificationColumns.item.columns.map(\.name)
            let own = ["user_id", "notification_id", "digest_id", "is_single", "gathered_at", "fate"]
            #expect(try await columns("digest_items") == own + item)
            let all = Set(try await columns("notifications"))
            #expect(all.isSuperset(of: NotificationColumns.all.columns.map(\.name)))
        }
    }

    @Test("fails the whole batch with the SQLSTATE, and hides the value, when PostgreSQL rejects text")
    func refusal() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let bad = Samples.notification(2, user: "b") { $0.data = Array("{secret".utf8) }
            let error = await #expect(throws: PostgresError.self) {
                try await store.store([Samples.notification(1, user: "a"), bad], areRepeats: false)
            }
            #expect(error?.isRefusal == true)
            #expect("\(String(describing: error))".contains("secret") == false)
            let states = try await InboxStore(database).states(["a"])
            #expect(states.first?.version == 0)
        }
    }
}

@Suite("Collapsing of notifications", .timeLimit(.minutes(10)))
struct CollapseTests {
    private static func notification(_ number: Int, user: String = "a", key: String? = "k") -> Notification {
        Samples.notification(number, user: user) { $0.collapseKey = key }
    }

    @Test("removes the older notification with its own version and keeps the unread count")
    func replaces() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let old = Self.notification(1)
            let new = Self.notification(2)
            let other = Self.notification(3, key: "other")
            _ = try await store.store([old, other], areRepeats: false)
            let batch = try await store.store([new], areRepeats: false)
            #expect(batch.outcomes == [.stored(version: 3, unread: 3)])
            #expect(batch.replacements.map(\.label) == [old.label])
            #expect(batch.replacements.map(\.newest) == [new.id])
            #expect(batch.replacements.map(\.version) == [4])
            #expect(batch.replacements.map(\.unread) == [2])
            let state = try await InboxStore(database).states(["a"]).first
            #expect(state?.version == 4)
            #expect(state?.unread == 2)
            #expect(state?.total == 2)
            // A repeat, as after a crash, changes nothing.
            let again = try await store.store([new], areRepeats: true)
            #expect(again.outcomes == [.known(version: 3, unread: 2, status: .pending, isOwned: false)])
            #expect(again.replacements.isEmpty)
        }
    }

    @Test("a collapse key replaces nothing of another organisation")
    func organisations() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            var other = Self.notification(2)
            other.org = "b"
            _ = try await store.store([Self.notification(1)], areRepeats: false)
            let batch = try await store.store([other, Self.notification(3)], areRepeats: false)
            #expect(batch.replacements.map(\.newest) == [Self.notification(3).id])
            let live = try await database.pool.query(
                "SELECT title FROM carillon.notifications WHERE deleted_at IS NULL ORDER BY id")
            #expect(try live.map { try $0.text(0) } == ["n2", "n3"])
        }
    }

    @Test("keeps the newest of a batch and does not count a read one as unread")
    func batch() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let inbox = InboxStore(database)
            let first = Self.notification(1)
            _ = try await store.store([first], areRepeats: false)
            _ = try await inbox.markRead(user: "a", ids: [first.id], at: Samples.start)
            let batch = try await store.store(
                [Self.notification(2), Self.notification(3), Self.notification(4, user: "b")], areRepeats: false)
            #expect(batch.outcomes.first == .replaced(by: Self.notification(3).id))
            #expect(Set(batch.replacements.map(\.id)) == [first.id, Self.notification(2).id])
            let state = try await inbox.states(["a"]).first
            #expect(state?.unread == 1)
            #expect(state?.total == 1)
        }
    }

    @Test("replaces a notification that has expired: that ended its delivery, not its place in the inbox")
    func expired() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let old = Self.notification(1)
            _ = try await store.store([old], areRepeats: false)
            try await store.mark([(key: old.key, status: .expired, reason: "expired", via: nil)])
            let new = Self.notification(2)
            #expect(try await store.store([new], areRepeats: false).replacements.map(\.id) == [old.id])
        }
    }

    @Test("keeps no key of a cancelled notification outside the inbox, and stores an older one that arrives late")
    func cancelled() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let cancellations = database.cancellations
            func notification(_ number: Int, of job: String) -> Notification {
                Samples.notification(number, user: "a", job: job) {
                    $0.collapseKey = "k"
                    $0.channels = .push
                }
            }
            let pushed = notification(2, of: "pushed")
            _ = try await store.store([pushed], areRepeats: false)
            #expect(try await cancellations.cancel([pushed.key], at: Samples.start).map(\.id) == [pushed.id])
            try await cancellations.record(CancellationStore.Name(org: "", id: "before"), at: Samples.start)
            let batch = try await store.store([notification(3, of: "before")], areRepeats: false)
            #expect(batch.outcomes == [.cancelled])
            let keys = try await database.pool.query(
                "SELECT FROM carillon.notifications WHERE collapse_key IS NOT NULL")
            #expect(keys.count == 0)
            let late = try await store.store([Self.notification(1)], areRepeats: false)
            #expect(late.outcomes == [.stored(version: 1, unread: 1)])
        }
    }

    @Test("stores an older job that arrives late as replaced")
    func late() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let new = Self.notification(2)
            _ = try await store.store([new], areRepeats: false)
            let old = Self.notification(1)
            #expect(try await store.store([old], areRepeats: false).outcomes == [.replaced(by: new.id)])
            let loaded = try await store.load([old.key, new.key])
            #expect(loaded.first { $0.id == old.id }?.statusReason == "replaced")
            #expect(loaded.first { $0.id == new.id }?.status == .pending)
            #expect(try await InboxStore(database).states(["a"]).first?.unread == 1)
        }
    }

    @Test("stores an older job as replaced if the newer one was deleted or archived, not if it was cancelled")
    func lateAfterRemoval() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let inbox = InboxStore(database)
            let users = ["archives", "cancelled", "deletes"]
            let new = users.map { Self.notification(3, user: $0) }
            _ = try await store.store(new, areRepeats: false)
            _ = try await inbox.archive(user: "archives", id: new[0].id, at: Samples.start)
            _ = try await inbox.delete(user: "cancelled", id: new[1].id, at: Samples.start)
            try await database.pool.query(
                "UPDATE carillon.notifications SET status = 'cancelled' WHERE user_id = 'cancelled'")
            _ = try await inbox.delete(user: "deletes", id: new[2].id, at: Samples.start)
            let old = users.map { Self.notification(1, user: $0) }
            let batch = try await store.store(old, areRepeats: false)
            #expect(batch.outcomes[0] == .replaced(by: new[0].id))
            #expect(batch.outcomes[1] == .stored(version: 3, unread: 1))
            #expect(batch.outcomes[2] == .replaced(by: new[2].id))
            let states = try await inbox.states(users)
            #expect(states.map(\.unread) == [0, 1, 0])
            #expect(states.map(\.total) == [0, 1, 0])
            // A newer job is shown, and one between the two is late as well.
            let next = Self.notification(4, user: "deletes")
            let between = Self.notification(2, user: "archives")
            let later = try await store.store([next, between], areRepeats: false)
            #expect(later.outcomes[1] == .replaced(by: new[0].id))
            #expect(later.replacements.map(\.id) == [between.id])
            #expect(try await inbox.states(users).map(\.unread) == [0, 1, 1])
        }
    }

    @Test("compares each late job of a batch with its own key")
    func lateOfManyKeys() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let inbox = InboxStore(database)
            let new = ["deleted", "live"].enumerated().map { Self.notification(11 + $0, key: $1) }
            _ = try await store.store(new, areRepeats: false)
            _ = try await inbox.delete(user: "a", id: new[0].id, at: Samples.start)
            let old = ["deleted", "live", "alone"].enumerated().map { Self.notification(1 + $0, key: $1) }
            let batch = try await store.store(old, areRepeats: false)
            #expect(batch.outcomes.prefix(2) == [.replaced(by: new[0].id), .replaced(by: new[1].id)])
            #expect(Set(batch.replacements.map(\.id)) == [old[0].id, old[1].id])
            #expect(try await inbox.states(["a"]).map(\.unread) == [2])
        }
    }
}

/// The plans by which PostgreSQL finds the notifications of a batch.
@Suite(.timeLimit(.minutes(10)))
struct LookupPlanTests {
    private static let insert = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
            channels, title, body, status, created_at)
        SELECT 'u' || n, gen_random_uuid(), 1, 'x', '', 'news', 'info', 'push', 'normal', 3, 'hello', '', 'sent', now()
        FROM generate_series(1, 40) n
        """

    @Test("looks a batch up by key, whatever the statistics of the table")
    func lookups() async throws {
        try await Samples.withStores { database in
            let notifications = (0..<256).map { Samples.notification($0, user: "u\($0)") }
            let users = PostgresValue.array(PostgresArray(texts: notifications.map(\.user)))
            let ids = PostgresValue.ids(notifications.map(\.id))
            let texts = PostgresValue.array(PostgresArray(texts: notifications.map(\.title)))
            let statements = [
                PostgresStatement(
                    "EXPLAIN " + NotificationSQL.mark, [users, ids, texts, texts, texts, .bool(false)]),
                PostgresStatement("EXPLAIN " + NotificationSQL.load, [users, ids]),
                PostgresStatement(
                    "EXPLAIN " + DeliverySQL.failed, [users, ids, texts, .bools(notifications.map { _ in true })]),
                PostgresStatement("EXPLAIN " + DeliverySQL.acceptedPushes, [users, ids, texts, ids]),
                PostgresStatement("EXPLAIN " + DeliverySQL.acceptedMail, [users, ids, texts, ids]),
                PostgresStatement("EXPLAIN " + DeliverySQL.lock, [users, ids]),
            ]
            let analyze = "ANALYZE carillon.notifications"
            for preparation in ["SELECT", analyze, Self.insert, analyze] {
                try await database.pool.query(preparation)
                for statement in statements {
                    let results = try await database.pool.run([statement])
                    let plan = try (results.last.map { Array($0) } ?? []).map { try $0.text(0) }
                    let lookups = plan.count { $0.contains("Index Cond: ((user_id = ANY (ARRAY[") }
                    #expect(lookups == 1, "after \(preparation): \(plan.joined(separator: "\n"))")
                }
            }
        }
    }

    @Test("reads what is newer than late notifications of a user once for all their keys")
    func collapseOfManyKeys() async throws {
        try await Samples.withStores { database in
            let notifications = (1...3).map { number in
                Samples.notification(number, user: "a") { $0.collapseKey = "k\(number)" }
            }
            let read = try await Self.readOfNewer(notifications, database)
            #expect(read.contains("loops=1)"), "\(read)")
        }
    }

    @Test("reads nothing that is newer for notifications that are repeated or take no part in collapsing")
    func noCollapse() async throws {
        try await Samples.withStores { database in
            func notification(_ number: Int, change: (inout Notification) -> Void = { _ in }) -> Notification {
                Samples.notification(number, user: "a", job: "j\(number)") {
                    $0.collapseKey = "k"
                    change(&$0)
                }
            }
            let stored = notification(1)
            #expect(try await Self.readOfNewer([stored], database).contains("loops=1)"))
            let cancelled = notification(2)
            try await database.cancellations.record(
                CancellationStore.Name(org: cancelled.org, id: "j2"), at: Samples.start)
            let suppressed = notification(3) {
                $0.status = .suppressed
                $0.channels = []
            }
            let read = try await Self.readOfNewer([stored, cancelled, suppressed], database)
            #expect(read.contains("(never executed)"), "\(read)")
        }
    }

    /// Stores notifications, and returns the line of the plan that reads the rows newer than those
    /// of their keys.
    private static func readOfNewer(_ notifications: [Notification], _ database: Database) async throws -> String {
        let statements = NotificationStore.statements(for: notifications, areRepeats: true)
        let last = try #require(statements.last)
        #expect(last.sql == CollapseSQL.replaceOlder)
        let explained = PostgresStatement("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + last.sql, last.parameters)
        let results = try await database.pool.run(Array(statements.dropLast()) + [explained])
        let plan = try (results.last.map { Array($0) } ?? []).map { try $0.text(0) }
        let condition = try #require(plan.firstIndex { $0.contains("(id > s.start)") })
        return plan[condition - 1]
    }

    @Test("looks for a deleted notification that replaces others by its place in the primary key")
    func collapse() async throws {
        try await Samples.withStores { database in
            let texts = PostgresValue.array(PostgresArray(texts: (0..<256).map { "u\($0)" }))
            let ids = PostgresValue.ids((0..<256).map { Samples.notification($0, user: "u\($0)").id })
            let statement = PostgresStatement("EXPLAIN " + CollapseSQL.replaceOlder, [texts, texts, texts, ids])
            let analyze = "ANALYZE carillon.notifications"
            for preparation in ["SELECT", analyze, Self.insert, analyze] {
                try await database.pool.query(preparation)
                let results = try await database.pool.run([statement])
                let plan = try (results.last.map { Array($0) } ?? []).map { try $0.text(0) }
                #expect(
                    plan.contains { $0.contains("Index Cond: ((user_id = s.user_id) AND (id > s.start))") },
                    "after \(preparation): \(plan.joined(separator: "\n"))")
            }
        }
    }
}
