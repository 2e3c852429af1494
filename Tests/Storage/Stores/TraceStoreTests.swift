// Carillon · TraceStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@testable import Core
@testable import Storage

@Suite("Traces", .timeLimit(.minutes(10)))
struct TraceStoreTests {
    @Test("includes changes of the user's tokens")
    func tokens() async throws {
        try await Samples.withStores { database in
            let devices = database.devices
            _ = try await devices.register(Samples.device(user: "a", token: "before", at: -10))
            let notification = Samples.notification(0, user: "a") { $0.expiresAt = Samples.start + .seconds(600) }
            _ = try await database.notifications.store([notification], areRepeats: false)
            try await database.pool.query("UPDATE carillon.notifications SET stored_at = created_at")
            for (user, token, second) in [("a", "meanwhile", 60), ("b", "another's", 60), ("a", "after", 600)] {
                _ = try await devices.register(Samples.device(user: user, token: token, at: Int64(second)))
            }
            let record = try #require(try await database.traces.record(notification.id, user: "a"))
            #expect(record.attempts.map(\.kind) == ["token"])
            #expect(record.attempts.first?.at == Samples.start + .seconds(60))
            #expect(record.attempts.first?.outcome == "registered")
            #expect(record.attempts.first?.reason == "new")
        }
    }

    @Test("keeps postponements and missing proofs after they ended")
    func steps() async throws {
        try await Samples.withStores { database in
            let notification = Samples.notification(0, user: "a")
            _ = try await database.notifications.store([notification], areRepeats: false)
            let deliveries = database.deliveries
            // The dispatcher that died, then the one that took over.
            for second in [5, 35] {
                try await deliveries.recordUnproven([notification.key], at: Samples.start + .seconds(second))
            }
            let followUps = database.followUps
            let item = FollowUpStore.Item(user: "a", notification: notification.id, kind: .release)
            let mail = FollowUpStore.Item(user: "a", notification: notification.id, kind: .email)
            let end = Samples.start + .seconds(3_636)
            try await followUps.postpone(
                [(item, end, "quiet_hours"), (mail, end, "unread")], now: Samples.start + .seconds(36))
            let taken = try await followUps.claim(now: end, until: end + .seconds(30), limit: 10)
            try await followUps.remove(taken.map(\.item), claimedUntil: end + .seconds(30))
            let record = try #require(try await database.traces.record(notification.id, user: nil))
            #expect(record.followUps.isEmpty)
            #expect(record.attempts.map(\.kind) == [AuditStep.kind, AuditStep.kind])
            #expect(record.attempts.map(\.outcome) == ["unproven", "deferred"])
            #expect(record.attempts.map(\.at) == [Samples.start + .seconds(5), Samples.start + .seconds(36)])
            #expect(record.attempts.last?.reason == "quiet_hours")
            #expect(record.attempts.last?.milliseconds == 3_600_000)
        }
    }

