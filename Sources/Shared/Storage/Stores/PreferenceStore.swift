// Carillon · PreferenceStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Users' settings, and their preferences for types and categories.
package struct PreferenceStore: Sendable {
    let pool: PostgresPool

    /// The user's preferences by type; preferences for a category are under its ``PreferenceKey``.
    package func preferences(user: String) async throws(PostgresError) -> [String: TypePreference] {
        let result = try await self.pool.query(
            """
            SELECT type, in_app, push, email, quiet_off, quiet_start::int4, quiet_end::int4,
                coalesce(quiet_weekdays, 127)::int4
            FROM carillon.preferences WHERE user_id = $1
            """,
            .text(user)
        )
        var preferences: [String: TypePreference] = [:]
        for row in result {
            var preference = TypePreference(
                inApp: try row.optionalBool(1),
                push: try row.optionalBool(2),
                email: try row.optionalBool(3)
            )
            if try row.bool(4) {
                preference.quietHours = QuietOverride.none
            } else if let hours = try PreferenceColumns.hours(row, at: 5) {
                preference.quietHours = .hours(hours)
            }
            preferences[try row.text(0)] = preference
        }
        return preferences
    }

    /// Whether the user has a working address and has opted out of optional mail.
    package func emailReach(user: String) async throws(PostgresError) -> (hasAddress: Bool, isOptedOut: Bool) {
        let result = try await self.pool.query(
            """
            SELECT email IS NOT NULL AND email_invalid_at IS NULL, opted_out OR email_opted_out
            FROM carillon.user_settings WHERE user_id = $1
            """,
            .text(user)
        )
        guard let row = result.first else { return (false, false) }
        return (try row.bool(0), try row.bool(1))
    }

    /// Sets preferences for the named types.
    ///
    /// Other types do not change, nor do channels without a value, unless they are
    /// ``TypePreference/cleared``.
    ///
    /// - Parameter categories: the category of each type. A value that repeats the user's
    ///   preference for the category is not stored for a type without one of its own.
    package func set(
        user: String,
        preferences: [String: TypePreference],
        categories: [String: String] = [:]
    ) async throws(PostgresError) {
        try await self.pool.run(
            [UserStore.lock(user: user)]
                + Self.statements(user: user, preferences: preferences, categories: categories)
        )
        if preferences.changeQuietHours {
            try await self.pool.run([Self.reconsiderReleases(users: [user])])
        }
    }

    /// The columns of a row, and their values after a change.
    private static let changes = [
        ("in_app", "CASE WHEN $11 THEN p.in_app WHEN p.in_app IS NULL THEN excluded.in_app ELSE $3 END"),
        ("push", "CASE WHEN $13 THEN p.push WHEN p.push IS NULL THEN excluded.push ELSE $4 END"),
        ("email", "CASE WHEN $14 THEN p.email WHEN p.email IS NULL THEN excluded.email ELSE $5 END"),
        ("quiet_off", "CASE WHEN $10 THEN p.quiet_off ELSE excluded.quiet_off END"),
        ("quiet_start", "CASE WHEN $10 THEN p.quiet_start ELSE excluded.quiet_start END"),
        ("quiet_end", "CASE WHEN $10 THEN p.quiet_end ELSE excluded.quiet_end END"),
        ("quiet_weekdays", "CASE WHEN $10 THEN p.quiet_weekdays ELSE excluded.quiet_weekdays END"),
    ]

    /// Stores a preference; writes nothing if the row has these values already.
    private static let upsert = """
        INSERT INTO carillon.preferences AS p
            (user_id, type, in_app, push, email, quiet_off, quiet_start, quiet_end, quiet_weekdays)
        SELECT $1, $2, nullif($3, c.in_app), nullif($4, c.push), nullif($5, c.email), $6, $7, $8, $9
        FROM (SELECT 1) AS one LEFT JOIN carillon.preferences c ON c.user_id = $1 AND c.type = $12
        ON CONFLICT (user_id, type) DO UPDATE SET
            \(Self.changes.map { "\($0) = \($1)" }.joined(separator: ", "))
        WHERE (\(Self.changes.map { "p.\($0.0)" }.joined(separator: ", ")))
            IS DISTINCT FROM (\(Self.changes.map(\.1).joined(separator: ", ")))
        """

    /// The statements of ``set(user:preferences:categories:)`` for a known user.
    static func statements(
        user: String,
        preferences: [String: TypePreference],
        categories: [String: String] = [:]
    ) -> [PostgresStatement] {
        var statements = preferences.sorted { $0.key < $1.key }.map { type, preference in
            func stays(_ value: Bool?, _ channel: Channels) -> PostgresValue {
                .bool(value == nil && !preference.cleared.contains(channel))
            }
            var hours: QuietHours?
            if case .hours(let own) = preference.quietHours { hours = own }
            return PostgresStatement(
                Self.upsert,
                [
                    .text(user), .text(type), .bool(preference.inApp), .bool(preference.push), .bool(preference.email),
                    .bool(preference.quietHours == QuietOverride.none), .int4(clamping: hours?.start),
                    .int4(clamping: hours?.end), .int4(clamping: hours.map { Int($0.weekdays) }),
                    .bool(preference.quietHours == nil), stays(preference.inApp, .inApp),
                    .text(categories[type].map { PreferenceKey.category($0) }),
                    stays(preference.push, .push), stays(preference.email, .email),
                ]
            )
        }
        if preferences.changeQuietHours {
            statements.append(Self.reconsiderReleases(users: [user]))
        }
        return statements
    }

    /// Makes the follow-ups due that wait for the end of users' quiet hours, because these may have
    /// changed.
    ///
    /// It runs in the transaction of the change, so that no crash comes between, and again after
    /// the commit: it then finds work that the old quiet hours postponed meanwhile, and later work
    /// sees the new ones. Work that a dispatcher has taken is left alone; otherwise it would be
    /// postponed again after it was sent.
    static func reconsiderReleases(users: [String]) -> PostgresStatement {
        PostgresStatement(
            """
            UPDATE carillon.follow_ups SET due_at = least(due_at, now())
            WHERE user_id = ANY ($1) AND \(FollowUpStore.waitsForQuietEnd) AND was_due_at IS NULL
            """,
            [.texts(users)]
        )
    }

    /// Turns e-mail off for a type, or for all types if `type` is nil; other preferences stay.
    ///
    /// A repeat writes nothing. Stores nothing for an unknown user, such as one erased since the
    /// mail was sent.
    package func stopEmail(user: String, type: String?) async throws(PostgresError) {
        if let type {
            try await self.pool.query(
                """
                INSERT INTO carillon.preferences AS p (user_id, type, email)
                SELECT u.user_id, $2, false FROM carillon.users u WHERE u.user_id = $1 FOR UPDATE
                ON CONFLICT (user_id, type) DO UPDATE SET email = false WHERE p.email IS DISTINCT FROM false
                """,
                .text(user), .text(type)
            )
        } else {
            try await self.pool.query(
                """
                INSERT INTO carillon.user_settings AS s (user_id, email_opted_out)
                SELECT u.user_id, true FROM carillon.users u WHERE u.user_id = $1 FOR UPDATE
                ON CONFLICT (user_id) DO UPDATE SET email_opted_out = true WHERE NOT s.email_opted_out
                """,
                .text(user)
            )
        }
    }

    private static let settingsColumns = """
        zone, locale, email, quiet_start::int4, quiet_end::int4, coalesce(quiet_weekdays, 127)::int4, opted_out, \
        email_opted_out, quiet_off
        """

    /// The user's settings.
    package func settings(user: String) async throws(PostgresError) -> UserSettings {
        let result = try await self.pool.query(
            "SELECT \(Self.settingsColumns) FROM carillon.user_settings WHERE user_id = $1",
            .text(user)
        )
        return try result.first.map { (row) throws(PostgresError) in try Self.settings(row) } ?? UserSettings()
    }

    private static func settings(_ row: PostgresRow) throws(PostgresError) -> UserSettings {
        var settings = UserSettings()
        settings.zone = try row.optionalText(0)
        settings.locale = try row.optionalText(1)
        settings.email = try row.optionalText(2)
        let hours = try PreferenceColumns.hours(row, at: 3)
        if try row.bool(8) { settings.pausedQuietHours = hours } else { settings.quietHours = hours }
        settings.isOptedOut = try row.bool(6)
        settings.isEmailOptedOut = try row.bool(7)
        return settings
    }

    /// Replaces the user's settings except those in `kept`.
    ///
    /// - Returns: the stored settings.
    @discardableResult
    package func set(
        user: String,
        settings: UserSettings,
        keeping kept: KeptSettings = []
    ) async throws(PostgresError) -> UserSettings {
        let results = try await self.pool.run(
            [UserStore.lock(user: user)]
                + Self.statements(user: user, settings: settings, keeping: kept)
        )
        guard let row = results[1].first else { throw PostgresError(.decoding, "settings returned no row") }
        if kept.changesReleases(with: settings) {
            try await self.pool.run([Self.reconsiderReleases(users: [user])])
        }
        return try Self.settings(row)
    }

    /// The statements of ``set(user:settings:keeping:)`` for a known user; the first returns the
    /// row.
    static func statements(user: String, settings: UserSettings, keeping kept: KeptSettings) -> [PostgresStatement] {
        let change = Self.change(user: user, settings: settings, keeping: kept)
        return kept.changesReleases(with: settings) ? [change, Self.reconsiderReleases(users: [user])] : [change]
    }

    private static func change(user: String, settings: UserSettings, keeping kept: KeptSettings) -> PostgresStatement {
        let hours = settings.quietHours ?? settings.pausedQuietHours
        return PostgresStatement(
            """
            INSERT INTO carillon.user_settings AS s
                (user_id, zone, locale, email, quiet_start, quiet_end, quiet_weekdays, opted_out, email_opted_out,
                email_set_at, quiet_off)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now(), $14)
            ON CONFLICT (user_id) DO UPDATE SET
                zone = CASE WHEN $12 THEN s.zone ELSE excluded.zone END,
                locale = CASE WHEN $15 THEN s.locale ELSE excluded.locale END,
                email = CASE WHEN $16 THEN s.email ELSE excluded.email END,
                email_set_at = CASE WHEN $16 THEN s.email_set_at ELSE excluded.email_set_at END,
                email_invalid_at = CASE WHEN $16 THEN s.email_invalid_at END,
                email_invalid_reason = CASE WHEN $16 THEN s.email_invalid_reason END,
                opted_out = CASE WHEN $17 THEN s.opted_out ELSE excluded.opted_out END,
                quiet_start = CASE WHEN $10 THEN s.quiet_start ELSE excluded.quiet_start END,
                quiet_end = CASE WHEN $10 THEN s.quiet_end ELSE excluded.quiet_end END,
                quiet_weekdays = CASE
                    WHEN $10 THEN s.quiet_weekdays
                    WHEN $13 AND excluded.quiet_start IS NOT NULL THEN coalesce(s.quiet_weekdays, excluded.quiet_weekdays)
                    ELSE excluded.quiet_weekdays
                END,
                quiet_off = CASE WHEN $10 THEN s.quiet_off ELSE excluded.quiet_off END,
                email_opted_out = CASE WHEN $11 THEN s.email_opted_out ELSE excluded.email_opted_out END
            RETURNING \(Self.settingsColumns)
            """,
            [
                .text(user), .text(settings.zone), .text(settings.locale), .text(settings.email),
                .int4(clamping: hours?.start), .int4(clamping: hours?.end),
                .int4(clamping: hours.map { Int($0.weekdays) }), .bool(settings.isOptedOut),
                .bool(settings.isEmailOptedOut), .bool(kept.contains(.quietHours)),
                .bool(kept.contains(.emailOptOut)), .bool(kept.contains(.zone)),
                .bool(kept.contains(.weekdays)),
                .bool(settings.quietHours == nil && settings.pausedQuietHours != nil),
                .bool(kept.contains(.locale)), .bool(kept.contains(.email)), .bool(kept.contains(.optOut)),
            ]
        )
    }

    /// Turns the user's quiet hours on or off; their times stay.
    ///
    /// - Returns: the stored settings.
    @discardableResult
    package func switchQuietHours(user: String, isOn: Bool) async throws(PostgresError) -> UserSettings {
        let results = try await self.pool.run([
            PostgresStatement(
                """
                UPDATE carillon.user_settings SET quiet_off = NOT $2 AND quiet_start IS NOT NULL WHERE user_id = $1
                RETURNING \(Self.settingsColumns)
                """,
                [.text(user), .bool(isOn)]
            ),
            Self.reconsiderReleases(users: [user]),
        ])
        try await self.pool.run([Self.reconsiderReleases(users: [user])])
        return try results.first?.first.map { (row) throws(PostgresError) in try Self.settings(row) } ?? UserSettings()
    }

    /// Removes the user's opt-out from everything.
    package func optIn(user: String) async throws(PostgresError) {
        _ = try await self.pool.runDurably([
            PostgresStatement(
                "UPDATE carillon.user_settings SET opted_out = false WHERE user_id = $1 AND opted_out", [.text(user)])
        ])
    }
}

