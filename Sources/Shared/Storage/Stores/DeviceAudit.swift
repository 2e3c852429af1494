// Carillon · DeviceAudit.swift
// SPDX-License-Identifier: Apache-2.0

/// What the audit says of changes to tokens: rows of kind `token`, written by the statement that makes the change.
enum DeviceAudit {
    /// What became of a token.
    enum Outcome: String {
        /// Its device gets pushes from now on.
        case registered
        /// Its registration is gone.
        case removed
        /// Its registration stays, and gets nothing.
        case deactivated
    }

    /// Why.
    enum Reason: String {
        /// A token that was not known.
        case new
        /// The device was known by another token.
        case newToken = "new_token"
        /// It was known, and switched off.
        case again
        /// Another user registered the token.
        case moved
        /// Another token of the same device, or of the same name, took its place.
        case replaced
        /// The user, or a service, took it back.
        case unregistered
        case tooManyDevices = "too_many_devices"
    }

    /// The head of an insertion; what is selected has these columns.
    static let insert = """
        INSERT INTO carillon.delivery_attempts (at, user_id, device_id, provider, kind, attempt, outcome, reason)
        """

    /// Selects rows for ``insert``.
    ///
    /// - Parameters:
    ///   - source: what has `id`, `user_id` and `provider` of the devices, called `x` where it has a name.
    ///   - at: when, in SQL.
    static func rows(from source: String, at moment: String, _ outcome: Outcome, _ reason: Reason) -> String {
        self.rows(from: source, at: moment, outcome, reason: "'\(reason.rawValue)'")
    }

    /// The same with a reason in SQL.
    static func rows(from source: String, at moment: String, _ outcome: Outcome, reason: String) -> String {
        """
        SELECT \(moment), x.user_id, x.id, x.provider, 'token', 0, '\(outcome.rawValue)', \(reason) FROM \(source)
        """
    }

    /// A statement that changes devices, and says so; it affects as many rows as it changes.
    ///
    /// - Parameter change: returns `id`, `user_id` and `provider`.
    static func noting(_ change: String, at moment: String, _ outcome: Outcome, _ reason: Reason) -> String {
        """
        WITH x AS (\(change))
        \(self.insert)
        \(self.rows(from: "x", at: moment, outcome, reason))
        """
    }

    /// The same, where the reason is the change's.
    ///
    /// - Parameter change: returns `id`, `user_id`, `provider` and what the reason is made of.
    static func noting(_ change: String, at moment: String, _ outcome: Outcome, reason: String) -> String {
        """
        WITH x AS (\(change))
        \(self.insert)
        \(self.rows(from: "x", at: moment, outcome, reason: reason))
        """
    }
}