    @Test("shows the digest that held a notification and its summary")
    func gathered() async throws {
        try await Samples.withStores { database in
            let digests = database.digests
            let rule = DigestRule(window: .seconds(60), maximum: .seconds(60))
            let batch = (1...2).map { Samples.notification($0, user: "a", job: "j\($0)") }
            let items = batch.map { DigestStore.Item(notification: $0, key: "k", rule: rule) }
            #expect(try await digests.gather(items, now: Samples.start) == [.held, .held])
            let store = database.traces
            let waiting = try #require(try await store.record(batch[1].id, user: "a"))
            #expect(waiting.notification.title == "n2")
            #expect(waiting.notification.jobID == "j2")
            #expect(waiting.notification.status == .deferred)
            #expect(waiting.storedAt == Samples.start)
            #expect(waiting.followUps.map(\.kind) == ["summary"])
            #expect(waiting.followUps.first?.due == Samples.start + .seconds(60))
            #expect(waiting.gathering?.summary == nil)
            let steps = try await database.people.waiting(for: "a")
            #expect(steps.map(\.kind) == ["summary"] && steps.map(\.dueAt) == [Samples.start + .seconds(60)])
            #expect(steps.map(\.notification) == [batch[0].id])

            let over = Samples.start + .seconds(60)
            let due = try #require(try await digests.claim(now: over, until: over + .seconds(30), limit: 10).first)
            #expect(waiting.gathering?.window == due.id)
            let claimed = try #require(try await store.record(batch[1].id, user: "a"))
            #expect(claimed.notification.status == .deferred, "its summary is not stored")
            let summary = Notification(id: due.summary, user: "a", type: "summary", createdAt: over)
            let stored = try await database.notifications.storeDigests(
                [summary], windows: [due.id], claimedUntil: over + .seconds(30))
            #expect(stored != nil)
            try await digests.remove([due.id])
            for user in ["a", nil] {
                let record = try #require(try await store.record(batch[1].id, user: user))
                #expect(record.notification.status == .sent)
                #expect(record.notification.statusReason == "summarised")
                #expect(record.followUps.isEmpty)
                #expect(record.gathering?.summary?.id == summary.id)
            }
            let foreign = try await store.record(batch[1].id, user: "b")
            #expect(foreign == nil)

            let org = batch[1].org
            let byEntry = CancellationStore.Name(org: org, id: "2", entries: [batch[1].jobEntry])
            for name in [CancellationStore.Name(org: org, id: "j2"), byEntry] {
                let held = try await store.held(of: name, user: nil, limit: 10)
                #expect(held.map(\.id) == [batch[1].id] && held.map(\.user) == ["a"])
            }
            let others = try await store.held(of: byEntry, user: "b", limit: 10)
            #expect(others.isEmpty)
        }
    }

    @Test("shows the items of a digest that was put off as waiting, and the digest as late")
    func putOff() async throws {
        try await Samples.withStores { database in
            var rule = DigestRule(window: .seconds(60), maximum: .seconds(3_600))
            rule.isSliding = true
            let batch = (1...2).map { Samples.notification($0, user: "a", job: "j\($0)") }
            let items = batch.map { DigestStore.Item(notification: $0, key: "k", rule: rule) }
            #expect(try await database.digests.gather(items, now: Samples.start) == [.held, .held])
            let over = Samples.start + .seconds(60)
            let again = over + .seconds(600)
            let window = try await database.digests.putOff(now: over, until: again)
            #expect(window != nil)

            let record = try #require(try await database.traces.record(batch[1].id, user: "a"))
            #expect(record.notification.status == .deferred && record.notification.statusReason == "digest")
            #expect(record.sentVia == nil)
            #expect(record.followUps.map(\.kind) == ["summary"] && record.followUps.map(\.due) == [again])
            let steps = try await database.people.waiting(for: "a")
            #expect(steps.map(\.kind) == ["summary"] && steps.map(\.dueAt) == [again])
            let overview = try await database.overviews.summary(
                since: Samples.start, org: nil, now: over + .seconds(120))
            #expect(overview.late == 1)

            let name = CancellationStore.Name(org: batch[1].org, id: "j2")
            try await database.cancellations.record(name, at: over)
            let cancelled = try #require(try await database.traces.record(batch[1].id, user: "a"))
            #expect(cancelled.notification.status == .cancelled && cancelled.followUps.isEmpty)
        }
    }

    @Test("a digest waits for a user once it holds an item; items that are sent on their own do not count")
    func singles() async throws {
        try await Samples.withStores { database in
            var rule = DigestRule(window: .seconds(60))
            rule.singles = 1
            var waiting: [[NotificationID?]] = []
            let batch = (1...2).map { Samples.notification($0, user: "a", job: "j\($0)") }
            for notification in batch {
                let item = DigestStore.Item(notification: notification, key: "k", rule: rule)
                _ = try await database.digests.gather([item], now: Samples.start)
                waiting.append(try await database.people.waiting(for: "a").map(\.notification))
            }
            #expect(waiting == [[], [batch[1].id]])
        }
    }

