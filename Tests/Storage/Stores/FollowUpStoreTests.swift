// Carillon · FollowUpStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Testing

@testable import Storage

@Suite("Follow-ups", .timeLimit(.minutes(10)))
struct FollowUpStoreTests {
    private static let now = Samples.start

    private static func item(_ notification: Notification, _ kind: FollowUp = .release) -> FollowUpStore.Item {
        FollowUpStore.Item(user: notification.user, notification: notification.id, kind: kind)
    }

    @Test("claims due follow-ups, all of a user together, and again unless they are removed")
    func claims() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let batch = [
                Samples.notification(1, user: "a"), Samples.notification(2, user: "a"),
                Samples.notification(3, user: "b"),
            ]
            _ = try await database.notifications.store(batch, areRepeats: false)
            try await store.postpone(
                batch.map { (Self.item($0), Self.now + .seconds(60), "quiet_hours") }, now: Self.now)
            let loaded = try await database.notifications.load(batch.map { $0.key })
            #expect(loaded.allSatisfy { $0.status == .deferred && $0.statusReason == "quiet_hours" })
            #expect(try await store.claim(now: Self.now + .seconds(59), until: Self.now, limit: 10).isEmpty)
            let until = Self.now + .seconds(90)
            let first = try await store.claim(now: Self.now + .seconds(60), until: until, limit: 1)
            #expect(Set(first.map(\.item.user)).count == 1)
            #expect(first.count == (first.first?.item.user == "a" ? 2 : 1))
            #expect(first.allSatisfy { $0.facts?.notification.status == .deferred })
            let rest = try await store.claim(now: Self.now + .seconds(60), until: until, limit: 10)
            #expect(first.count + rest.count == 3)
            // A follow-up that was postponed again stays; the others are removed.
            let again = try #require(first.first)
            try await store.postpone([(again.item, Self.now + .seconds(200), "quiet_hours")], now: Self.now)
            try await store.remove((first + rest).map(\.item), claimedUntil: until)
            #expect(try await store.claim(now: Self.now + .seconds(199), until: until, limit: 10).isEmpty)
            let last = try await store.claim(now: Self.now + .seconds(200), until: until, limit: 10)
            #expect(last.map(\.item) == [again.item])
        }
    }

    @Test("counts a postponed push as recorded only once its notification is deferred, whatever its attention call")
    func recorded() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let notification = Samples.notification(1, user: "a") { $0.channels = [.inApp, .push] }
            _ = try await database.notifications.store([notification], areRepeats: false)
            let due = Self.now + .seconds(60)
            func recorded(_ kind: FollowUp) async throws -> Set<NotificationID> {
                try await store.recorded([(Self.item(notification, kind), due)], now: Self.now)
            }
            try await store.postpone([(Self.item(notification, .attention), due, "quiet_hours")], now: Self.now)
            #expect(try await recorded(.attention) == [notification.id])
            #expect(try await recorded(.release).isEmpty)
            try await store.postpone([(Self.item(notification), due, "quiet_hours")], now: Self.now)
            #expect(try await recorded(.release) == [notification.id])
        }
    }

    @Test("a deferred notification stays so when the mark of its earlier push comes late, until its release")
    func lateMark() async throws {
        try await Samples.withStores { database in
            let batch = [Samples.notification(1, user: "a"), Samples.notification(2, user: "a")]
            let store = database.notifications
            _ = try await store.store(batch, areRepeats: false)
            try await database.followUps.postpone(
                batch.map { (Self.item($0), Self.now + .seconds(60), "quiet_hours") }, now: Self.now)
            func statuses() async throws -> [NotificationStatus] {
                try await store.load(batch.map { $0.key }).map(\.status)
            }
            try await store.mark(batch.map { ($0.key, .pending, "queued", nil) })
            #expect(try await statuses() == [.deferred, .deferred])
            try await store.mark([(batch[0].key, .pending, "queued", nil)], areReleases: true)
            // Its reader may end it while it waits.
            try await store.mark([(batch[1].key, .sent, "read", "inbox")])
            #expect(try await statuses() == [.pending, .sent])
        }
    }

    @Test("remembers enqueued follow-ups until they end, and recalls them when streams are lost")
    func handedOn() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let mail = (1...2).map { Samples.notification($0, user: "a") }
            let push = Samples.notification(3, user: "b")
            _ = try await database.notifications.store(mail + [push], areRepeats: false)
            let taken = Self.item(mail[0], .email)
            let direct = Self.item(mail[1], .email)
            let attention = Self.item(push, .attention)
            try await store.postpone([(taken, Self.now, "unread"), (attention, Self.now, "idle")], now: Self.now)
            let until = Self.now + .seconds(30)
            let due = try await store.claim(now: Self.now, until: until, limit: 10)
            #expect(due.count == 2)
            #expect(due.allSatisfy { !$0.wasHandedOn })
            // Dispatchers do this once the streams have the entries.
            try await store.remember([taken, attention], claimedUntil: until, now: Self.now)
            try await store.remove([taken, attention], claimedUntil: until)
            try await store.expect([direct], until: until)
            try await store.remember([direct], claimedUntil: until, now: Self.now)
            #expect(try await store.claim(now: Self.now + .seconds(3_600), until: until, limit: 10).isEmpty)

            // The streams may have lost what is just being handed to them.
            try await store.expect([direct], until: Self.now + .seconds(120))
            try await store.recallExpected(now: Self.now + .seconds(60))
            let recalled = try await store.claim(now: Self.now + .seconds(60), until: until, limit: 10)
            #expect(recalled.map(\.item) == [direct])
            try await store.remember([direct], claimedUntil: Self.now + .seconds(120), now: Self.now)
            #expect(try await store.claim(now: until, until: until + .seconds(30), limit: 10).map(\.item) == [direct])
            try await store.remember([direct], claimedUntil: until + .seconds(30), now: Self.now)

            let lost = Self.now + .seconds(3_600)
            #expect(try await store.recall(handedOnSince: Self.now + .seconds(1), until: lost, now: lost) == nil)
            #expect(try await store.claim(now: lost, until: until, limit: 10).isEmpty)
            // In pages, as there may be hundreds of thousands.
            let next = try await store.recall(handedOnSince: Self.now, until: lost, now: lost, limit: 2)
            #expect(next == Self.now)
            #expect(try await store.recall(handedOnSince: Self.now, until: lost, now: lost, limit: 2) == nil)
            let again = try await store.claim(now: lost, until: lost + .seconds(30), limit: 10)
            #expect(again.map(\.item) == [taken, direct, attention])
            #expect(again.allSatisfy { !$0.wasHandedOn })
            try await store.remember([taken, direct, attention], claimedUntil: lost + .seconds(30), now: lost)

            var settlement = DeliveryStore.Settlement()
            for (item, isAccepted) in [(taken, false), (attention, true)] {
                settlement.finishedFollowUps.append(
                    (NotificationKey(user: item.user, id: item.notification), item.kind, isAccepted))
            }
            try await database.deliveries.settle(settlement)
            // A follow-up whose end is never reported is dropped in the end.
            let left = try await store.claim(now: lost + .seconds(30 * 24 * 3_600), until: until, limit: 10)
            #expect(left.map(\.item) == [direct])
            #expect(left.allSatisfy { $0.wasHandedOn })
        }
    }

    @Test("recalls mail only once that is enqueued again while the repair goes on")
    func recalledOnce() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let notification = Samples.notification(1, user: "a")
            _ = try await database.notifications.store([notification], areRepeats: false)
            let item = Self.item(notification, .email)
            let until = Self.now + .seconds(30)
            try await store.expect([item], until: until)
            try await store.remember([item], claimedUntil: until, now: Self.now)
            let lost = Self.now + .seconds(3_600)
            #expect(try await store.recall(handedOnSince: Self.now, until: lost, now: lost, limit: 1) == Self.now)
            let again = lost + .seconds(60)
            let held = again + .seconds(30)
            #expect(try await store.claim(now: again, until: held, limit: 10).map(\.item) == [item])
            try await store.remember([item], claimedUntil: held, now: again)
            #expect(try await store.recall(handedOnSince: Self.now, until: lost, now: lost, limit: 1) == nil)
            #expect(try await store.claim(now: held, until: held, limit: 10).isEmpty)
        }
    }

    @Test("ends an attention call once all devices have ended, but not one that quiet hours postponed")
    func endedAttention() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let (first, second) = (Samples.notification(1, user: "a"), Samples.notification(2, user: "a"))
            _ = try await database.notifications.store([first, second], areRepeats: false)
            try await database.pool.query(
                """
                INSERT INTO carillon.devices (id, user_id, platform, provider, app, environment, token, registered_at,
                    last_used_at)
                VALUES (gen_random_uuid(), 'a', 'android', 'fcm', 'default', 'production', 'phone', now(), now())
                """
            )
            let items = [Self.item(first, .attention), Self.item(second, .attention)]
            try await store.postpone(
                [(items[0], Self.now, "idle"), (items[1], Self.now, "quiet_hours")], now: Self.now)
            func end() async throws {
                var settlement = DeliveryStore.Settlement()
                settlement.finishedFollowUps = items.map {
                    (NotificationKey(user: $0.user, id: $0.notification), $0.kind, false)
                }
                try await database.deliveries.settle(settlement)
            }
            func record(_ outcome: String) async throws {
                try await database.pool.query(
                    """
                    INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, device_id, provider, kind, attempt,
                        outcome)
                    SELECT now(), 'a', n.id, d.id, 'fcm', 'push', 1, $1
                    FROM carillon.notifications n CROSS JOIN carillon.devices d
                    """,
                    .text(outcome)
                )
            }
            func left() async throws -> Int { try await database.pool.query("SELECT 1 FROM carillon.follow_ups").count }
            try await record("retry")
            try await end()
            #expect(try await left() == 2)
            try await record("failed")
            try await end()
            let rest = try await store.claim(now: Self.now, until: Self.now + .seconds(30), limit: 10)
            #expect(rest.map(\.item) == [items[1]])
        }
    }

    @Test("claims at most a page of one user, oldest first, and never part of another user")
    func pages() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let many = (0..<FollowUpStore.userLimit + 10).map { Samples.notification($0, user: "many") }
            let few = (2_000..<2_003).map { Samples.notification($0, user: "few") }
            _ = try await database.notifications.store(many + few, areRepeats: false)
            try await store.postpone(many.map { (Self.item($0), Self.now, "quiet_hours") }, now: Self.now)
            try await store.postpone(few.map { (Self.item($0), Self.now + .seconds(1), "quiet_hours") }, now: Self.now)
            let at = Self.now + .seconds(1)
            let until = Self.now + .seconds(90)
            let first = try await store.claim(now: at, until: until, limit: FollowUpStore.userLimit + 1)
            #expect(first.map(\.item.notification) == many.prefix(FollowUpStore.userLimit).map(\.id))
            let second = try await store.claim(now: at, until: until, limit: FollowUpStore.userLimit + 1)
            #expect(second.count == 13)
            #expect(second.filter { $0.item.user == "many" }.map(\.item.notification) == many.suffix(10).map(\.id))
            #expect(try await store.claim(now: at, until: until, limit: 10).isEmpty)
        }
    }

    @Test("claims critical follow-ups first without starving older ones")
    func critical() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let others = (0..<20).map { Samples.notification($0, user: "other-\($0)") }
            let critical = (100..<103).map { Samples.notification($0, user: "urgent-\($0)") }
            _ = try await database.notifications.store(others + critical, areRepeats: false)
            try await store.postpone(
                (others + critical).enumerated().map {
                    (Self.item($1), Self.now + .milliseconds(Int64($0)), "quiet_hours")
                },
                critical: Set(critical.map(\.id)), now: Self.now)
            let at = Self.now + .seconds(1)
            let until = Self.now + .seconds(90)
            func claim() async throws -> Set<NotificationID> {
                Set(try await store.claim(now: at, until: until, limit: 4).map(\.item.notification))
            }
            #expect(try await claim() == Set((critical[..<2] + others[..<2]).map(\.id)))
            #expect(try await claim() == Set((critical[2...] + others[2..<5]).map(\.id)))
            #expect(try await claim() == Set(others[5..<9].map(\.id)))
        }
    }

    @Test("finds critical follow-ups among 20,000 by an index of their own")
    func criticalPlan() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.follow_ups (user_id, notification_id, kind, due_at, critical)
                SELECT 'u' || n % 5000, gen_random_uuid(), 'release', timestamptz '2026-12-01' + n * interval '1 second',
                    n % 1000 = 0
                FROM generate_series(1, 20000) AS n
                """
            )
            try await database.pool.query("ANALYZE carillon.follow_ups")
            let plan = try await database.pool.query(
                """
                EXPLAIN SELECT f.user_id FROM carillon.follow_ups f
                WHERE f.critical AND f.due_at <= timestamptz '2027-01-01' ORDER BY f.due_at LIMIT 512
                """
            )
            let lines = try plan.map { try $0.text(0) }
            #expect(lines.contains { $0.contains("follow_ups_critical_due") }, "\(lines)")
        }
    }

    @Test("gives no follow-up to two dispatchers")
    func concurrency() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let batch = (0..<200).map { Samples.notification($0, user: "u\($0 % 20)") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            try await store.postpone(batch.map { (Self.item($0), Self.now, "quiet_hours") }, now: Self.now)
            let until = Self.now + .seconds(30)
            var taken: [FollowUpStore.Item] = []
            while taken.count < batch.count {
                taken += try await withThrowingTaskGroup(of: [FollowUpStore.Due].self) { group in
                    for _ in 0..<4 {
                        group.addTask { try await store.claim(now: Self.now, until: until, limit: 16) }
                    }
                    return try await group.reduce(into: []) { $0 += $1 }
                }.map(\.item)
            }
            #expect(Set(taken.map(\.notification)).count == taken.count)
        }
    }

    @Test("finds due follow-ups among 20,000 by index")
    func plan() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.follow_ups (user_id, notification_id, kind, due_at)
                SELECT 'u' || n % 5000, gen_random_uuid(), 'release', timestamptz '2026-12-01' + n * interval '1 second'
                FROM generate_series(1, 20000) AS n
                """
            )
            try await database.pool.query("ANALYZE carillon.follow_ups")
            let plan = try await database.pool.query(
                """
                EXPLAIN SELECT f.user_id FROM carillon.follow_ups f
                WHERE f.due_at <= timestamptz '2026-12-01 00:01:00' ORDER BY f.due_at LIMIT 512
                """
            )
            let lines = try plan.map { try $0.text(0) }
            #expect(lines.contains { $0.contains("follow_ups_due") }, "\(lines)")
        }
    }

    @Test("removes finished follow-ups by key, without comparing every pair")
    func removalPlan() async throws {
        try await Samples.withStores { database in
            let plan = try await Samples.plan(
                of: FollowUpStore.delete, "text[], uuid[], text[], timestamptz",
                "'{a}', ARRAY[gen_random_uuid()], '{release}', now()", database)
            #expect(plan.contains("follow_ups_pkey"), "\(plan)")
            #expect(!plan.contains("follow_ups_due"), "\(plan)")
        }
    }

    @Test("keeps one follow-up for two devices of a user, with the earlier moment")
    func twice() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let notification = Samples.notification(1, user: "a")
            _ = try await database.notifications.store([notification], areRepeats: false)
            let item = Self.item(notification)
            try await store.postpone(
                [(item, Self.now + .seconds(60), "quiet_hours"), (item, Self.now + .seconds(30), "quiet_hours")],
                now: Self.now)
            let until = Self.now + .seconds(90)
            #expect(try await store.claim(now: Self.now + .seconds(29), until: until, limit: 10).isEmpty)
            let taken = try await store.claim(now: Self.now + .seconds(30), until: until, limit: 10)
            #expect(taken.map(\.item) == [item])
        }
    }

    @Test("makes a hastened follow-up due earlier unless it was postponed again")
    func makeDue() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let batch = (1...3).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let items = batch.map { Self.item($0) }
            let due = Self.now + .seconds(500)
            try await store.postpone(items.map { ($0, due, "quiet_hours") }, now: Self.now)
            try await store.postpone([(items[1], due + .seconds(1), "quiet_hours")], now: Self.now)
            try await store.makeDue(items[..<2].map { ($0, due) }, now: Self.now)
            let taken = try await store.claim(now: Self.now, until: due, limit: 10)
            #expect(taken.map(\.item) == [items[0]])
        }
    }

    @Test("does not hand out a claimed follow-up again when quiet hours change")
    func heldIsLeftAlone() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let batch = (1...2).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let items = batch.map { Self.item($0) }
            let until = Timestamp(seconds: 4_000_000_000)
            try await store.postpone(
                [(items[0], Self.now, "quiet_hours"), (items[1], until + .seconds(5), "quiet_hours")], now: Self.now)
            #expect(try await store.claim(now: Self.now, until: until, limit: 10).map(\.item) == [items[0]])
            try await database.preferences.set(user: "a", settings: UserSettings())
            try await store.reconsiderReleases(now: Self.now, over: .zero)
            // The other one no longer waits; this one is still taken.
            let soon = until + .seconds(-1)
            #expect(try await store.claim(now: soon, until: until, limit: 10).map(\.item) == [items[1]])
            try await store.remove(items, claimedUntil: until)
            #expect(try await store.claim(now: until + .seconds(10), until: until, limit: 10).isEmpty)
        }
    }

    @Test("decides again when quiet hours change")
    func reconsider() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let notification = Samples.notification(1, user: "a")
            _ = try await database.notifications.store([notification], areRepeats: false)
            let far = Timestamp(seconds: 4_000_000_000)
            try await store.postpone([(Self.item(notification), far, "quiet_hours")], now: Self.now)
            var settings = UserSettings()
            settings.zone = "Europe/Berlin"
            try await database.preferences.set(user: "a", settings: settings)
            let due = try await store.claim(now: far + .seconds(-1), until: far, limit: 10)
            #expect(due.map(\.item) == [Self.item(notification)])
        }
    }

    @Test("makes all that waits for a user due together when time zone rules change")
    func reconsiderTogether() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let batch = (1...10).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let far = Timestamp(seconds: 4_000_000_000)
            try await store.postpone(batch.map { (Self.item($0), far, "quiet_hours") }, now: Self.now)
            try await store.reconsiderReleases(now: Self.now, over: .seconds(300))
            let moments = try await database.pool.query("SELECT DISTINCT due_at FROM carillon.follow_ups")
            #expect(moments.count == 1)
            let soon = Self.now + .seconds(300)
            #expect(try await store.claim(now: soon, until: far, limit: 10).count == 10)
        }
    }

    @Test("stores nothing more about a user who was erased meanwhile")
    func erased() async throws {
        try await Samples.withStores { database in
            let (store, deliveries) = (database.followUps, database.deliveries)
            let notification = Samples.notification(1, user: "a")
            _ = try await database.notifications.store([notification], areRepeats: false)
            let item = Self.item(notification)
            try await store.postpone([(item, Self.now, "quiet_hours")], now: Self.now)
            let until = Self.now + .seconds(30)
            #expect(try await store.claim(now: Self.now, until: until, limit: 10).map(\.item) == [item])
            _ = try await database.users.erase(user: "a")
            // Another job has stored the user again.
            _ = try await database.notifications.store([Samples.notification(2, user: "a")], areRepeats: false)
            try await store.postpone([(item, until, "quiet_hours")], now: Self.now)
            try await store.expect([Self.item(notification, .email)], until: until)
            try await deliveries.recordUnproven([notification.key], at: Self.now)
            let summary = Samples.notification(3, user: "a")
            let stored = try await database.notifications.storeSummaries(
                [summary], endingItems: [(notification.key, summary.id)], claimedUntil: until, at: Self.now)
            #expect(stored == nil)
            let left = try await database.pool.query(
                """
                SELECT user_id FROM carillon.follow_ups UNION ALL SELECT user_id FROM carillon.delivery_attempts
                """)
            #expect(left.isEmpty)
        }
    }

    @Test("decides attention calls again when quiet hours change; other follow-ups wait")
    func reconsiderAttention() async throws {
        try await Samples.withStores { database in
            let store = database.followUps
            let batch = (1...3).map { Samples.notification($0, user: "a") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let far = Timestamp(seconds: 4_000_000_000)
            let items = [
                Self.item(batch[0], .attention), Self.item(batch[1], .attention), Self.item(batch[2], .email),
            ]
            // Both attention calls wait for the end of quiet hours; the second then waits only for
            // idleness.
            try await store.postpone(
                [(items[0], far, "quiet_hours"), (items[1], far, "quiet_hours"), (items[2], far, "unread")],
                now: Self.now)
            try await store.postpone([(items[1], far, "idle")], now: Self.now)
            try await database.preferences.set(user: "a", settings: UserSettings())
            let soon = far + .seconds(-1)
            #expect(try await store.claim(now: soon, until: far, limit: 10).map(\.item) == [items[0]])
            // New time zone rules lead to a new decision as well.
            try await store.postpone([(items[0], far, "quiet_hours")], now: Self.now)
            try await store.reconsiderReleases(now: Self.now, over: .zero)
            #expect(try await store.claim(now: soon, until: far, limit: 10).map(\.item) == [items[0]])
        }
    }
}
