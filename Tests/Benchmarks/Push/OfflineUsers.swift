// Carillon · OfflineUsers.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// Users with one device each.
enum OfflineUsers {
    struct Device {
        let user: String
        let token: String
    }

    /// Registers Android devices for FCM; the token is the user's name.
    static func register(_ users: [String], in pool: PostgresPool) async throws {
        let devices = users.map { Device(user: $0, token: $0) }
        try await self.register(devices, platform: "android", provider: "fcm", in: pool)
    }

    /// Registers devices of a platform.
    static func register(
        _ devices: [Device],
        platform: String,
        provider: String,
        in pool: PostgresPool
    ) async throws {
        let users = PostgresArray(texts: devices.map(\.user))
        try await pool.run([
            PostgresStatement(
                "INSERT INTO carillon.users (user_id) SELECT unnest($1) ON CONFLICT DO NOTHING",
                [.array(users)]
            ),
            PostgresStatement(
                """
                INSERT INTO carillon.devices (id, user_id, platform, provider, app, environment, token, registered_at,
                    last_used_at)
                SELECT gen_random_uuid(), u, $3, $4, 'default', 'production', token, now(), now()
                FROM unnest($1, $2) AS t (u, token)
                """,
                [
                    .array(users), .array(PostgresArray(texts: devices.map(\.token))), .text(platform),
                    .text(provider),
                ]
            ),
        ])
    }
}
