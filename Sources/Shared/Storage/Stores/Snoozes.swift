// Carillon · Snoozes.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Schedules that bring snoozed notifications back.
extension ScheduleStore {
    /// The start of the job ids of a snoozed notification.
    package static func snoozePrefix(of notification: NotificationID) -> String { "snooze:\(notification):" }

    /// The start of the sources of snoozes; the job of the notification follows.
    ///
    /// It has two slashes, so that ``CancellationSQL/isCancelled(_:)`` does not take that job for
    /// the entry of the notification that comes back.
    static let snoozeOrigin = "snooze//"

    /// Returns the source of the schedule that ends a snooze.
    ///
    /// It becomes the entry of the notification that comes back, so that another snooze still names
    /// the first job.
    package static func snoozeSource(of notification: Notification) -> String {
        if notification.jobEntry.hasPrefix(Self.snoozeOrigin) { return notification.jobEntry }
        return Self.snoozeOrigin + (notification.jobID ?? notification.jobEntry)
    }

    /// The notification that a job brings back; nil for a job of another kind.
    static func snoozed(byJob job: String) -> NotificationID? {
        let parts = job.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, parts[0] == "snooze" else { return nil }
        return NotificationID(String(parts[1]))
    }

    /// Removes the schedules that would bring notifications of a job back.
    ///
    /// - Parameter limit: rows per statement.
    func removeSnoozes(of name: CancellationStore.Name, limit: Int) async throws(PostgresError) {
        let sources = PostgresValue.texts(name.ids.map { Self.snoozeOrigin + $0 })
        // The literal lets the index `schedules_snoozed` serve the statement.
        let statement = """
            DELETE FROM carillon.schedules WHERE id = ANY(ARRAY(
                SELECT id FROM carillon.schedules
                WHERE org_id = $1 AND source = ANY($2) AND source LIKE '\(Self.snoozeOrigin)%' LIMIT $3
            ))
            """
        var removed: Int
        repeat {
            removed = try await self.pool.query(statement, .text(name.org), sources, .int4(clamping: limit))
                .affectedRows
        } while removed >= limit
    }
}