    @Test("finds the items of a job by index, without those of other jobs")
    func heldPlan() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.digest_items (user_id, notification_id, digest_id, is_single, gathered_at,
                    job_entry, org_id, job_id, type, severity, delivery, channels, title, body)
                SELECT 'u' || n, gen_random_uuid(), gen_random_uuid(), false, now(), 'jobs/' || n / 500, '',
                    'j' || n / 500, 'news', 'info', 'push', 3, '', ''
                FROM generate_series(1, 20000) n
                """)
            try await database.pool.query("ANALYZE carillon.digest_items")
            for (column, name) in [("job_id", "j39"), ("job_entry", "jobs/39")] {
                let lines = try await database.pool.query(
                    "EXPLAIN ANALYZE " + TraceStore.heldItems(of: column), .text(""), .texts([name]), .text(nil),
                    .int4(10)
                ).map { try $0.text(0) }
                #expect(!lines.contains { $0.contains("Rows Removed") }, "\(lines.joined(separator: "\n"))")
            }
        }
    }

    @Test("shows an item as cancelled whose digest still waits")
    func gatheredAndCancelled() async throws {
        try await Samples.withStores { database in
            let rule = DigestRule(window: .seconds(60), maximum: .seconds(60))
            let notification = Samples.notification(1, user: "a", job: "j")
            let item = DigestStore.Item(notification: notification, key: "k", rule: rule)
            #expect(try await database.digests.gather([item], now: Samples.start) == [.held])
            let at = Samples.start + .seconds(7)
            try await database.cancellations.record(.init(org: notification.org, id: "j"), at: at)
            let record = try #require(try await database.traces.record(notification.id, user: "a"))
            #expect(record.notification.status == .cancelled)
            #expect(record.cancelledAt == at)
            #expect(record.followUps.isEmpty)
        }
    }

    @Test("shows when the job was cancelled")
    func cancelled() async throws {
        try await Samples.withStores { database in
            let notification = Samples.notification(0, user: "a", job: "order-1")
            _ = try await database.notifications.store([notification], areRepeats: false)
            let store = database.traces
            #expect(try await store.record(notification.id, user: "a")?.cancelledAt == nil)
            let at = Samples.start + .seconds(7)
            let name = CancellationStore.Name(org: notification.org, id: "order-1")
            try await database.cancellations.record(name, at: at)
            #expect(try await store.record(notification.id, user: "a")?.cancelledAt == at)
        }
    }

    @Test("finds a notification without its user by its attempts or the time in its id")
    func search() async throws {
        try await Samples.withStores { database in
            let store = database.traces
            let batch = (0..<3).map { Samples.notification($0, user: "u\($0)") }
            _ = try await database.notifications.store(batch, areRepeats: false)
            // The first was stored at once, the others an hour late; the second has an attempt.
            try await database.pool.query(
                """
                UPDATE carillon.notifications
                SET stored_at = created_at + CASE WHEN user_id = 'u0' THEN interval '1 second' ELSE interval '1 hour' END
                """
            )
            var settlement = DeliveryStore.Settlement()
            settlement.attempts = [
                DeliveryStore.Attempt(
                    at: batch[1].createdAt + .seconds(3_600), user: "u1", notification: batch[1].id, device: nil,
                    provider: .fcm, kind: "push", attempt: 1, outcome: .accepted)
            ]
            try await database.deliveries.settle(settlement)
            for (index, isFound) in [true, true, false].enumerated() {
                let record = try await store.record(batch[index].id, user: nil)
                #expect((record?.notification.user == "u\(index)") == isFound)
                #expect(try await store.record(batch[index].id, user: "u\(index)") != nil)
            }
        }
    }
}
