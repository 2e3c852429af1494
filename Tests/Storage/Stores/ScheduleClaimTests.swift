// Carillon · ScheduleClaimTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Testing

@testable import Storage

/// The plans by which due schedules are found and claimed.
@Suite(.timeLimit(.minutes(10)))
struct ScheduleClaimTests {
    private static let now = Samples.start

    /// Stores due pages of a broadcast.
    private static func storePages(
        _ count: Int,
        of job: String,
        _ state: Broadcast.State,
        _ database: Database
    ) async throws {
        try await database.pool.run([
            PostgresStatement(
                """
                INSERT INTO carillon.broadcasts (id, org_id, job_id, job_entry, stream, fields, lane, urgency, state,
                    created_at)
                VALUES (gen_random_uuid(), 'org', $1, $1, 'jobs', '[]', 'normal', 1, $2, now())
                """, [.text(job), .text(state.rawValue)]),
            PostgresStatement(
                """
                INSERT INTO carillon.schedules (id, org_id, job_id, part, source, lane, fields, content, due_at,
                    wake_at, created_at)
                SELECT gen_random_uuid(), 'org', $1, 'UTC 0/' || n || ' hash', $1, $2, '[]', n, $3, $3, $3
                FROM generate_series(1, $4) n
                """,
                [.text(job), .int4(clamping: Lane.normal.rank), .timestamp(Self.now), .int4(clamping: count)]),
        ])
    }

    @Test("while a lane is full, claims the pages of cancelled broadcasts without reading the others that are due")
    func cancelledPages() async throws {
        try await Samples.withStores { database in
            try await Self.storePages(20_000, of: "others", .done, database)
            try await Self.storePages(6, of: "a", .cancelling, database)
            try await Self.storePages(6, of: "b", .cancelled, database)
            for id in ["a", "b", "unknown"] {
                try await database.cancellations.record(.init(org: "org", id: id), at: Self.now)
            }
            for table in ["schedules", "broadcasts"] { try await database.pool.query("ANALYZE carillon.\(table)") }
            let moments = [Self.now, Self.now + .seconds(30)].map { "'\($0.rfc3339)'" }.joined(separator: ", ")
            let plan = try await Samples.plan(
                of: ScheduleSQL.claim, "int4, timestamptz, timestamptz, bool",
                "\(Lane.normal.rank), \(moments), false", explain: "EXPLAIN (ANALYZE, BUFFERS)", database)
            #expect(plan.contains("One-Time Filter: (NOT $4)"), "\(plan)")
            let buffers = try #require(plan.firstMatch(of: /shared hit=(\d+)/)?.output.1, "\(plan)")
            // Reading the other pages would take a buffer for each.
            #expect(try #require(Int(buffers)) < 2_000, "\(plan)")
            var claimed: [[String?]] = []
            for _ in 0..<3 {
                claimed.append(
                    try await database.schedules.claim(.normal, now: Self.now, hold: .seconds(30), hasRoom: false)
                        .map(\.jobID))
            }
            #expect(claimed.map(\.count) == [ScheduleStore.pageClaimSize, 4, 0])
            #expect(Set(claimed.joined()) == ["a", "b"])
        }
    }

    @Test("finds due schedules and pages of broadcasts among 20,000 by index")
    func plan() async throws {
        try await Samples.withStores { database in
            try await database.pool.query(
                """
                INSERT INTO carillon.schedules (id, org_id, part, source, lane, fields, content, due_at, wake_at,
                    created_at)
                SELECT gen_random_uuid(), '', CASE WHEN n % 10 = 0 THEN 'UTC 0/0 hash' ELSE '' END, 'x', n % 3, '[]', n,
                    now() + n * interval '1 second', now() + n * interval '1 second', now()
                FROM generate_series(1, 20000) n
                """
            )
            try await database.pool.query("ANALYZE carillon.schedules")
            let now = "'\(Self.now.rfc3339)'"
            let claim = try await Samples.plan(
                of: ScheduleSQL.claim, "int4, timestamptz, timestamptz, bool", "1, \(now), \(now), true", database)
            // `schedules_due` has no pages, so jobs do not wait behind those that are held.
            for index in ["schedules_due", "schedules_pages", "schedules_job", "schedules_pkey"] {
                #expect(claim.contains(index), "\(claim)")
            }
            #expect(!claim.contains("Seq Scan on schedules") && !claim.contains("Sort"), "\(claim)")
            let due = try await Samples.plan(of: ScheduleSQL.duePage, "int4, timestamptz", "1, \(now)", database)
            let held = try await Samples.plan(
                of: ScheduleSQL.holdPages, "int4, timestamptz, timestamptz, int4",
                "1, \(now), \(now)::timestamptz - interval '1 hour', 9", database)
            for pages in [due, held] {
                #expect(pages.contains("schedules_pages") && !pages.contains("schedules_due"), "\(pages)")
            }
        }
    }
}
