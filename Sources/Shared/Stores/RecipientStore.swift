// Carillon · RecipientStore.swift
// SPDX-License-Identifier: Apache-2.0

package import JSON
package import Model
package import Postgres

/// What routing needs to know about users, looked up for a whole batch.
package struct RecipientStore: Sendable {
    /// What a user wants of one type.
    package struct Wishes: Sendable, Equatable {
        package var preference = TypePreference()
        package var isOptedOut = false
        /// The user's locale, or else that of the device that was used last; nil if it was not asked for.
        package var locale: String?

        package init() {}
    }

    private let pool: PostgresPool

    package init(pool: PostgresPool) {
        self.pool = pool
    }

    /// The wishes for each (user, type), in the same order.
    package func wishes(
        _ keys: [(user: String, type: String, needsLocale: Bool)]
    ) async throws(PostgresError) -> [Wishes] {
        guard !keys.isEmpty else { return [] }
        let users = PostgresArray(texts: keys.map(\.user))
        let types = PostgresArray(texts: keys.map(\.type))
        var localised = PostgresArray(.bool)
        for key in keys { localised.append(bool: key.needsLocale) }
        let result = try await self.pool.query(
            """
            SELECT (k.n - 1)::int4, p.in_app, p.push, CASE WHEN s.email_opted_out THEN false ELSE p.email END,
                coalesce(s.opted_out, false),
                CASE WHEN k.localised THEN coalesce(s.locale, (
                    SELECT d.locale FROM carillon.devices d
                    WHERE d.user_id = k.user_id AND d.active AND d.locale IS NOT NULL
                    ORDER BY d.last_used_at DESC, d.id LIMIT 1
                )) END
            FROM unnest($1, $2, $3) WITH ORDINALITY AS k (user_id, type, localised, n)
            LEFT JOIN carillon.preferences p ON p.user_id = k.user_id AND p.type = k.type
            LEFT JOIN carillon.user_settings s ON s.user_id = k.user_id
            WHERE p.user_id IS NOT NULL OR s.opted_out OR s.email_opted_out OR k.localised
            """,
            .array(users), .array(types), .array(localised)
        )
        var wishes = [Wishes](repeating: Wishes(), count: keys.count)
        for row in result {
            let position = Int(try row.int4(0))
            guard wishes.indices.contains(position) else { continue }
            wishes[position].preference = TypePreference(
                inApp: try row.optionalBool(1),
                push: try row.optionalBool(2),
                email: try row.optionalBool(3)
            )
            wishes[position].isOptedOut = try row.bool(4)
            wishes[position].locale = try row.optionalText(5)
        }
        return wishes
    }

    /// The active devices of users, by user.
    package func activeDevices(_ users: [String]) async throws(PostgresError) -> [ExactText: [Device]] {
        guard !users.isEmpty else { return [:] }
        let result = try await self.pool.query(
            "SELECT \(DeviceColumns.list) FROM carillon.devices d WHERE d.user_id = ANY($1) AND d.active",
            .array(PostgresArray(texts: users))
        )
        var devices: [ExactText: [Device]] = [:]
        for row in result {
            let device = try DeviceColumns.read(row)
            devices[ExactText(device.user), default: []].append(device)
        }
        return devices
    }
}
