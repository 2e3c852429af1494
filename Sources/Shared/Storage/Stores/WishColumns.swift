// Carillon · WishColumns.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Rows as what users want.
enum WishColumns {
    /// The columns that ``read(_:at:)`` expects, of the tables that ``joins`` names `p`, `c` and `s`.
    static let list = """
        coalesce(p.in_app, c.in_app), coalesce(p.push, c.push), \
        CASE WHEN s.email_opted_out THEN false ELSE coalesce(p.email, c.email) END, \
        coalesce(s.opted_out, false), s.zone, s.locale, CASE WHEN s.email_invalid_at IS NULL THEN s.email END, \
        CASE WHEN NOT s.quiet_off THEN s.quiet_start::int4 END, s.quiet_end::int4, \
        coalesce(s.quiet_weekdays, 127)::int4, \
        coalesce(p.quiet_off, false), p.quiet_start::int4, p.quiet_end::int4, coalesce(p.quiet_weekdays, 127)::int4
        """

    /// How many columns ``list`` names.
    static let count = 14

    /// Joins what users want, given the expressions for a user, a type, and a category's key.
    static func joins(user: String, type: String, category: String) -> String {
        """
        LEFT JOIN carillon.preferences p ON p.user_id = \(user) AND p.type = \(type)
        LEFT JOIN carillon.preferences c ON c.user_id = \(user) AND c.type = \(category)
        LEFT JOIN carillon.user_settings s ON s.user_id = \(user)
        """
    }

    /// Reads wishes whose columns begin at `first`; an address that mail comes back from is none.
    static func read(_ row: PostgresRow, at first: Int) throws(PostgresError) -> RecipientStore.Wishes {
        var wishes = RecipientStore.Wishes()
        wishes.preference = TypePreference(
            inApp: try row.optionalBool(first),
            push: try row.optionalBool(first + 1),
            email: try row.optionalBool(first + 2)
        )
        wishes.settings.isOptedOut = try row.bool(first + 3)
        wishes.settings.zone = try row.optionalText(first + 4)
        wishes.settings.locale = try row.optionalText(first + 5)
        wishes.settings.email = try row.optionalText(first + 6)
        wishes.settings.quietHours = try Self.hours(row, at: first + 7)
        if try row.bool(first + 10) {
            wishes.preference.quietHours = QuietOverride.none
        } else if let hours = try Self.hours(row, at: first + 11) {
            wishes.preference.quietHours = .hours(hours)
        }
        return wishes
    }

    /// Quiet hours of three columns: start, end, weekdays; nil if there is no start or no end.
    static func hours(_ row: PostgresRow, at first: Int) throws(PostgresError) -> QuietHours? {
        if row.isNull(first) || row.isNull(first + 1) { return nil }
        return QuietHours(
            start: Int(try row.int4(first)),
            end: Int(try row.int4(first + 1)),
            weekdays: UInt8(truncatingIfNeeded: try row.int4(first + 2))
        )
    }
}
