// Carillon · RetentionServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Operations
import Support
import Testing

@testable import Pipeline
@testable import Storage

/// Retention on a dispatcher whose clock differs from PostgreSQL's.
@Suite(.timeLimit(.minutes(10)))
struct RetentionServiceTests {
    @Test("keeps what is not old by the machine's clock while PostgreSQL's clock is ahead")
    func clockAhead() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let pool = database.pool
            let restored = TestDispatcher.notification(2)
            _ = try await dispatcher.database.notifications.store(
                [TestDispatcher.notification(), restored], areRepeats: false)
            // Today by the machine's clock.
            try await pool.query("UPDATE carillon.notifications SET stored_at = now() - interval '91 days'")
            // Old by both clocks, but restored ten days ago by the machine's.
            try await pool.query(
                """
                UPDATE carillon.notifications
                SET stored_at = now() - interval '200 days', keep_until = now() - interval '71 days' WHERE id = $1
                """,
                .uuid(restored.id.halves))
            try await pool.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome)
                VALUES (now() - interval '91 days', 'ada', 'fcm', 'push', 1, 'accepted')
                """)
            try await pool.query(
                """
                INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at) VALUES
                    ('s', '1', 'old', '[]', now() - interval '200 days'),
                    ('s', '2', 'new', '[]', now() - interval '91 days')
                """)
            let now = try await dispatcher.database.clock()
            let service = RetentionService(
                dispatcher: dispatcher,
                periods: .init(audit: 90, inbox: 90, tombstones: 30, devices: 90, deadLetters: 30),
                machine: { now - .seconds(91 * 86_400) })
            let run = Task { try await service.run() }
            defer { run.cancel() }
            // A turn removes dead letters last.
            try await eventually("the turn has removed what is old by both clocks") {
                let letters = try await pool.query("SELECT reason FROM carillon.dead_letters")
                return try letters.map { try $0.text(0) } == ["new"]
            }
            run.cancel()
            _ = await run.result
            let left = try await pool.query(
                """
                SELECT (SELECT count(*) FROM carillon.notifications WHERE deleted_at IS NULL),
                    (SELECT count(*) FROM carillon.delivery_attempts)
                """)
            let counts = try left.map { [try $0.int8(0), try $0.int8(1)] }
            #expect(counts == [[2, 1]])
        }
    }

    @Test("drops no partition of the audit for ten minutes after one could not be dropped")
    func partsPause() async throws {
        try await TestDispatcher.with { dispatcher, database in
            let pool = database.pool
            try await pool.query(
                """
                CREATE TABLE carillon.delivery_attempts_20200101 PARTITION OF carillon.delivery_attempts
                FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-01-02 00:00Z')
                """)
            let now = try await dispatcher.database.clock()
            func make() -> RetentionService {
                RetentionService(
                    dispatcher: dispatcher,
                    periods: .init(audit: 90, inbox: 90, tombstones: 30, devices: 90, deadLetters: 30),
                    machine: { now + .seconds(3_600) })
            }
            /// Runs a round, and returns whether the partition is gone.
            func round(_ service: RetentionService) async throws -> Bool {
                try await pool.query(
                    """
                    INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
                    VALUES ('s', '1', 'old', '[]', now() - interval '200 days')
                    """)
                try await dispatcher.redis.send("DEL", .text(dispatcher.keys.retentionTurn))
                let run = Task { try await service.run() }
                defer { run.cancel() }
                // A turn removes dead letters last.
                try await eventually("the turn is over") {
                    try await pool.query("SELECT FROM carillon.dead_letters").isEmpty
                }
                run.cancel()
                _ = await run.result
                return try await pool.query("SELECT to_regclass('carillon.delivery_attempts_20200101') IS NULL")
                    .first?.bool(0) ?? false
            }
            let service = make()
            var isGone = try await pool.transaction { transaction in
                // As a dump does.
                try await transaction.query("LOCK TABLE carillon.delivery_attempts IN ACCESS SHARE MODE")
                return try await round(service)
            }
            #expect(!isGone)
            isGone = try await round(service)
            #expect(!isGone)
            isGone = try await round(make())
            #expect(isGone, "another dispatcher tries it")
        }
    }

    @Test("counts what it removes by kind, and dead letters beyond the limit apart from old ones")
    func counts() async throws {
        try await TestDispatcher.with { dispatcher, database in
            try await database.pool.query(
                """
                INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
                SELECT 's', n::text, 'x', '[]', now() - CASE WHEN n <= 2 THEN interval '31 days' ELSE interval '0' END
                FROM generate_series(1, 100005) AS n
                """)
            try await database.pool.query(
                """
                INSERT INTO carillon.cancellations (org_id, job_id, at)
                SELECT '', n::text, now() - CASE WHEN n <= 4 THEN interval '38 days' ELSE interval '36 days' END
                FROM generate_series(1, 6) AS n
                """)
            let now = try await dispatcher.database.clock()
            let registry = PrometheusRegistry()
            let service = RetentionService(
                dispatcher: dispatcher,
                periods: .init(audit: 90, inbox: 90, tombstones: 30, devices: 90, deadLetters: 30),
                machine: { now + .seconds(3_600) }, metrics: registry)
            let run = Task { try await service.run() }
            defer { run.cancel() }
            try await eventually("all are counted") {
                let lines = registry.render().split(separator: "\n")
                return [#""cancellations"} 4"#, #""dead_letters"} 2"#, #""excess_dead_letters"} 3"#].allSatisfy {
                    lines.contains("carillon_retention_removed{kind=" + $0)
                }
            }
            run.cancel()
            _ = await run.result
        }
    }

    @Test(
        "keeps items of digests no longer than notifications and their tombstones, and 90 days at most",
        arguments: [(14, 1, ["14"]), (90, 30, ["14", "16", "89"])])
    func digestItems(inbox: Int, tombstones: Int, left: [String]) async throws {
        try await TestDispatcher.with { dispatcher, database in
            try await database.pool.query(
                """
                INSERT INTO carillon.digest_items (user_id, notification_id, digest_id, is_single, gathered_at,
                    job_entry, org_id, type, severity, delivery, channels, title, body)
                SELECT 'ada', gen_random_uuid(), gen_random_uuid(), n < 20, now() - n * interval '1 day', 'jobs/' || n,
                    '', 'news', 'info', 'push', 3, n::text, 'text'
                FROM unnest('{14,16,89,91}'::int4[]) AS n
                """)
            let now = try await dispatcher.database.clock()
            let service = RetentionService(
                dispatcher: dispatcher,
                periods: .init(audit: 90, inbox: inbox, tombstones: tombstones, devices: 90, deadLetters: 30),
                machine: { now + .seconds(3_600) })
            let run = Task { try await service.run() }
            defer { run.cancel() }
            try await eventually("the others are gone") {
                let items = try await database.pool.query("SELECT title FROM carillon.digest_items ORDER BY title")
                return try items.map { try $0.text(0) } == left
            }
            run.cancel()
            _ = await run.result
        }
    }
}
