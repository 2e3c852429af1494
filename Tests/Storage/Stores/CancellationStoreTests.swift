// Carillon · CancellationStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

@Suite(.timeLimit(.minutes(10)))
struct CancellationStoreTests {
    private static let later = Samples.start + .seconds(60)

    @Test("a search by entry may take longer than other calls")
    func slowSearch() async throws {
        try await TestDatabase.with(isMigrated: true, { $0.sessionSettings = StoreSession.settings }) { test in
            let database = Database(test.pool)
            let notification = Samples.notification(1, user: "ada") { $0.jobEntry = "jobs/1795000000000-0" }
            _ = try await database.notifications.store([notification], areRepeats: false)
            let name = CancellationStore.Name(
                org: "", id: "1795000000000-0", entries: [notification.jobEntry],
                addedAt: try await database.clock())
            var configuration = test.configuration()
            configuration.timeout = .seconds(1)
            let hurried = try PostgresPool(configuration, logger: TestLog.logger)
            defer { hurried.close() }
            let search = try await database.pool.transaction { transaction in
                try await transaction.query("LOCK TABLE carillon.notifications IN ACCESS EXCLUSIVE MODE")
                let search = Task { try await Database(hurried).cancellations.ofEntries(name).first?.map(\.user) }
                try await eventually("the search waits") { try await Samples.areWaiting(1, database) }
                // Fails after the second that other calls have.
                await #expect(throws: PostgresError.self) {
                    try await hurried.query("SELECT count(*) FROM carillon.notifications")
                }
                return search
            }
            #expect(try await search.value == ["ada"])
        }
    }

    @Test("looks for an entry's notifications only if no index knows its name")
    func known() async throws {
        try await Samples.withStores { database in
            let entry = "1795000000000-0"
            let stored = Samples.notification(1, user: "ada") { $0.jobEntry = "jobs/\(entry)" }
            _ = try await database.notifications.store([stored], areRepeats: false)
            let name = CancellationStore.Name(
                org: "", id: entry, entries: ["jobs/\(entry)", "other/\(entry)"],
                addedAt: try await database.clock())
            #expect(try await database.cancellations.known(name) == ["jobs/\(entry)"])
            let named = ["ada", "bob"].enumerated().map { Samples.notification($0 + 2, user: $1, job: entry) }
            _ = try await database.notifications.store(named, areRepeats: false)
            #expect(try await database.cancellations.known(name) == [entry])
        }
    }

    @Test("finds the notifications of all entries of a name at once, and keeps their users apart")
    func entries() async throws {
        try await Samples.withStores { database in
            let entry = "1795000000000-0"
            let stored = ["jobs", "other", "third"].enumerated().map { number, stream in
                Samples.notification(number, user: "ada") { $0.jobEntry = "\(stream)/\(entry)" }
            }
            _ = try await database.notifications.store(stored, areRepeats: false)
            let name = CancellationStore.Name(
                org: "", id: entry, entries: ["other/\(entry)", "none/\(entry)", "jobs/\(entry)"],
                addedAt: try await database.clock())
            let found = try await database.cancellations.ofEntries(name)
            #expect(found.map { $0.map(\.id) } == [[stored[1].id], [stored[0].id]])
        }
    }

    @Test("cancels notifications that reached no device and keeps the others")
    func cancel() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let cancellations = database.cancellations
            let users = [
                "open", "queued", "sent", "delivered", "away", "tried", "failed", "unlisted", "mailed", "bounced",
                "written", "late", "seen", "pushless", "summed",
            ]
            let batch = users.enumerated().map { index, user in
                Samples.notification(index, user: user, job: "j") {
                    if ["unlisted", "pushless"].contains(user) { $0.channels = [.push] }
                    if ["queued", "tried", "failed", "seen"].contains(user) { $0.channels = [.inApp, .push] }
                    if user == "late" { $0.channels = [.inApp, .push, .email] }
                    if ["mailed", "bounced", "written"].contains(user) { $0.channels = [.inApp, .email] }
                }
            }
            try await database.pool.query(
                """
                INSERT INTO carillon.user_settings (user_id, email)
                VALUES ('mailed', 'm@host'), ('bounced', 'b@host'), ('late', 'l@host')
                """
            )
            var phones: [String: NotificationID] = [:]
            for user in ["queued", "tried", "failed", "late"] {
                phones[user] = try await database.devices.register(Samples.device(user: user, token: user)).device.id
            }
            _ = try await store.store(batch, areRepeats: false)
            let ids = Dictionary(uniqueKeysWithValues: zip(users, batch.map(\.id)))
            func id(_ user: String) -> NotificationID { ids[user] ?? NotificationID(high: 0, low: 0) }
            func key(_ user: String) -> NotificationKey { NotificationKey(user: user, id: id(user)) }
            try await store.mark([
                (key("queued"), .pending, "queued", nil), (key("sent"), .sent, nil, "fcm"),
                (key("delivered"), .delivered, nil, "socket"),
                (key("away"), .sent, "offline", "inbox"),
                (key("mailed"), .sent, "offline", "inbox"),
                (key("bounced"), .sent, "offline", "inbox"),
                (key("written"), .sent, "offline", "inbox"),
                (key("tried"), .failed, "x", nil), (key("failed"), .failed, "x", nil),
                (key("late"), .expired, "expired", nil), (key("seen"), .failed, "x", nil),
                (key("pushless"), .failed, "no_device", nil),
                (key("summed"), .sent, "summarised", "summary"),
            ])
            try await database.pool.query("UPDATE carillon.notifications SET read_at = now() WHERE user_id = 'seen'")
            // For `failed` one device failed for good; for `tried` another device waits for its
            // retry.
            var settlement = DeliveryStore.Settlement()
            for (user, outcome) in [("tried", DeliveryStore.Outcome.retry), ("failed", .failed)] {
                settlement.attempts.append(
                    DeliveryStore.Attempt(
                        at: Samples.start, user: user, notification: id(user), device: phones[user],
                        provider: .fcm, kind: "push", attempt: 1, outcome: outcome
                    )
                )
            }
            // `bounced` had its mail rejected and `written` got it; `mailed` may still get it.
            let now = try await database.clock()
            for (user, outcome) in [("bounced", DeliveryStore.Outcome.failed), ("written", .accepted)] {
                settlement.attempts.append(
                    DeliveryStore.Attempt(
                        at: now, user: user, notification: id(user), device: Device.emailAddress,
                        provider: .email, kind: "email", attempt: 1, outcome: outcome
                    )
                )
            }
            try await database.deliveries.settle(settlement)

            let page = try await cancellations.page(org: "", job: "j", after: "", limit: 100)
            #expect(Set(page.map(\.user)) == Set(users))
            let name = CancellationStore.Name(org: "", id: "j")
            let before = try await cancellations.tally(name, countsOpen: true)
            #expect(before.counts == [.pending: 3, .sent: 6, .delivered: 1, .failed: 4, .expired: 1])
            #expect(before.open == [.pending: 3, .sent: 4, .failed: 2, .expired: 1])
            let withdrawn = try await cancellations.cancel(page, at: Self.later)
            #expect(
                Set(withdrawn.map(\.user)) == [
                    "open", "queued", "away", "tried", "failed", "late", "unlisted", "mailed", "bounced", "summed",
                ])
            for withdrawal in withdrawn {
                let isListed = withdrawal.user != "unlisted"
                #expect(withdrawal.inbox?.version == (isListed ? 2 : nil), "\(withdrawal.user)")
                #expect(withdrawal.inbox?.unread == (isListed ? 0 : nil), "\(withdrawal.user)")
            }
            let states = try await InboxStore(database).states(["open", "sent", "unlisted"])
            #expect(states.map(\.version) == [2, 1, 0])
            #expect(states.map(\.total) == [0, 1, 0])
            var tally = CancellationStore.Tally()
            tally.counts = [.cancelled: 10, .sent: 2, .delivered: 1, .failed: 2]
            // `seen` has read it.
            tally.reached = 1
            // The queued one, the one to retry and the mail that the relay may have; nothing of
            // `late` was enqueued.
            tally.inFlight = 3
            tally.reach.stored = 15
            tally.reach.noDevice = 1
            tally.reach.accepted = 1
            tally.reach.failed = 1
            tally.reach.read = 1
            #expect(try await cancellations.tally(name) == tally)
            #expect(try await cancellations.tally(name, countsOpen: true) == tally)
            #expect(try await cancellations.cancel(page, at: Self.later).isEmpty)
        }
    }

    @Test("ends a read or opened notification and keeps it in the inbox")
    func seen() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let batch = ["read", "opened", "unread"].enumerated().map { index, user in
                Samples.notification(index, user: user, job: "j") { $0.channels = [.inApp, .push] }
            }
            _ = try await store.store(batch, areRepeats: false)
            try await store.mark(batch.map { ($0.key, .pending, "queued", nil) })
            try await database.pool.query("UPDATE carillon.notifications SET read_at = now() WHERE user_id = 'read'")
            try await database.pool.query(
                "UPDATE carillon.notifications SET opened_at = now() WHERE user_id = 'opened'")
            let cancellations = database.cancellations
            let keys = batch.map { $0.key }
            let withdrawn = try await cancellations.cancel(keys, at: Self.later)
            #expect(withdrawn.map(\.user) == ["unread"])
            let ended = try await cancellations.endSeen(keys)
            #expect(
                Set(ended.map { "\($0.label.user) \($0.status) \($0.reason ?? "")" })
                    == ["read sent read", "opened sent opened"])
            #expect(ended.allSatisfy { $0.event(at: Self.later)?.kind == .sent })
            #expect(
                try await InboxStore(database).states(["read", "opened", "unread"]).map(\.total) == [1, 1, 0])
            #expect(try await cancellations.endSeen(keys).isEmpty)
        }
    }

    @Test("ends a notification whose mail was accepted while its push waits, as its user has it")
    func mailed() async throws {
        try await Samples.withStores { database in
            let notification = Samples.notification(1, user: "a", job: "j") { $0.channels = [.inApp, .push, .email] }
            _ = try await database.notifications.store([notification], areRepeats: false)
            try await database.notifications.mark([(notification.key, .pending, "queued", nil)])
            let keys = [notification.key]
            #expect(try await database.cancellations.endSeen(keys).isEmpty)
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: try await database.clock(), user: "a", notification: notification.id,
                    device: Device.emailAddress, provider: .email, kind: "email", attempt: 1, outcome: .accepted)
            ]
            try await database.deliveries.settle(settlement)
            #expect(try await database.cancellations.cancel(keys, at: Self.later).isEmpty)
            // As when the answer comes between the two.
            #expect(try await database.cancellations.cancel(keys, at: Self.later).isEmpty)
            let ended = try await database.cancellations.endSeen(keys)
            #expect(ended.map(\.status) == [.sent])
            // The relay's answer has had its event.
            #expect(ended.compactMap { $0.event(at: Self.later) }.isEmpty)
        }
    }

    @Test("counts a notification whose mail the audit no longer has as mailed, if there was an address")
    func mailedLongAgo() async throws {
        try await Samples.withStores { database in
            let users = ["mailed", "nowhere", "waiting", "recent"]
            let batch = users.enumerated().map { number, user in
                Samples.notification(number, user: user, job: "j") { $0.channels = [.inApp, .email] }
            }
            _ = try await database.notifications.store(batch, areRepeats: false)
            try await database.notifications.mark(batch.map { ($0.key, .sent, "offline", "inbox") })
            try await database.pool.query(
                """
                INSERT INTO carillon.user_settings (user_id, email)
                VALUES ('mailed', 'm@host'), ('waiting', 'w@host'), ('recent', 'r@host')
                """)
            try await database.pool.query(
                """
                INSERT INTO carillon.follow_ups (user_id, notification_id, kind, due_at)
                VALUES ('waiting', $1, 'email', $2)
                """,
                .id(batch[2].id), .timestamp(Self.later + .seconds(86_400)))
            try await database.pool.query(
                """
                CREATE TABLE carillon.delivery_attempts_20200101 PARTITION OF carillon.delivery_attempts
                FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-01-02 00:00Z')
                """)
            try await database.pool.query(
                """
                UPDATE carillon.notifications SET stored_at = '2020-01-01 12:00Z', created_at = '2020-01-01 12:00Z'
                WHERE user_id <> 'recent'
                """)
            try await database.pool.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, device_id, provider, kind,
                    attempt, outcome)
                VALUES ('2020-01-01 12:01Z', 'mailed', $1, $2, 'email', 'email', 1, 'accepted')
                """,
                .id(batch[0].id), .id(Device.emailAddress))
            // As by a clock that was wrong.
            try await database.pool.query("UPDATE carillon.sweep SET audited_from = now() + interval '1 year'")
            let firstKept = try await database.clock() - .seconds(90 * 86_400)
            let dropped = try await database.retention.dropAttemptPartition(firstKept: firstKept)
            #expect(dropped == "delivery_attempts_20200101")
            let keys = batch.map { $0.key }
            let withdrawn = try await database.cancellations.cancel(keys, at: Self.later)
            #expect(Set(withdrawn.map(\.user)) == ["nowhere", "waiting", "recent"])
            let tally = try await database.cancellations.tally(.init(org: "", id: "j"), countsOpen: true)
            #expect(tally.counts == [.sent: 1, .cancelled: 3] && tally.open.isEmpty)
            // The recent one's mail may still go out.
            #expect(tally.inFlight == 1)
        }
    }

    @Test("ends the snoozes of a cancelled notification's job, also of one that came back, and no others")
    func snoozed() async throws {
        try await Samples.withStores { database in
            let first = Samples.notification(1, user: "a", job: "j")
            let again = Samples.notification(2, user: "a", job: "\(ScheduleStore.snoozePrefix(of: first.id))1") {
                $0.jobEntry = ScheduleStore.snoozeSource(of: first)
            }
            let other = Samples.notification(3, user: "a", job: "other")
            _ = try await database.notifications.store([first, again, other], areRepeats: false)
            let schedules = [again, other].enumerated().map { number, notification in
                var schedule = Schedule(
                    id: NotificationID(high: 1, low: UInt64(number)), fields: [], dueAt: Self.later,
                    createdAt: Samples.start)
                schedule.jobID = "\(ScheduleStore.snoozePrefix(of: notification.id))2"
                schedule.user = "a"
                schedule.source = ScheduleStore.snoozeSource(of: notification)
                return schedule
            }
            _ = try await database.schedules.add(schedules)
            _ = try await database.cancellations.cancel([first.key], at: Self.later)
            let left = try await database.pool.query("SELECT source FROM carillon.schedules").texts()
            #expect(left == ["snooze//other"])
        }
    }

    @Test("counts a queued notification as in flight until each of its devices is settled")
    func settling() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let phone = try await devices.register(Samples.device(user: "u", token: "phone", name: "phone")).device
            let tablet = try await devices.register(Samples.device(user: "u", token: "tablet", name: "tablet")).device
            let notification = try await Self.queued(database)
            let cancellations = database.cancellations
            _ = try await cancellations.cancel([notification.key], at: Self.later)
            // It was not enqueued for a device that comes later.
            _ = try await devices.register(Samples.device(user: "u", token: "late", name: "late"))
            var left: [Int64] = []
            for device in [phone, tablet] {
                try await Self.refuse(notification, on: device, database)
                left.append(try await cancellations.tally(.init(org: "", id: "j")).inFlight)
            }
            #expect(left == [1, 0])
        }
    }

    @Test("counts nothing as in flight that the gate refused between the cancellation and the withdrawal")
    func refusedBefore() async throws {
        try await Samples.withStores { database in
            let phone = try await database.devices.register(Samples.device(user: "u", token: "phone")).device
            let notification = try await Self.queued(database)
            try await Self.refuse(notification, on: phone, database)
            let cancellations = database.cancellations
            let withdrawn = try await cancellations.cancel([notification.key], at: Self.later)
            #expect(withdrawn.map(\.id) == [notification.id])
            #expect(try await cancellations.tally(.init(org: "", id: "j")).inFlight == 0)
        }
    }

    @Test(
        "counts a push as in flight that was postponed before, or whose twin is refused",
        arguments: ["quiet_hours", "under_way"])
    func queuedAgain(reason: String) async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            let phone = try await devices.register(Samples.device(user: "u", token: "phone", name: "phone")).device
            let tablet = try await devices.register(Samples.device(user: "u", token: "tablet", name: "tablet")).device
            let notification = try await Self.queued(database)
            let now = try await database.clock()
            for device in [phone, tablet] {
                try await Self.refuse(notification, on: device, as: reason, at: now + .seconds(-3_600), database)
            }
            try await database.notifications.mark([(notification.key, .pending, "queued", nil)])
            let cancellations = database.cancellations
            let name = CancellationStore.Name(org: "", id: "j")
            _ = try await cancellations.cancel([notification.key], at: Self.later)
            #expect(try await cancellations.tally(name).inFlight == 1)
            try await Self.refuse(notification, on: tablet, database)
            #expect(try await cancellations.tally(name).inFlight == 1, "the phone's call is under way")
            try await Self.refuse(notification, on: phone, as: reason, at: now, database)
            // Quiet hours have postponed the push; a twin of it is still under way.
            #expect(try await cancellations.tally(name).inFlight == (reason == "quiet_hours" ? 0 : 1))
            try await Self.refuse(notification, on: phone, database)
            #expect(try await cancellations.tally(name).inFlight == 0)
        }
    }

    /// Stores a notification of the user `u` whose push is queued.
    private static func queued(_ database: Database) async throws -> Notification {
        let notification = Samples.notification(1, user: "u", job: "j") { $0.channels = [.inApp, .push] }
        _ = try await database.notifications.store([notification], areRepeats: false)
        try await database.notifications.mark([(notification.key, .pending, "queued", nil)])
        return notification
    }

    /// Settles a push that the gate refused, because its job was cancelled or for another reason
    /// that ends nothing.
    private static func refuse(
        _ notification: Notification,
        on device: Device,
        as reason: String = "cancelled",
        at moment: Timestamp = CancellationStoreTests.later,
        _ database: Database
    ) async throws {
        var settlement = DeliveryStore.Settlement()
        settlement.attempts = [
            DeliveryStore.Attempt(
                at: moment, user: "u", notification: notification.id, device: device.id, provider: .fcm,
                kind: "push", attempt: 1, outcome: .skipped, reason: reason)
        ]
        if reason == "cancelled" { settlement.obsolete = [(notification.key, reason)] }
        try await database.deliveries.settle(settlement)
    }

    @Test("drops the waiting mail of a notification that a device has")
    func waitingMail() async throws {
        try await Samples.withStores { database in
            let (store, followUps) = (database.notifications, database.followUps)
            let users = ["pushed", "mailing", "open"]
            let batch = users.enumerated().map { index, user in
                Samples.notification(index, user: user, job: "j") { $0.channels = [.inApp, .push, .email] }
            }
            _ = try await store.store(batch, areRepeats: false)
            try await store.mark(batch[..<2].map { ($0.key, .sent, nil, "fcm") })
            let items = batch.map { FollowUpStore.Item(user: $0.user, notification: $0.id, kind: .email) }
            // Later than any cancellation is kept.
            let due = Self.later + .seconds(10 * 86_400)
            try await followUps.postpone([(items[0], due, "unread"), (items[2], due, "unread")], now: Samples.start)
            try await followUps.expect([items[1]], until: due)
            let keys = batch.map { $0.key }
            let withdrawn = try await database.cancellations.cancel(keys, at: Self.later)
            #expect(withdrawn.map(\.user) == ["open"])
            let waiting = try await database.pool.query("SELECT user_id FROM carillon.follow_ups ORDER BY 1")
            #expect(try waiting.map { try $0.text(0) } == ["mailing", "open"])
            let attempts = try await database.pool.query(
                "SELECT concat_ws(' ', user_id, kind, outcome, reason) FROM carillon.delivery_attempts")
            #expect(try attempts.map { try $0.text(0) } == ["pushed email skipped cancelled"])
        }
    }

    @Test("starts a page after the last user of the previous one")
    func pages() async throws {
        try await Samples.withStores { database in
            let batch = (0..<5).map { Samples.notification($0, user: "u\($0)", job: "j") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            let cancellations = database.cancellations
            let first = try await cancellations.page(org: "", job: "j", after: "", limit: 3)
            #expect(first.map(\.user) == ["u0", "u1", "u2"])
            let rest = try await cancellations.page(org: "", job: "j", after: "u2", limit: 3)
            #expect(rest.map(\.user) == ["u3", "u4"])
        }
    }

    @Test("finds a job's notification by user, and all of a job, by the same index")
    func plans() async throws {
        try await Samples.withStores { database in
            for condition in ["user_id = 'u' AND org_id = 'o' AND job_id = 'j'", "org_id = 'o' AND job_id = 'j'"] {
                let plan = try await database.pool.run([
                    PostgresStatement("EXPLAIN SELECT id FROM carillon.notifications WHERE \(condition)")
                ])
                let lines = try plan.first.map { try $0.map { try $0.text(0) } } ?? []
                let scans = lines.filter { $0.contains("Scan") }
                #expect(!scans.isEmpty)
                #expect(scans.allSatisfy { $0.contains("notifications_job") }, "\(lines)")
            }
        }
    }

    @Test("forgets cancellations after their retention")
    func forgetting() async throws {
        try await Samples.withStores { database in
            let cancellations = database.cancellations
            let names = ["old", "new"].map { CancellationStore.Name(org: "", id: $0) }
            try await cancellations.record(names[0], at: Samples.start)
            try await cancellations.record(names[1], at: Self.later)
            #expect(try await database.retention.dropCancellations(before: Self.later, limit: 10) == 1)
            #expect(try await cancellations.cancelledAt(names[0]) == nil)
            #expect(try await cancellations.cancelledAt(names[1]) == Self.later)
        }
    }

    @Test("remembers a cancellation as long as a digest may hold its job")
    func remembering() async throws {
        try await Samples.withStores { database in
            var rule = DigestRule(window: .seconds(30 * 86_400), maximum: .seconds(30 * 86_400))
            rule.singles = 0
            let item = DigestStore.Item(
                notification: Samples.notification(1, user: "a", job: "held"), key: "k", rule: rule)
            #expect(try await database.digests.gather([item], now: Samples.start) == [.held])
            let name = CancellationStore.Name(org: "", id: "held")
            try await database.cancellations.record(name, at: Samples.start + .seconds(60))
            let later = Samples.start + .seconds(8 * 86_400)
            #expect(try await database.retention.dropCancellations(before: later, limit: 10) == 0)
            let end = Samples.start + .seconds(30 * 86_400)
            let due = try await database.digests.claim(now: end, until: end + .seconds(30), limit: 10)
            #expect(due.map(\.count) == [0])
            try await database.digests.remove(due.map(\.id))
            #expect(try await database.retention.dropCancellations(before: later, limit: 10) == 1)
        }
    }

    @Test("looks for the items of a cancelled job by index")
    func heldPlan() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.digest_items (user_id, notification_id, digest_id, is_single, gathered_at, job_entry,
                    org_id, job_id, type, severity, delivery, channels, title, body)
                SELECT 'u' || n, gen_random_uuid(), gen_random_uuid(), false, now(), 'jobs/' || n, '', 'j' || n, 'news',
                    'info', 'push', 3, '', ''
                FROM generate_series(1, 20000) n
                """
            )
            try await database.pool.query("ANALYZE carillon.digest_items")
            for (column, collation, condition) in [
                ("job_id", "C", "((org_id = "), ("job_entry", "default", "(job_entry = "),
            ] {
                let plan = try await database.pool.query(
                    """
                    EXPLAIN SELECT FROM carillon.cancellations c
                    WHERE NOT \(RetentionStore.isHeld(column, collation))
                    """
                ).map { try $0.text(0) }
                #expect(plan.contains { $0.contains("Index Cond: " + condition) }, "\(plan.joined(separator: "\n"))")
            }
        }
    }

    @Test("a cancellation waits for a transaction that stores, and keeps no other waiting")
    func recordWaits() async throws {
        try await Samples.withStoresOfTwoPools { database, second in
            let store = database.notifications
            let name = CancellationStore.Name(org: "", id: "j")
            let first = NotificationStore.statements(
                for: [Samples.notification(0, user: "first", job: "j")], areRepeats: false)
            let found = try await database.pool.transaction { transaction in
                _ = try await transaction.run(first)
                let found = Task {
                    try await second.cancellations.record(name, at: Self.later)
                    return try await second.cancellations.page(org: "", job: "j", after: "", limit: 10).map(\.user)
                }
                try await eventually("the cancellation is recorded") {
                    try await database.cancellations.cancelledAt(name) != nil
                }
                for number in 1...20 {
                    let batch = try await store.store(
                        [Samples.notification(number, user: "u\(number)")], areRepeats: false)
                    #expect(batch.outcomes == [.stored(version: 1, unread: 1)])
                }
                return found
            }
            #expect(try await found.value == ["first"])
        }
    }
}
