// Carillon · DigestStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

@Suite("Digests", .timeLimit(.minutes(10)))
struct DigestStoreTests {
    private static let now = Samples.start
    private static let until = Samples.start + .seconds(9_999)

    private static func items(_ numbers: ClosedRange<Int>, user: String = "a", _ rule: DigestRule) -> [DigestStore.Item]
    {
        numbers.map { DigestStore.Item(notification: Samples.notification($0, user: user), key: "k", rule: rule) }
    }

    private static func rule(_ singles: Int, sliding: Bool = false) -> DigestRule {
        var rule = DigestRule(window: .seconds(60), maximum: .seconds(100))
        rule.singles = singles
        rule.isSliding = sliding
        return rule
    }

    @Test("lets the first few items pass and holds the rest; repeats change nothing")
    func singles() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let items = Self.items(1...4, Self.rule(2))
            let expected: [DigestStore.Outcome] = [.single, .single, .held, .held]
            #expect(try await store.gather(items, now: Self.now) == expected)
            #expect(try await store.gather(items, now: Self.now + .seconds(1)) == expected)
            #expect(try await store.claim(now: Self.now + .seconds(59), until: Self.until, limit: 10).isEmpty)
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.map(\.count) == [2])
            #expect(due.first?.first.map(\.title) == ["n3", "n4"])
        }
    }

    @Test("reads lines and extras stored before marks were limited")
    func storedMarks() async throws {
        let title = "a" + String(repeating: "\u{300}", count: 65)
        try await Samples.withStores { database in
            let notification = Samples.notification(1, user: "a") { $0.title = title }
            let items = [DigestStore.Item(notification: notification, key: "k", rule: Self.rule(0))]
            #expect(try await database.digests.gather(items, now: Self.now) == [.held])
            let due = try await database.digests.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.first?.first.map { ExactText($0.title) } == [ExactText(title)])
        }
        let extras = ExtrasColumn.extras(Array(#"{"state":"\#(title)","badge":2}"#.utf8))
        #expect(extras.badge == 2)
    }

    @Test("gives the same outcomes to items that another call is gathering", arguments: [nil, "j"] as [String?])
    func repeatedMeanwhile(job: String?) async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            let items = [("a", 1), ("b", 0)].map { user, singles in
                DigestStore.Item(
                    notification: Samples.notification(1, user: user, job: job), key: "k", rule: Self.rule(singles))
            }
            let again = try await database.pool.transaction { transaction in
                _ = try await transaction.run(DigestStore.statements(for: items, now: Self.now))
                let again = Task { try await second.digests.gather(items, now: Self.now) }
                try await eventually("the other call waits") { try await Samples.areWaiting(1, database) }
                return again
            }
            #expect(try await again.value == [.single, .held])
            let due = try await database.digests.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.map(\.count).sorted() == [0, 1])
        }
    }

    @Test("gives the same outcome to an item that another call is gathering in a window that is over by now")
    func repeatedLate() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            let items = Self.items(1...1, Self.rule(0))
            let again = try await database.pool.transaction { transaction in
                _ = try await transaction.run(DigestStore.statements(for: items, now: Self.now))
                let again = Task { try await second.digests.gather(items, now: Self.now + .seconds(61)) }
                try await eventually("the other call waits") { try await Samples.areWaiting(1, database) }
                return again
            }
            #expect(try await again.value == [.held])
            let due = try await database.digests.claim(now: Self.now + .seconds(61), until: Self.until, limit: 10)
            #expect(due.map(\.count) == [1])
        }
    }

    @Test("reads held items page by page, without single ones")
    func held() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            _ = try await store.gather(Self.items(1...5, Self.rule(2)), now: Self.now)
            _ = try await store.gather(Self.items(6...8, user: "b", Self.rule(0)), now: Self.now)
            let due = try await store.claim(now: Self.now + .seconds(86_400), until: Self.now, limit: 10)
            let windows = due.map(\.id)
            #expect(windows.count == 2)
            var found: [NotificationID] = []
            var last: DigestStore.Held?
            repeat {
                let page = try await store.held(in: windows, after: last, limit: 2)
                #expect(page.allSatisfy { windows.contains($0.window) })
                found += page.map(\.id)
                last = page.last
            } while last != nil
            let expected = Self.items(3...5, Self.rule(2)) + Self.items(6...8, user: "b", Self.rule(0))
            #expect(found.count == 6)
            #expect(Set(found) == Set(expected.map(\.notification.id)))
        }
    }

    @Test("gives a window to one dispatcher; late items open the next window")
    func late() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            _ = try await store.gather(Self.items(1...3, Self.rule(0)), now: Self.now)
            let first = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10).isEmpty)
            _ = try await store.gather(Self.items(4...4, Self.rule(0)), now: Self.now + .seconds(61))
            try await store.remove(first.map(\.id))
            let second = try await store.claim(now: Self.now + .seconds(121), until: Self.until, limit: 10)
            #expect(second.map(\.count) == [1])
            #expect(second.first?.id != first.first?.id)
        }
    }

    @Test("loses no item that comes while windows are claimed")
    func meanwhile() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            for round in 0..<20 {
                let users = (0..<40).map { "user-\(round)-\($0)" }
                for user in users {
                    _ = try await store.gather(Self.items(1...1, user: user, Self.rule(0)), now: Self.now)
                }
                let end = Self.now + .seconds(60)
                let counts = try await withThrowingTaskGroup(of: Int.self) { group in
                    for user in users {
                        group.addTask {
                            // The last moment of its window.
                            _ = try await store.gather(
                                Self.items(2...2, user: user, Self.rule(0)), now: end + .milliseconds(-1))
                            return 0
                        }
                    }
                    group.addTask {
                        var count = 0
                        for _ in 0..<40 {
                            let due = try await store.claim(now: end, until: Self.until, limit: 2)
                            count += due.reduce(0) { $0 + $1.count }
                        }
                        return count
                    }
                    return try await group.reduce(0, +)
                }
                let later = try await store.claim(now: end + .seconds(100), until: Self.until, limit: 100)
                #expect(counts + later.reduce(0) { $0 + $1.count } == 80, "in round \(round)")
                let left = try await database.pool.query("DELETE FROM carillon.digests")
                #expect(left.affectedRows >= 40)
            }
        }
    }

    @Test("opens the next window for an item after the end, even before the window is claimed")
    func over() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            _ = try await store.gather(Self.items(1...1, Self.rule(0)), now: Self.now)
            _ = try await store.gather(Self.items(2...2, Self.rule(0)), now: Self.now + .seconds(60))
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.map { $0.first.map(\.title) } == [["n1"]])
        }
    }

    @Test("extends a sliding window with each item up to its maximum")
    func sliding() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let rule = Self.rule(0, sliding: true)
            for (number, second) in [(1, 0), (2, 50), (3, 90)] {
                _ = try await store.gather(Self.items(number...number, rule), now: Self.now + .seconds(second))
            }
            #expect(try await store.claim(now: Self.now + .seconds(99), until: Self.until, limit: 10).isEmpty)
            let due = try await store.claim(now: Self.now + .seconds(100), until: Self.until, limit: 10)
            #expect(due.map(\.count) == [3])
        }
    }

    @Test("an item that is gathered late does not shorten a sliding window")
    func slidingLate() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let rule = Self.rule(0, sliding: true)
            for (number, second) in [(1, 0), (2, 30), (3, 10)] {
                _ = try await store.gather(Self.items(number...number, rule), now: Self.now + .seconds(second))
            }
            #expect(try await store.claim(now: Self.now + .seconds(89), until: Self.until, limit: 10).isEmpty)
            let due = try await store.claim(now: Self.now + .seconds(90), until: Self.until, limit: 10)
            #expect(due.map(\.count) == [3])
        }
    }

    @Test("a window with 10,000 items is over")
    func fullWindow() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let rule = Self.rule(0)
            _ = try await store.gather(Self.items(1...1, rule), now: Self.now)
            try await database.pool.query("UPDATE carillon.digests SET count = 9998")
            _ = try await store.gather(Self.items(2...2, rule), now: Self.now)
            #expect(try await store.claim(now: Self.now, until: Self.until, limit: 10).isEmpty)
            _ = try await store.gather(Self.items(3...3, rule), now: Self.now)
            _ = try await store.gather(Self.items(4...4, rule), now: Self.now)
            #expect(try await store.claim(now: Self.now, until: Self.until, limit: 10).map(\.count) == [3])
        }
    }

    @Test("rejects a held job id as a duplicate and drops items that were read")
    func once() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            func item(
                _ number: Int, job: String? = nil, title: String? = nil, entity: String? = nil
            ) -> DigestStore.Item {
                let notification = Samples.notification(number, user: "a", job: job) {
                    if let title { $0.title = title }
                    $0.entityType = entity == nil ? nil : "task"
                    $0.entityID = entity
                }
                return DigestStore.Item(notification: notification, key: "k", rule: Self.rule(0))
            }
            let outcomes = try await store.gather(
                [
                    item(1, job: "j"), item(2, job: "j", title: "n1"), item(3, entity: "t1"), item(4, entity: "t2"),
                    item(6, entity: "t3"),
                ],
                now: Self.now)
            #expect(outcomes == [.held, .duplicate, .held, .held, .held])
            #expect(try await store.gather([item(5, job: "j")], now: Self.now) == [.conflict])
            let read = Samples.notification(9, user: "a") {
                $0.entityType = "task"
                $0.entityID = "t1"
            }
            _ = try await database.notifications.store([read], areRepeats: false)
            _ = try await InboxStore(database).markRead(user: "a", ids: [read.id], at: Self.now + .seconds(5))
            // One was archived before the item came, the other after.
            for (number, entity, seconds) in [(10, "t2", -5), (11, "t3", 5)] {
                let archived = Samples.notification(number, user: "a") {
                    $0.entityType = "task"
                    $0.entityID = entity
                }
                _ = try await database.notifications.store([archived], areRepeats: false)
                let moment = Self.now + .seconds(seconds)
                _ = try await InboxStore(database).archive(user: "a", id: archived.id, at: moment)
            }
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.first?.first.map(\.title) == ["n1", "n4"])
        }
    }

    @Test("drops items about an entity that was read only if its notification is of the same organisation")
    func otherOrganisation() async throws {
        try await Samples.withStores { database in
            let orgs = ["one", "two"]
            func about(_ org: String, _ number: Int) -> Notification {
                Samples.notification(number, user: "a") {
                    $0.org = org
                    $0.entityType = "task"
                    $0.entityID = "t1"
                }
            }
            let items = orgs.enumerated().map { number, org in
                DigestStore.Item(notification: about(org, number), key: "k", rule: Self.rule(0))
            }
            _ = try await database.digests.gather(items, now: Self.now)
            let read = about("two", 9)
            _ = try await database.notifications.store([read], areRepeats: false)
            _ = try await InboxStore(database).markRead(user: "a", ids: [read.id], at: Self.now + .seconds(5))
            let due = try await database.digests.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.sorted { $0.org < $1.org }.map(\.count) == [1, 0])
        }
    }

    @Test("does not hold an item that a dispatcher without the digest has stored", arguments: [nil, "j"] as [String?])
    func storedBefore(job: String?) async throws {
        try await Samples.withStores { database in
            let notification = Samples.notification(1, user: "a", job: job)
            _ = try await database.notifications.store([notification], areRepeats: false)
            let item = DigestStore.Item(notification: notification, key: "k", rule: Self.rule(0))
            #expect(try await database.digests.gather([item], now: Self.now) == [.single])
            #expect(try await database.pool.query("SELECT FROM carillon.digest_items").isEmpty)
        }
    }

    @Test("keeps items about an entity whose notification left the inbox without its user")
    func leftAlone() async throws {
        try await Samples.withStores { database in
            let (store, notifications) = (database.digests, database.notifications)
            // Some causes delete at the database's own time.
            let now = try await database.clock()
            let causes = ["deleted", "cancelled", "cancelled too late", "replaced", "outdated", "too old"]
            func about(_ cause: String, _ number: Int) -> Notification {
                Samples.notification(number, user: "a") {
                    $0.title = cause
                    $0.entityType = "task"
                    $0.entityID = cause
                }
            }
            let items = causes.enumerated().map { number, cause in
                DigestStore.Item(notification: about(cause, number), key: "k", rule: Self.rule(0))
            }
            _ = try await store.gather(items, now: now)
            var gone = causes.enumerated().map { number, cause in about(cause, 10 + number) }
            gone[3].collapseKey = "c"
            gone[4].keepUntil = now
            _ = try await notifications.store(gone, areRepeats: false)

            _ = try await InboxStore(database).delete(user: "a", id: gone[0].id, at: now)
            for one in gone[1...2] { _ = try await database.cancellations.cancel([one.key], at: now) }
            var settlement = DeliveryStore.Settlement()
            settlement.accepted = [(gone[2].key, "fcm", DeviceID(high: 1, low: 2))]
            try await database.deliveries.settle(settlement)
            let newer = Samples.notification(20, user: "a") { $0.collapseKey = "c" }
            _ = try await notifications.store([newer], areRepeats: false)
            _ = try await database.retention.expireKept(now: now, limit: 10)
            try await database.pool.query(
                "UPDATE carillon.notifications SET stored_at = stored_at - interval '1 day' WHERE id = $1",
                .uuid(gone[5].id.halves))
            _ = try await database.retention.expireInboxes(
                storedBefore: now + .seconds(-3_600), now: now, limit: 10)
            let left = try await database.pool.query("SELECT FROM carillon.notifications WHERE deleted_at IS NULL")
            #expect(left.count == 1)

            let end = now + .seconds(60)
            let due = try await store.claim(now: end, until: end + .seconds(30), limit: 10)
            #expect(due.first?.first.map(\.title) == Array(causes.dropFirst()))
        }
    }

    @Test("compares items with the newest 10,000 notifications of their user")
    func newest() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            func about(_ number: Int) -> Notification {
                Samples.notification(number, user: "a") {
                    $0.entityType = "task"
                    $0.entityID = "t\(number % 10)"
                }
            }
            let items = [1, 2, 3].map { DigestStore.Item(notification: about($0), key: "k", rule: Self.rule(0)) }
            _ = try await store.gather(items, now: Self.now)
            let seen = [11, 12].map { about($0) }
            _ = try await database.notifications.store(seen, areRepeats: false)
            _ = try await InboxStore(database).markRead(
                user: "a", ids: seen.map(\.id), at: Self.now + .seconds(5))
            // So that the second of the two is one of the newest, and the first is not.
            try await database.pool.query(
                """
                INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery,
                    lane, channels, title, body, status, created_at)
                SELECT 'a', ('ffffffff-ffff-8fff-8fff-' || lpad(to_hex(n), 12, '0'))::uuid, 0, 'x', '', 'news', 'info',
                    'in_app', 'normal', 1, '', '', 'sent', now()
                FROM generate_series(1, 9999) n
                """)
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.first?.first.map(\.title) == ["n1", "n3"])
        }
    }

    @Test("keeps items that came after their user's change by a gateway whose clock is ahead")
    func gatewayAhead() async throws {
        try await Samples.withStores { database in
            let (store, inbox) = (database.digests, InboxStore(database))
            let now = try await database.clock()
            let rule = DigestRule(window: .seconds(3_600))
            let changes = ["read", "deleted", "archived", "deleted from the archive"]
            func about(_ change: String, _ number: Int) -> Notification {
                Samples.notification(number, user: "a") {
                    $0.entityType = "task"
                    $0.entityID = change
                }
            }
            func gather(_ first: Int, at moment: Timestamp) async throws {
                let items = changes.enumerated().map { place, change in
                    DigestStore.Item(notification: about(change, first + place), key: "k", rule: rule)
                }
                _ = try await store.gather(items, now: moment)
            }
            try await gather(1, at: now)
            let seen = changes.enumerated().map { place, change in about(change, 11 + place) }
            _ = try await database.notifications.store(seen, areRepeats: false)
            let ahead = now + .seconds(3_000)
            _ = try await inbox.markRead(user: "a", ids: [seen[0].id], at: ahead)
            _ = try await inbox.delete(user: "a", id: seen[1].id, at: ahead)
            for one in seen[2...] { _ = try await inbox.archive(user: "a", id: one.id, at: ahead) }
            _ = try await inbox.deleteArchived(user: "a", id: seen[3].id, at: ahead)
            try await gather(21, at: now + .seconds(2_000))
            let end = now + .seconds(3_600)
            let due = try await store.claim(now: end, until: end + .seconds(30), limit: 10)
            #expect(due.first?.first.map(\.title) == ["n21", "n22", "n23", "n24"])
        }
    }

    @Test("keeps items about an entity whose notification was snoozed, also after it came back")
    func snoozed() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let causes = ["waits", "is back", "deleted"]
            func about(_ cause: String, _ number: Int, job: String? = nil) -> Notification {
                Samples.notification(number, user: "a", job: job) {
                    $0.title = cause
                    $0.entityType = "task"
                    $0.entityID = cause
                }
            }
            let items = causes.enumerated().map { number, cause in
                DigestStore.Item(notification: about(cause, number), key: "k", rule: Self.rule(0))
            }
            _ = try await store.gather(items, now: Self.now)
            let gone = causes.enumerated().map { number, cause in about(cause, 10 + number) }
            _ = try await database.notifications.store(gone, areRepeats: false)
            for one in gone {
                _ = try await InboxStore(database).delete(user: "a", id: one.id, at: Self.now + .seconds(5))
            }
            let jobs = gone.map { ScheduleStore.snoozePrefix(of: $0.id) + "1795000060" }
            var schedule = Schedule(
                id: gone[0].id, fields: [], dueAt: Self.now + .seconds(3_600), createdAt: Self.now)
            (schedule.jobID, schedule.user, schedule.source) = (jobs[0], "a", "snooze")
            _ = try await database.schedules.add([schedule])
            let back = about(causes[1], 20, job: jobs[1])
            _ = try await database.notifications.store([back], areRepeats: false)
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.first?.first.map(\.title) == ["waits", "is back"])
            #expect(due.map(\.count) == [2])
        }
    }

    @Test("knows the job id, content and type of a single item")
    func singleConflict() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            func item(_ number: Int, type: String) -> DigestStore.Item {
                let notification = Samples.notification(number, user: "a", job: "j") {
                    $0.title = "same"
                    $0.type = type
                }
                return DigestStore.Item(notification: notification, key: "k", rule: Self.rule(1))
            }
            let first = try await store.gather([item(1, type: "t")], now: Self.now)
            #expect(first == [.single])
            let again = [item(1, type: "t"), item(2, type: "t"), item(3, type: "other")]
            #expect(try await store.gather(again, now: Self.now) == [.single, .duplicate, .conflict])
        }
    }

    /// An item with a job id.
    private static func item(_ number: Int, job: String, title: String) -> DigestStore.Item {
        let notification = Samples.notification(number, user: "a", job: job) { $0.title = title }
        return DigestStore.Item(notification: notification, key: "k", rule: Self.rule(0))
    }

    @Test("a duplicate opens no window, and gets the same answer when that window would be over")
    func duplicateWindow() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let first = Self.item(1, job: "j", title: "same")
            _ = try await store.gather([first], now: Self.now)
            let again = Self.item(2, job: "j", title: "same")
            let other = DigestStore.Item(notification: again.notification, key: "other", rule: Self.rule(0))
            for second in [0, 61] {
                let outcomes = try await store.gather([other], now: Self.now + .seconds(second))
                #expect(outcomes == [.duplicate])
            }
            let windows = try await database.pool.query("SELECT FROM carillon.digests")
            #expect(windows.count == 1)
        }
    }

    @Test("does not hold a job that the user has as a notification")
    func notifiedBefore() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let notified = Samples.notification(1, user: "a", job: "j")
            _ = try await database.notifications.store([notified], areRepeats: false)
            let same = Self.item(2, job: "j", title: notified.title)
            let other = Self.item(3, job: "j", title: "other")
            #expect(try await store.gather([same], now: Self.now) == [.duplicate])
            #expect(try await store.gather([other], now: Self.now) == [.conflict])
            // The same entry, stored when its type had no digest.
            let itself = DigestStore.Item(notification: notified, key: "k", rule: Self.rule(0))
            #expect(try await store.gather([itself], now: Self.now) == [.single])
            #expect(try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10).isEmpty)
        }
    }

    @Test("does not store a job that a digest holds, except a single item")
    func heldBefore() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let notifications = database.notifications
            let item = Self.item(1, job: "j", title: "same")
            let held = item.notification
            #expect(try await store.gather([item], now: Self.now) == [.held])
            let same = Self.item(2, job: "j", title: "same").notification
            let other = Self.item(3, job: "j", title: "other").notification
            #expect(try await notifications.store([same], areRepeats: false).outcomes == [.duplicate(of: held.id)])
            #expect(try await notifications.store([other], areRepeats: false).outcomes == [.conflict(with: held.id)])
            let itself = try await notifications.store([held], areRepeats: true).outcomes
            #expect(itself == [.known(version: 0, unread: 0, status: .deferred, isOwned: true)])
            // A page of a broadcast finds it as well; another user has none.
            let bob = Samples.notification(2, user: "b", job: "j") { $0.title = "same" }
            let page = try await notifications.storeBroadcastPage(
                [same, bob], page: [], recount: PostgresStatement("SELECT 1"))
            #expect(page.outcomes == [.duplicate(of: held.id), .stored(version: 1, unread: 1)])

            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            let window = try #require(due.first)
            let id = window.summary
            // The item is alone, but its notification is not stored.
            #expect(try await notifications.store([same], areRepeats: false).outcomes == [.duplicate(of: held.id)])
            #expect(try await notifications.store([held], areRepeats: true).outcomes == itself)
            var alone = Notification(id: id, user: "a", type: held.type, createdAt: Self.now)
            alone.jobID = window.alone?.job
            alone.jobEntry = try #require(window.alone).entry
            alone.title = "same"
            alone.channels = [.inApp]
            #expect(alone.jobID == "j")
            let stored = try await notifications.store([alone], areRepeats: true).outcomes
            #expect(stored == [.stored(version: 1, unread: 1)])
            #expect(try await notifications.store([same], areRepeats: false).outcomes == [.duplicate(of: id)])
        }
    }

    @Test("drops expired items and leaves an empty window without items")
    func expired() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            func item(_ number: Int, expires: Int? = nil, kept: Int? = nil, user: String = "a") -> DigestStore.Item {
                let notification = Samples.notification(number, user: user) {
                    $0.expiresAt = expires.map { Self.now + .seconds($0) }
                    $0.keepUntil = kept.map { Self.now + .seconds($0) }
                }
                return DigestStore.Item(notification: notification, key: "k", rule: Self.rule(0))
            }
            _ = try await store.gather(
                [
                    item(1, expires: 60), item(2, expires: 61, kept: 100), item(3, kept: 60),
                    item(4, expires: 90, kept: 80),
                    item(5, expires: 10, user: "b"),
                ],
                now: Self.now)
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            let mine = try #require(due.first { $0.user == "a" })
            #expect(mine.first.map(\.title) == ["n2", "n4"])
            #expect(mine.expiresAt == Self.now + .seconds(90))
            #expect(mine.keepUntil == Self.now + .seconds(100))
            #expect(mine.alone == nil)
            let other = try #require(due.first { $0.user == "b" })
            #expect(other.count == 0)
            #expect(try await store.held(in: [other.id], after: nil, limit: 10).map(\.fate) == [.expired])
        }
    }

    @Test("gives a summary the channels of its items, push if any has it, and the highest severity")
    func channels() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            func item(_ number: Int, user: String, change: (inout Notification) -> Void) -> DigestStore.Item {
                DigestStore.Item(
                    notification: Samples.notification(number, user: user, change: change), key: "k", rule: Self.rule(0)
                )
            }
            _ = try await store.gather(
                [
                    item(1, user: "quiet") { $0.channels = [.inApp] },
                    item(2, user: "quiet") { $0.channels = [.inApp] },
                    item(3, user: "loud") { $0.channels = [.inApp] },
                    item(4, user: "loud") {
                        $0.channels = [.push]
                        $0.delivery = .push
                        $0.severity = .warning
                        $0.expiresAt = Self.now + .seconds(90)
                    },
                ],
                now: Self.now)
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            let quiet = try #require(due.first { $0.user == "quiet" })
            #expect(quiet.channels == [.inApp])
            #expect(quiet.delivery == .inApp)
            #expect(quiet.severity == .info)
            let loud = try #require(due.first { $0.user == "loud" })
            #expect(loud.channels == [.inApp, .push])
            #expect(loud.delivery == .push)
            #expect(loud.severity == .warning)
            #expect(loud.expiresAt == nil)
        }
    }

    @Test("keeps all fields of a lone item, even when it is claimed again")
    func alone() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            let notification = Samples.notification(1, user: "a", job: "j") {
                $0.body = "b"
                $0.data = Array(#"{"a": 1}"#.utf8)
                $0.extras.url = "https://example.org/1"
                $0.extras.image = "https://example.org/1.png"
                $0.extras.sound = "bell"
                $0.category = "c"
                $0.entityType = "task"
                $0.entityID = "t1"
                $0.collapseKey = "k1"
            }
            _ = try await store.gather(
                [DigestStore.Item(notification: notification, key: "k", rule: Self.rule(0))], now: Self.now)
            var ids: Set<NotificationID> = []
            for seconds in [60, 120] {
                let now = Self.now + .seconds(seconds)
                let due = try await store.claim(now: now, until: now + .seconds(60), limit: 10)
                let alone = try #require(due.first?.alone)
                #expect(due.map(\.count) == [1])
                #expect(alone.job == "j")
                #expect(alone.entry == "jobs/1")
                #expect(alone.content.title == "n1")
                #expect(alone.content.body == "b")
                #expect(alone.content.data.map { String(decoding: $0, as: UTF8.self) } == #"{"a": 1}"#)
                #expect(alone.content.extras == notification.extras)
                #expect(alone.content.category == "c")
                #expect(alone.content.entityType == "task")
                #expect(alone.content.entityID == "t1")
                #expect(alone.content.collapseKey == "k1")
                ids.formUnion(due.map(\.summary))
            }
            #expect(ids.count == 1)
            // Its notification is not stored yet.
            let tally = try await database.cancellations.tally(.init(org: "", id: "j"))
            #expect(tally.counts == [.deferred: 1])
        }
    }

    @Test("makes a lone item newer than the single ones before it, which it replaces")
    func aloneAfterSingles() async throws {
        try await Samples.withStores { database in
            let (store, notifications) = (database.digests, database.notifications)
            let batch = (1...3).map { number in
                Samples.notification(number, user: "a") { $0.collapseKey = "c" }
            }
            let items = batch.map { DigestStore.Item(notification: $0, key: "k", rule: Self.rule(2)) }
            #expect(try await store.gather(items, now: Self.now) == [.single, .single, .held])
            _ = try await notifications.store(Array(batch[..<2]), areRepeats: false)
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            let window = try #require(due.first)
            #expect(window.summary > batch[2].id)
            var alone = Notification(id: window.summary, user: "a", type: window.type, createdAt: Self.now)
            alone.channels = [.inApp]
            alone.collapseKey = window.alone?.content.collapseKey
            let stored = try await notifications.store([alone], areRepeats: true)
            #expect(stored.replacements.map(\.id) == [batch[1].id])
        }
    }

    @Test("counts all items of a summary and keeps the first ten")
    func many() async throws {
        try await Samples.withStores { database in
            let store = database.digests
            _ = try await store.gather(Self.items(1...25, Self.rule(0)), now: Self.now)
            let due = try await store.claim(now: Self.now + .seconds(60), until: Self.until, limit: 10)
            #expect(due.map(\.count) == [25])
            #expect(due.first?.first.map(\.title) == (1...10).map { "n\($0)" })
        }
    }
}
