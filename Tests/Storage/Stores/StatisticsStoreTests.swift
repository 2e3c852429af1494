// Carillon · StatisticsStoreTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Testing

@testable import Storage

/// Delivery statistics for operators.
@Suite(.timeLimit(.minutes(10)))
struct StatisticsStoreTests {
    /// The users of a job, one for each outcome.
    private static let users = [
        "waiting", "deviceless", "deviceless push", "away", "pushed", "mailed", "proven", "pushed and proven", "failed",
        "summarised", "client",
    ]

    /// Stores a job's notifications for ``users`` and brings each to the outcome that its user
    /// names.
    private static func store(_ job: String, in database: Database) async throws {
        let store = database.notifications
        let batch = Self.users.enumerated().map { index, user in
            Samples.notification(index, user: user, job: job)
        }
        _ = try await store.store(batch, areRepeats: false)
        let keys = Dictionary(uniqueKeysWithValues: zip(Self.users, batch.map(\.key)))
        func key(_ user: String) throws -> NotificationKey { try #require(keys[user]) }
        try await store.mark([
            (try key("waiting"), .pending, "queued", nil),
            (try key("deviceless"), .sent, "no_device", "inbox"),
            (try key("deviceless push"), .failed, "no_device", nil),
            (try key("away"), .sent, "offline", "inbox"), (try key("pushed"), .sent, nil, "fcm"),
            (try key("mailed"), .sent, nil, "email"),
            (try key("failed"), .failed, "UNREGISTERED", nil),
            (try key("summarised"), .sent, "summarised", "summary"),
        ])
        var settlement = DeliveryStore.Settlement()
        let device = DeviceID(high: 1, low: 2)
        settlement.accepted = [(try key("pushed and proven"), "apns", device)]
        try await database.deliveries.settle(settlement)
        _ = try await store.markDelivered(
            [
                (try key("proven"), Samples.start),
                (try key("pushed and proven"), Samples.start),
            ], via: "socket")
        let inbox = InboxStore(database)
        _ = try await inbox.markDelivered(user: "client", id: try key("client").id, at: Samples.start, via: "client")
        _ = try await inbox.markOpened(user: "pushed", id: try key("pushed").id, at: Samples.start)
        _ = try await inbox.markRead(user: "deviceless", ids: nil, at: Samples.start)
    }

    private static var expected: Reach {
        var reach = Reach()
        reach.stored = Int64(Self.users.count)
        reach.noDevice = 2
        reach.accepted = 3
        reach.failed = 1
        reach.delivered = 3
        reach.opened = 1
        reach.read = 1
        return reach
    }

    @Test("counts every outcome of a job and of its type")
    func reach() async throws {
        try await Samples.withStores { database in
            try await Self.store("j", in: database)
            let tally = try await database.cancellations.tally(CancellationStore.Name(org: "", id: "j"))
            #expect(tally.reach == Self.expected)
            #expect(tally.total == Self.expected.stored)
            #expect(tally.counts[.sent] == 5)
            let statistics = database.statistics
            let past = Timestamp(seconds: 0)
            let summary = try await statistics.summary(since: past, typesSince: past)
            #expect(summary.types.map(\.type) == ["invoice_created"])
            #expect(summary.types.map(\.reach) == [Self.expected])
        }
    }

    @Test("a replaced notification counts as suppressed or skipped, not as waiting in the inbox")
    func replaced() async throws {
        try await Samples.withStores { database in
            let store = database.notifications
            let batch = (1...3).map { Samples.notification($0, user: "ada") { $0.collapseKey = "k" } }
            for (index, notification) in batch.enumerated() {
                let stored = try await store.store([notification], areRepeats: false)
                #expect(stored.replacements.count == min(index, 1))
                if index == 1 { try await store.mark([(notification.key, .sent, "offline", "inbox")]) }
            }
            let past = Timestamp(seconds: 0)
            let summary = try await database.statistics.summary(since: past, typesSince: past)
            var counts: [String: Int64] = [:]
            for count in summary.counts { counts[count.outcome, default: 0] += count.count }
            #expect(counts == ["suppressed": 1, "skipped": 1, "waiting": 1])
        }
    }

    @Test("at the bound, says since when it counts, and keeps the newest minute")
    func bound() async throws {
        try await Samples.withStores { database in
            let pool = database.pool
            let clock = try await pool.query("SELECT date_trunc('minute', now())")
            let minute = try #require(try clock.first?.timestamp(0))
            let since = minute - .seconds(59 * 60)
            let day = minute - .seconds(86_400)
            try await pool.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome)
                SELECT a.at, 'ada', a.provider, 'push', 1, 'accepted'
                FROM (SELECT $1::timestamptz AS at, 'fcm' AS provider FROM generate_series(1, 3)
                    UNION ALL SELECT $1::timestamptz - interval '5 minutes', 'apns') a
                """, .timestamp(minute))
            let store = StatisticsStore(pool: pool, bound: 3)
            let burst = try await store.summary(since: since, typesSince: day)
            #expect(burst.since == minute && burst.skippedMinutes == 59 && !burst.isComplete)
            #expect(burst.counts.map(\.channel) == ["fcm"])
            #expect(burst.counts.map(\.count) == [3])
            #expect(burst.typesStart == nil)
            let all = try await database.statistics.summary(since: since, typesSince: day)
            #expect(all.since == since && all.skippedMinutes == 0 && all.isComplete)
            #expect(Set(all.counts.map(\.channel)) == ["fcm", "apns"])

            try await pool.query(
                """
                INSERT INTO carillon.notifications
                    (user_id, id, version, job_entry, org_id, type, severity, delivery, lane, channels, title, body,
                    status, created_at, stored_at)
                SELECT 'u' || n, gen_random_uuid(), 1, 'jobs/1-0', '', CASE WHEN n > 3 THEN 'news' ELSE 'paid' END,
                    'info', 'push', 'bulk', 3, 't', '', 'sent', $1, $1::timestamptz - n * interval '2 hours'
                FROM generate_series(1, 5) n
                """, .timestamp(minute))
            let cut = try await store.summary(since: since, typesSince: day)
            #expect(cut.types.map(\.type) == ["paid"])
            #expect(cut.typesStart == minute - .seconds(6 * 3_600))
            let whole = try await database.statistics.summary(since: since, typesSince: day)
            #expect(whole.types.map(\.type) == ["paid", "news"])
            #expect(whole.typesStart == nil)
        }
    }

    @Test("finds failures behind any number of newer attempts, by their index")
    func failures() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome, reason)
                SELECT now() - n * interval '1 second', 'ada', 'fcm', 'push', 1,
                    CASE WHEN n = 3000 THEN 'failed' ELSE 'accepted' END, CASE WHEN n = 3000 THEN 'BadDeviceToken' END
                FROM generate_series(1, 3000) n
                """)
            try await database.pool.query("ANALYZE carillon.delivery_attempts")
            let since = Timestamp(seconds: 0)
            let store = StatisticsStore(pool: database.pool, bound: 100)
            let (failures, next) = try await store.failures(since: since, limit: 20)
            #expect(failures.map(\.reason) == ["BadDeviceToken"])
            #expect(next == nil)
            let lines = try await database.pool.query(
                "EXPLAIN ANALYZE " + StatisticsSQL.failures, .timestamp(since), .timestamp(nil), .text(nil), .text(nil),
                .text(nil), .int4(100), .int4(20)
            ).map { try $0.text(0) }
            #expect(!lines.contains { $0.contains("Rows Removed") }, "\(lines.joined(separator: "\n"))")
        }
    }

    @Test("failures of the same moments come in pages, and a filter looks at no more of them than the bound")
    func failurePages() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome, reason)
                SELECT now() - n % 2 * interval '1 day', 'u' || n, 'fcm', 'push', 1, 'failed', 'reason ' || n
                FROM generate_series(1, 9) n
                """)
            func pages(of store: StatisticsStore, reason: String? = nil, limit: Int) async throws -> [[String]] {
                var pages: [[String]] = []
                var last: StatisticsStore.Cursor?
                while pages.isEmpty || last != nil, pages.count < 10 {
                    let (page, next) = try await store.failures(
                        since: Timestamp(seconds: 0), reason: reason, after: last, limit: limit)
                    pages.append(page.map(\.user))
                    last = next.flatMap { StatisticsStore.Cursor($0.text) }
                }
                return pages
            }
            let all = try await pages(of: database.statistics, limit: 2)
            #expect(all.map(\.count) == [2, 2, 2, 2, 1])
            #expect(all.joined().sorted() == (1...9).map { "u\($0)" })
            // It looks at four, four and one.
            let bounded = StatisticsStore(pool: database.pool, bound: 4)
            let found = try await pages(of: bounded, reason: "reason 2", limit: 2)
            #expect(found.count == 3)
            #expect(Array(found.joined()) == ["u2"])
        }
    }

    @Test("reads no cursor from other text", arguments: ["", "x", "1.(0)", "1.(0,99999)", "\(Int64.min).(0,1)"])
    func noCursor(text: String) {
        #expect(StatisticsStore.Cursor(text) == nil)
    }
}
