// Carillon · PreferenceStore.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Postgres

/// What users want: per type, and in general.
package struct PreferenceStore: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) {
        self.pool = pool
    }

    private static let makeUser = "INSERT INTO carillon.users (user_id) VALUES ($1) ON CONFLICT DO NOTHING"

    /// The user's preferences, by type.
    package func preferences(user: String) async throws(PostgresError) -> [String: TypePreference] {
        let result = try await self.pool.query(
            "SELECT type, in_app, push, email FROM carillon.preferences WHERE user_id = $1",
            .text(user)
        )
        var preferences: [String: TypePreference] = [:]
        for row in result {
            preferences[try row.text(0)] = TypePreference(
                inApp: try row.optionalBool(1),
                push: try row.optionalBool(2),
                email: try row.optionalBool(3)
            )
        }
        return preferences
    }

    /// Sets preferences of the types named; the others stay.
    package func set(user: String, preferences: [String: TypePreference]) async throws(PostgresError) {
        func flag(_ value: Bool?) -> PostgresValue { value.map { .bool($0) } ?? .null(.bool) }
        try await self.pool.run(
            [PostgresStatement(Self.makeUser, [.text(user)])]
                + preferences.sorted { $0.key < $1.key }.map { type, preference in
                    PostgresStatement(
                        """
                        INSERT INTO carillon.preferences (user_id, type, in_app, push, email) VALUES ($1, $2, $3, $4, $5)
                        ON CONFLICT (user_id, type)
                        DO UPDATE SET in_app = excluded.in_app, push = excluded.push, email = excluded.email
                        """,
                        [
                            .text(user), .text(type), flag(preference.inApp), flag(preference.push),
                            flag(preference.email),
                        ]
                    )
                }
        )
    }

    /// The user's settings.
    package func settings(user: String) async throws(PostgresError) -> UserSettings {
        let result = try await self.pool.query(
            """
            SELECT zone, locale, email, quiet_start::int4, quiet_end::int4, coalesce(quiet_weekdays, 127)::int4, opted_out
            FROM carillon.user_settings WHERE user_id = $1
            """,
            .text(user)
        )
        var settings = UserSettings()
        guard let row = result.first else { return settings }
        settings.zone = try row.optionalText(0)
        settings.locale = try row.optionalText(1)
        settings.email = try row.optionalText(2)
        if !row.isNull(3), !row.isNull(4) {
            settings.quietHours = QuietHours(
                start: Int(try row.int4(3)),
                end: Int(try row.int4(4)),
                weekdays: UInt8(truncatingIfNeeded: try row.int4(5))
            )
        }
        settings.isOptedOut = try row.bool(6)
        return settings
    }

    /// Replaces the user's settings.
    package func set(user: String, settings: UserSettings) async throws(PostgresError) {
        func number(_ value: Int?) -> PostgresValue { value.map { .int4(Int32(clamping: $0)) } ?? .null(.int4) }
        try await self.pool.run([
            PostgresStatement(Self.makeUser, [.text(user)]),
            PostgresStatement(
                """
                INSERT INTO carillon.user_settings
                    (user_id, zone, locale, email, quiet_start, quiet_end, quiet_weekdays, opted_out)
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                ON CONFLICT (user_id) DO UPDATE SET zone = excluded.zone, locale = excluded.locale,
                    email = excluded.email, quiet_start = excluded.quiet_start, quiet_end = excluded.quiet_end,
                    quiet_weekdays = excluded.quiet_weekdays, opted_out = excluded.opted_out
                """,
                [
                    .text(user), .text(settings.zone), .text(settings.locale), .text(settings.email),
                    number(settings.quietHours?.start), number(settings.quietHours?.end),
                    number(settings.quietHours.map { Int($0.weekdays) }), .bool(settings.isOptedOut),
                ]
            ),
        ])
    }
}
