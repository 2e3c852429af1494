// Carillon · Snoozes.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Schedules that bring snoozed notifications back.
extension ScheduleStore {
    /// The start of the job ids of a snoozed notification.
    package static func snoozePrefix(of notification: NotificationID) -> String { "snooze:\(notification):" }

    /// The notification that a job brings back; nil for a job of another kind.
    static func snoozed(byJob job: String) -> NotificationID? {
        let parts = job.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, parts[0] == "snooze" else { return nil }
        return NotificationID(String(parts[1]))
    }

    /// Removes a schedule if another one brings the same snoozed notification back, or if the
    /// notification was cancelled or replaced meanwhile.
    package func cancelNeedless(
        _ id: NotificationID,
        of notification: NotificationID,
        user: String
    ) async throws(PostgresError) {
        try await self.pool.run([
            // Serialises calls of one user, so that one schedule always stays.
            PostgresStatement("SELECT FROM carillon.inboxes WHERE user_id = $1 FOR UPDATE", [.text(user)]),
            PostgresStatement(
                """
                DELETE FROM carillon.schedules d WHERE d.id = $1 AND (EXISTS (
                    SELECT FROM carillon.schedules s
                    WHERE s.user_id = $2 AND s.id <> $1 AND s.state = 'waiting'
                        AND \(ScheduleSQL.isSnooze(of: "$3::uuid"))
                ) OR EXISTS (
                    SELECT FROM carillon.notifications n
                    WHERE n.user_id = $2 AND n.id = $3::uuid
                        AND (n.replaced_by IS NOT NULL OR NOT (\(InboxSQL.isNotWithdrawn(of: "n"))))
                ))
                """,
                [.id(id), .text(user), .id(notification)]),
        ])
    }
}
