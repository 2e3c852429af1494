// Carillon · RecipientStore.swift
// SPDX-License-Identifier: Apache-2.0

package import JSON
package import Model
package import Postgres

/// What routing needs to know about users, looked up for a whole batch.
package struct RecipientStore: Sendable {
    /// What a user wants of one type, and in general.
    package struct Wishes: Sendable, Equatable {
        package var preference = TypePreference()
        package var settings = UserSettings()

        package init() {}
    }

    /// Whose wishes are asked for, of what.
    package struct Key: Sendable, Equatable {
        package let user: String
        package let type: String
        package let category: String?

        package init(user: String, type: String, category: String?) {
            self.user = user
            self.type = type
            self.category = category
        }
    }

    private static let joins = WishColumns.joins(user: "k.user_id", type: "k.type", category: "k.category")

    private let pool: PostgresPool

    package init(pool: PostgresPool) {
        self.pool = pool
    }

    /// The wishes for each key, in the same order: those of the type, filled up with those of its category.
    package func wishes(_ keys: [Key]) async throws(PostgresError) -> [Wishes] {
        guard !keys.isEmpty else { return [] }
        var categories = PostgresArray(.text, capacity: keys.count)
        for key in keys { categories.append(key.category.map { PreferenceKey.category($0) }) }
        let result = try await self.pool.query(
            """
            SELECT (k.n - 1)::int4, \(WishColumns.list)
            FROM unnest($1, $2, $3) WITH ORDINALITY AS k (user_id, type, category, n)
            \(Self.joins)
            WHERE p.user_id IS NOT NULL OR c.user_id IS NOT NULL OR s.user_id IS NOT NULL
            """,
            .array(PostgresArray(texts: keys.map(\.user))), .array(PostgresArray(texts: keys.map(\.type))),
            .array(categories)
        )
        var wishes = [Wishes](repeating: Wishes(), count: keys.count)
        for row in result {
            let position = Int(try row.int4(0))
            guard wishes.indices.contains(position) else { continue }
            wishes[position] = try WishColumns.read(row, at: 1)
        }
        return wishes
    }

    /// The active devices of users, by user; those that their users silenced are left out.
    package func activeDevices(_ users: [String]) async throws(PostgresError) -> [ExactText: [Device]] {
        guard !users.isEmpty else { return [:] }
        let result = try await self.pool.query(
            """
            SELECT \(DeviceColumns.list) FROM carillon.devices d
            WHERE d.user_id = ANY($1) AND d.active AND NOT d.silenced
            """,
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