/// The parts of a user's settings that a change keeps.
package struct KeptSettings: OptionSet, Sendable {
    package let rawValue: Int

    package init(rawValue: Int) {
        self.rawValue = rawValue
    }

    package static let quietHours = KeptSettings(rawValue: 1)
    package static let emailOptOut = KeptSettings(rawValue: 2)
    package static let zone = KeptSettings(rawValue: 4)
    /// The weekdays of quiet hours, if there were and are any.
    package static let weekdays = KeptSettings(rawValue: 8)
    package static let locale = KeptSettings(rawValue: 16)
    /// The e-mail address, and whether a relay rejected it.
    package static let email = KeptSettings(rawValue: 32)
    /// The opt-out from everything.
    package static let optOut = KeptSettings(rawValue: 64)
    package static let general: KeptSettings = [.zone, .locale, .email, .optOut]

    /// Whether a change that keeps only these may change when quiet hours end.
    package var changesQuietHours: Bool { !self.isSuperset(of: [.quietHours, .zone]) }

    /// Whether such a change to `settings` may change what waits for the end of quiet hours.
    func changesReleases(with settings: UserSettings) -> Bool {
        self.changesQuietHours || settings.isOptedOut && !self.contains(.optOut)
    }
}

extension [String: TypePreference] {
    /// Whether some have quiet hours of their own, so that their ends may change.
    package var changeQuietHours: Bool { self.values.contains { $0.quietHours != nil } }
}
