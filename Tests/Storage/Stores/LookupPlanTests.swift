// Carillon · LookupPlanTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Testing

@testable import Storage

/// The plans by which PostgreSQL finds the notifications of a batch.
@Suite(.timeLimit(.minutes(10)))
struct LookupPlanTests {
    private static let parts = 16

    private static let insert = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
            channels, title, body, status, created_at)
        SELECT 'u' || n, gen_random_uuid(), 1, 'x', '', 'news', 'info', 'push', 'normal', 3, 'hello', '', 'sent', now()
        FROM generate_series(1, 40) n
        """

    @Test("looks a batch up by key, whatever the statistics of the table")
    func lookups() async throws {
        try await Samples.withStores { pool in
            let notifications = (0..<256).map { Samples.notification($0, user: "u\($0)") }
            let users = PostgresValue.array(PostgresArray(texts: notifications.map(\.user)))
            let ids = PostgresValue.array(PostgresArray(uuids: notifications.map(\.id.halves)))
            let texts = PostgresValue.array(PostgresArray(texts: notifications.map(\.title)))
            let statements = [
                PostgresStatement("EXPLAIN " + StoreSQL.mark, [users, ids, texts, texts, texts]),
                PostgresStatement("EXPLAIN " + StoreSQL.load, [users, ids]),
                PostgresStatement("EXPLAIN " + DeliverySQL.failed, [users, ids, texts]),
                PostgresStatement("EXPLAIN " + DeliverySQL.accepted, [users, ids, texts, ids]),
            ]
            let analyze = "ANALYZE carillon.notifications"
            for preparation in ["SELECT", analyze, Self.insert, analyze] {
                try await pool.query(preparation)
                for statement in statements {
                    let results = try await pool.run([statement])
                    let plan = try (results.last.map { Array($0) } ?? []).map { try $0.text(0) }
                    let lookups = plan.count { $0.contains("Index Cond: ((user_id = ANY (ARRAY[") }
                    #expect(lookups == Self.parts, "after \(preparation): \(plan.joined(separator: "\n"))")
                }
            }
        }
    }
}
