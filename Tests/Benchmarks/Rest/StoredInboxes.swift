// Carillon · StoredInboxes.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients

/// Inboxes that are filled by SQL: notifications of several types, every other one read, spread over some months.
struct StoredInboxes {
    let users: Int
    let notificationsPerUser: Int

    static func name(_ index: Int) -> String { "reader-\(index)" }

    /// Writes them, then brings the tables into the state in which a server that runs for long has them.
    func fill(_ pool: PostgresPool) async throws {
        let step = max(1, 100_000 / self.notificationsPerUser)
        for first in stride(from: 0, to: self.users, by: step) {
            try await pool.query(
                Self.notifications,
                .int8(Int64(first)),
                .int8(Int64(min(first + step, self.users) - 1)),
                .int8(Int64(self.notificationsPerUser))
            )
        }
        try await pool.query(
            """
            INSERT INTO carillon.inboxes (user_id, version, unread, total)
            SELECT user_id, max(version), count(*) FILTER (WHERE read_at IS NULL), count(*)
            FROM carillon.notifications GROUP BY user_id
            """
        )
        try await pool.withScriptConnection { try $0.execute("VACUUM (ANALYZE) carillon.notifications") }
        try await pool.withScriptConnection { try $0.execute("VACUUM (ANALYZE) carillon.inboxes") }
        let count = try await pool.query("SELECT count(*) FROM carillon.notifications").first?.int8(0) ?? 0
        guard count == Int64(self.users * self.notificationsPerUser) else {
            throw ValidationError("\(count) notifications are stored")
        }
    }

    // An id holds the milliseconds, the version of UUIDs, and a hash, as the dispatcher makes it.
    private static let notifications = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
            channels, title, body, data, status, sent_via, created_at, stored_at, delivered_at, read_at)
        SELECT 'reader-' || u,
            (lpad(to_hex(ms), 12, '0') || '8' || substr(hash, 1, 3) || '8' || substr(hash, 4, 15))::uuid,
            n, 'carillon:jobs/' || ms || '-' || u, '',
            (ARRAY['payment_received', 'invoice_created', 'security_alert'])[1 + n % 3], 'info', 'push', 'normal', 7,
            'Payment received', 'EUR ' || n || ' from Ada', jsonb_build_object('invoice', 'i' || n, 'user', u),
            'delivered', 'socket', to_timestamp(ms / 1000.0), to_timestamp(ms / 1000.0), to_timestamp(ms / 1000.0),
            CASE WHEN n % 2 = 0 THEN to_timestamp(ms / 1000.0) END
        FROM generate_series($1::bigint, $2::bigint) AS u, generate_series(1, $3::bigint) AS n,
            LATERAL (SELECT 1760000000000 + n * 86400000 + u AS ms, md5(u || '/' || n) AS hash) AS made
        ORDER BY u, n
        """
}
