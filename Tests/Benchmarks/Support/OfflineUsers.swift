// Carillon · OfflineUsers.swift
// SPDX-License-Identifier: Apache-2.0

import Postgres

/// Users with one FCM device each.
enum OfflineUsers {
    /// Registers the devices; each user's token is the user's name after `prefix`.
    static func register(_ users: [String], prefix: String, in pool: PostgresPool) async throws {
        var ids = PostgresArray(.uuid, capacity: users.count)
        for _ in users {
            ids.append(uuid: (UInt64.random(in: .min ... .max), UInt64.random(in: .min ... .max)))
        }
        try await pool.run([
            PostgresStatement(
                "INSERT INTO carillon.users (user_id) SELECT unnest($1) ON CONFLICT DO NOTHING",
                [.array(PostgresArray(texts: users))]
            ),
            PostgresStatement(
                """
                INSERT INTO carillon.devices (id, user_id, platform, provider, app, environment, token, registered_at,
                    last_used_at)
                SELECT id, u, 'android', 'fcm', 'default', 'production', $3 || u, now(), now()
                FROM unnest($1, $2) AS t (id, u)
                """,
                [.array(ids), .array(PostgresArray(texts: users)), .text(prefix)]
            ),
        ])
    }

    /// Removes the devices.
    static func remove(prefix: String, in pool: PostgresPool) async throws {
        try await pool.query("DELETE FROM carillon.devices WHERE starts_with(token, $1)", .text(prefix))
    }
}
