// Carillon · RecipientStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// User data for routing, looked up for a whole batch.
package struct RecipientStore: Sendable {
    /// A user's preference for one type, and the user's settings.
    package struct Preferences: Sendable, Equatable {
        package var preference = TypePreference()
        package var settings = UserSettings()

        package init() {}
    }

    /// The user and type of a lookup.
    package struct Key: Sendable, Equatable {
        let user: String
        let type: String
        let category: String?
        /// Whether the user's locale is needed; if the user has set none, the locale of the most
        /// recently used device is used.
        let needsLocale: Bool

        package init(user: String, type: String, category: String?, needsLocale: Bool = false) {
            self.user = user
            self.type = type
            self.category = category
            self.needsLocale = needsLocale
        }
    }

    private static let preferencesSQL = """
        SELECT (k.n - 1)::int4, \(PreferenceColumns.list),
            CASE WHEN k.localised AND s.locale IS NULL THEN \(PreferenceColumns.deviceLocale) END
        FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS k (user_id, type, category, localised, n)
        \(PreferenceColumns.joins(type: "k.type", category: "'\(PreferenceKey.categoryPrefix)' || k.category"))
        WHERE p.user_id IS NOT NULL OR c.user_id IS NOT NULL OR s.user_id IS NOT NULL OR k.localised
        """

    let pool: PostgresPool

    /// The preferences for each key, in order: those of the type, completed by those of its
    /// category.
    package func preferences(_ keys: [Key]) async throws(PostgresError) -> [Preferences] {
        guard !keys.isEmpty else { return [] }
        let result = try await self.pool.query(
            Self.preferencesSQL, .texts(keys.map(\.user)), .texts(keys.map(\.type)),
            .optionalTexts(keys.map(\.category)), .bools(keys.map(\.needsLocale)))
        var preferences = [Preferences](repeating: Preferences(), count: keys.count)
        for row in result {
            let position = try row.position(in: preferences.count)
            preferences[position] = try PreferenceColumns.read(row, at: 1)
            if let locale = try row.optionalText(1 + PreferenceColumns.count) {
                preferences[position].settings.locale = locale
            }
        }
        return preferences
    }

    /// The active, unsilenced devices of users, by user.
    package func activeDevices(_ users: [String]) async throws(PostgresError) -> [ExactText: [Device]] {
        guard !users.isEmpty else { return [:] }
        let result = try await self.pool.query(
            """
            SELECT \(DeviceColumns.list) FROM carillon.devices d
            WHERE d.user_id = ANY($1) AND d.active AND NOT d.silenced
            """,
            .texts(users)
        )
        var devices: [ExactText: [Device]] = [:]
        for row in result {
            let device = try DeviceColumns.read(row)
            devices[ExactText(device.user), default: []].append(device)
        }
        return devices
    }
}

/// Reads rows of users' preferences and settings.
enum PreferenceColumns {
    /// The columns that ``read(_:at:)`` expects, of the tables that ``joins`` names `p`, `c` and
    /// `s`.
    static let list = """
        coalesce(p.in_app, c.in_app), coalesce(p.push, c.push), \
        CASE WHEN s.email_opted_out THEN false ELSE coalesce(p.email, c.email) END, \
        coalesce(s.opted_out, false), s.zone, s.locale, CASE WHEN s.email_invalid_at IS NULL THEN s.email END, \
        CASE WHEN NOT s.quiet_off THEN s.quiet_start::int4 END, s.quiet_end::int4, \
        coalesce(s.quiet_weekdays, 127)::int4, \
        coalesce(p.quiet_off, false), p.quiet_start::int4, p.quiet_end::int4, coalesce(p.quiet_weekdays, 127)::int4
        """

    /// The number of columns in ``list``.
    static let count = 14

    /// Joins preferences and settings of the user of the row `k`, given expressions for type and
    /// category key.
    static func joins(type: String, category: String) -> String {
        """
        LEFT JOIN carillon.preferences p ON p.user_id = k.user_id AND p.type = \(type)
        LEFT JOIN carillon.preferences c ON c.user_id = k.user_id AND c.type = \(category)
        LEFT JOIN carillon.user_settings s ON s.user_id = k.user_id
        """
    }

    /// The locale of the device that the user of the row `k` used last.
    static let deviceLocale = """
        (
            SELECT d.locale FROM carillon.devices d
            WHERE d.user_id = k.user_id AND d.active AND d.locale IS NOT NULL
            ORDER BY d.last_used_at DESC, d.id LIMIT 1
        )
        """

    /// Reads preferences and settings whose columns begin at `first`; leaves out an invalid
    /// address.
    static func read(_ row: PostgresRow, at first: Int) throws(PostgresError) -> RecipientStore.Preferences {
        var preferences = RecipientStore.Preferences()
        preferences.preference = TypePreference(
            inApp: try row.optionalBool(first),
            push: try row.optionalBool(first + 1),
            email: try row.optionalBool(first + 2)
        )
        preferences.settings.isOptedOut = try row.bool(first + 3)
        preferences.settings.zone = try row.optionalText(first + 4)
        preferences.settings.locale = try row.optionalText(first + 5)
        preferences.settings.email = try row.optionalText(first + 6)
        preferences.settings.quietHours = try Self.hours(row, at: first + 7)
        if try row.bool(first + 10) {
            preferences.preference.quietHours = QuietOverride.none
        } else if let hours = try Self.hours(row, at: first + 11) {
            preferences.preference.quietHours = .hours(hours)
        }
        return preferences
    }

    /// Reads quiet hours from three columns: start, end, weekdays; nil without a start or an end.
    static func hours(_ row: PostgresRow, at first: Int) throws(PostgresError) -> QuietHours? {
        if row.isNull(first) || row.isNull(first + 1) { return nil }
        return QuietHours(
            start: Int(try row.int4(first)),
            end: Int(try row.int4(first + 1)),
            weekdays: UInt8(truncatingIfNeeded: try row.int4(first + 2))
        )
    }
}
