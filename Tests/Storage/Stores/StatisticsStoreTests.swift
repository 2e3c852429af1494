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
        let ids = Dictionary(uniqueKeysWithValues: zip(Self.users, batch.map(\.id)))
        func id(_ user: String) throws -> NotificationID { try #require(ids[user]) }
        try await store.mark([
            ("waiting", try id("waiting"), .pending, "queued", nil),
            ("deviceless", try id("deviceless"), .sent, "no_device", "inbox"),
            ("deviceless push", try id("deviceless push"), .failed, "no_device", nil),
            ("away", try id("away"), .sent, "offline", "inbox"), ("pushed", try id("pushed"), .sent, nil, "fcm"),
            ("mailed", try id("mailed"), .sent, nil, "email"),
            ("failed", try id("failed"), .failed, "UNREGISTERED", nil),
            ("summarised", try id("summarised"), .sent, "summarised", "summary"),
        ])
        var settlement = DeliveryStore.Settlement()
        let device = NotificationID(high: 1, low: 2)
        settlement.accepted = [("pushed and proven", try id("pushed and proven"), "apns", device)]
        try await database.deliveries.settle(settlement)
        _ = try await store.markDelivered(
            [
                ("proven", try id("proven"), Samples.start),
                ("pushed and proven", try id("pushed and proven"), Samples.start),
            ], via: "socket")
        let inbox = InboxStore(database)
        _ = try await inbox.markDelivered(user: "client", id: try id("client"), at: Samples.start, via: "client")
        _ = try await inbox.markOpened(user: "pushed", id: try id("pushed"), at: Samples.start)
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

    @Test(
        "counts every outcome of a job, its type and a broadcast"
    )
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

    @Test("counts all notifications of a large broadcast")
    func broadcast() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.broadcasts
                    (id, org_id, job_id, job_entry, stream, fields, lane, urgency, state, created_at)
                VALUES (gen_random_uuid(), '', 'b', 'jobs/1-0', 'jobs', '[["all","true"],["type","offer"]]', 'bulk', 2,
                    'expanding', now())
                """)
            try await database.pool.query(
                """
                INSERT INTO carillon.broadcast_pages
                    (broadcast, part, number, after_user, until_user, selected, stored, counted, at)
                SELECT b.id, part, 0, '', 'z', 2000, 1906 + part, '{}', now()
                FROM carillon.broadcasts b, generate_series(0, 15) part
                """)
            try await database.pool.query(
                """
                INSERT INTO carillon.notifications
                    (user_id, id, version, job_entry, org_id, job_id, type, severity, delivery, lane, channels, title,
                    body, status, status_reason, sent_via, created_at)
                SELECT 'u' || n, gen_random_uuid(), 1, 'jobs/1-0', '', 'b', 'offer', 'info', 'push', 'bulk', 3, 't', '',
                    'sent', CASE WHEN n > 10506 THEN 'no_device' END, CASE WHEN n > 10506 THEN 'inbox' ELSE 'fcm' END,
                    now()
                FROM generate_series(1, 30506) n
                """, timeout: .seconds(60))
            let broadcasts = try await database.statistics.broadcasts()
            #expect(broadcasts.map(\.job) == ["b"])
            #expect(broadcasts.map(\.type) == ["offer"])
            #expect(broadcasts.map(\.stored) == [16 * 1_906 + 120])
            #expect(broadcasts.first?.reach?.stored == 30_506)
            #expect(broadcasts.first?.reach?.noDevice == 20_000)
            #expect(broadcasts.first?.reach?.accepted == 10_506)
        }
    }
}
