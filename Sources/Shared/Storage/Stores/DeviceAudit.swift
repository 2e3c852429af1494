// Carillon · DeviceAudit.swift
// SPDX-License-Identifier: Apache-2.0

/// Audit rows of the kind `token`, written by the statement that changes the token.
enum DeviceAudit {
    /// The outcome of a change to a token.
    enum Outcome: String {
        /// The device gets pushes from now on.
        case registered
        /// The registration was removed.
        case removed
        /// The registration stays but gets no pushes.
        case deactivated
    }

    /// The reason of a change.
    enum Reason: String {
        /// The token was unknown.
        case new
        /// The device was known by another token.
        case newToken = "new_token"
        /// The device was known and switched off.
        case again
        /// Another user registered the token.
        case moved
        /// Another token of the same device or name replaced it.
        case replaced
        /// The user or a service unregistered it.
        case unregistered
        case tooManyDevices = "too_many_devices"
    }

    /// The start of an INSERT; the selected rows have these columns.
    static let insert = """
        INSERT INTO carillon.delivery_attempts (at, user_id, device_id, provider, kind, attempt, outcome, reason)
        """

    /// Selects rows for ``insert``.
    ///
    /// - Parameters:
    ///   - source: a table expression whose table `x` has `id`, `user_id` and `provider`.
    ///   - moment: the time, as SQL; PostgreSQL's if a gateway's clock is ahead, because one row of
    ///     a later day would leave that day without a partition.
    static func rows(from source: String, at moment: String, _ outcome: Outcome, _ reason: Reason) -> String {
        self.rows(from: source, at: moment, outcome, reason: "'\(reason.rawValue)'")
    }

    /// The same with the reason as SQL.
    static func rows(from source: String, at moment: String, _ outcome: Outcome, reason: String) -> String {
        """
        SELECT least(\(moment), now()), x.user_id, x.id, x.provider, 'token', 0, '\(outcome.rawValue)', \(reason)
        FROM \(source)
        """
    }

    /// Changes devices and writes audit rows; affects as many rows as it changes.
    ///
    /// - Parameter change: a statement that returns `id`, `user_id` and `provider`.
    static func noting(_ change: String, at moment: String, _ outcome: Outcome, _ reason: Reason) -> String {
        """
        WITH x AS (\(change))
        \(self.insert)
        \(self.rows(from: "x", at: moment, outcome, reason))
        """
    }

    /// The same with a reason from the change.
    ///
    /// - Parameter change: a statement that returns `id`, `user_id`, `provider` and the columns of
    ///   the reason.
    static func noting(_ change: String, at moment: String, _ outcome: Outcome, reason: String) -> String {
        """
        WITH x AS (\(change))
        \(self.insert)
        \(self.rows(from: "x", at: moment, outcome, reason: reason))
        """
    }
}
