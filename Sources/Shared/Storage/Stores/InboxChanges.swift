// Carillon · InboxChanges.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Users' changes of their inboxes.
extension InboxStore {
    /// How long archived notifications are kept, in days.
    static let archiveDays = 365
    /// How many days a restored notification stays if it is older than the inbox's retention; fewer
    /// if its `keep_until` comes first.
    static let restoredDays = 30
    /// The most notifications that one change of a whole inbox changes, because it locks the inbox.
    package static let mostChanged = 10_000

    /// Marks notifications read; if `ids` is nil, a page of ``mostChanged`` that are unread.
    ///
    /// - Parameter version: a page leaves out notifications with later versions.
    package func markRead(
        user: String,
        ids: [NotificationID]?,
        at: Timestamp,
        upTo version: Int64 = .max
    ) async throws(PostgresError) -> Change {
        let limit = InboxSQL.limit("\(Self.mostChanged)", by: .unread, of: "$1")
        let condition = ids == nil ? Self.page(where: InboxSQL.isUnread("x"), limit: limit) : "n.id = ANY($3)"
        return try await self.change(
            user,
            Self.change(
                set: "read_at = \(Self.moment)", where: "\(InboxSQL.isUnread("n")) AND \(condition)",
                unread: "-tally.n"),
            [
                .text(user), .timestamp(at), ids.map { .ids($0) } ?? .int8(version),
            ])
    }

    /// Marks a notification unread again, and as not opened, so that the app's badge counts it.
    package func markUnread(user: String, id: NotificationID) async throws(PostgresError) -> Change {
        try await self.change(
            user,
            Self.change(
                set: "read_at = NULL, opened_at = NULL",
                where: "n.read_at IS NOT NULL AND n.deleted_at IS NULL AND n.version > 0 AND n.id = $2",
                unread: "tally.n"),
            [.text(user), .id(id)])
    }

    /// Deletes one notification; if `id` is nil, a page of ``mostChanged`` that are read.
    ///
    /// - Parameter version: a page leaves out notifications with later versions.
    package func delete(
        user: String,
        id: NotificationID?,
        at: Timestamp,
        upTo version: Int64 = .max
    ) async throws(PostgresError) -> Change {
        func isRead(_ row: String) -> String {
            "\(row).read_at IS NOT NULL AND \(row).deleted_at IS NULL AND \(row).version > 0"
        }
        let limit = InboxSQL.limit("\(Self.mostChanged)", by: .read, of: "$1")
        let condition =
            id == nil
            ? "\(isRead("n")) AND \(Self.page(where: isRead("x"), limit: limit))"
            : "n.deleted_at IS NULL AND n.version > 0 AND n.id = $3"
        return try await self.change(
            user,
            Self.change(
                set: "deleted_at = \(Self.moment)", where: condition, total: "-tally.n", unread: "-tally.unread"),
            [.text(user), .timestamp(at), id.map { .id($0) } ?? .int8(version)])
    }

    /// Deletes a notification and stores the schedule that brings it back.
    ///
    /// Changes nothing if the notification is not in the inbox: it was deleted, cancelled or
    /// replaced meanwhile.
    package func snooze(
        user: String,
        id: NotificationID,
        by schedule: Schedule,
        at: Timestamp
    ) async throws(PostgresError) -> Change {
        try await self.change(
            user,
            Self.change(
                set: "deleted_at = \(Self.moment)", where: "n.deleted_at IS NULL AND n.version > 0 AND n.id = $3",
                total: "-tally.n", unread: "-tally.unread",
                and: """
                    , scheduled AS (
                        \(ScheduleColumns.insert(from: 4)) WHERE EXISTS (SELECT FROM changed) ON CONFLICT DO NOTHING
                    )
                    """),
            [.text(user), .timestamp(at), .id(id)] + ScheduleColumns.parameters([schedule]),
            first: [CancellationSQL.beforeStoring],
            last: [PostgresStatement(ScheduleSQL.endCancelled, [.ids([schedule.id])])])
    }

    // MARK: The archive

    /// Moves a notification from the inbox to the archive.
    ///
    /// Its row becomes a tombstone, whose `deleted_at` is when it leaves the archive: after
    /// ``archiveDays``, or at its `keep_until`.
    package func archive(user: String, id: NotificationID, at: Timestamp) async throws(PostgresError) -> Change {
        try await self.change(
            user,
            Self.change(
                set: "deleted_at = least(n.keep_until, $2::timestamptz + interval '\(Self.archiveDays) days')",
                where: "n.deleted_at IS NULL AND n.version > 0 AND n.id = $3", total: "-tally.n",
                unread: "-tally.unread",
                and: """
                    , kept AS (
                        INSERT INTO carillon.archived AS a (user_id, notification_id, archived_at)
                        SELECT $1, id, \(Self.moment) FROM changed
                        ON CONFLICT (user_id, notification_id) DO UPDATE SET archived_at = excluded.archived_at
                    )
                    """),
            [.text(user), .timestamp(at), .id(id)])
    }

    /// Brings an archived, snoozed or deleted notification back into the inbox, unless another has
    /// replaced it, its job was cancelled, or its `keep_until` has passed.
    ///
    /// One that is older than the inbox's retention stays for ``restoredDays``.
    package func restore(user: String, id: NotificationID) async throws(PostgresError) -> Change {
        try await self.change(
            user,
            Self.change(
                set: """
                    deleted_at = NULL, keep_until = CASE
                        WHEN n.stored_at < (SELECT s.retained_from FROM carillon.sweep s) + interval '1 day'
                        THEN least(n.keep_until, now() + interval '\(Self.restoredDays) days')
                        ELSE n.keep_until END
                    """,
                where: """
                    n.id = $2 AND n.deleted_at IS NOT NULL AND n.version > 0 AND n.replaced_by IS NULL
                        AND \(InboxSQL.isNotWithdrawn(of: "n"))
                        AND (n.keep_until IS NULL OR n.keep_until > now())
                    """,
                total: "tally.n", unread: "tally.unread",
                and: """
                    \(Self.unarchived), unsnoozed AS (
                        DELETE FROM carillon.schedules s USING changed
                        WHERE s.user_id = $1 AND \(ScheduleSQL.isSnooze(of: "changed.id"))
                    )
                    """),
            [.text(user), .id(id)])
    }

    /// Deletes an archived notification.
    package func deleteArchived(user: String, id: NotificationID, at: Timestamp) async throws(PostgresError) -> Change {
        try await self.change(
            user,
            Self.change(
                set: "deleted_at = \(Self.moment)",
                where: """
                    n.id = $3 AND EXISTS (
                        SELECT FROM carillon.archived a WHERE a.user_id = $1 AND a.notification_id = n.id)
                    """,
                unread: "0", and: Self.unarchived),
            [.text(user), .timestamp(at), .id(id)])
    }

    /// Takes the changed rows out of the archive.
    private static let unarchived = """
        , unarchived AS (
            DELETE FROM carillon.archived a USING changed WHERE a.user_id = $1 AND a.notification_id = changed.id
        )
        """

    /// Returns archived notifications, the newest first.
    package func archived(
        user: String,
        before: NotificationID?,
        limit: Int,
        at: Timestamp
    ) async throws(PostgresError) -> [Notification] {
        let end = before ?? .greatest
        return try NotificationColumns.all.read(
            try await self.pool.query(
                """
                SELECT \(NotificationColumns.list) FROM carillon.archived a
                JOIN carillon.notifications n ON n.user_id = a.user_id AND n.id = a.notification_id
                WHERE a.user_id = $1 AND a.notification_id < $2 AND n.deleted_at > $4
                    AND \(InboxSQL.isNotWithdrawn(of: "n"))
                ORDER BY a.notification_id DESC LIMIT $3
                """,
                .text(user), .id(end), .int4(clamping: limit), .timestamp(at)))
    }

    // MARK: Statements

    /// When a user made a change: $2, by a gateway's clock, but not later than PostgreSQL's time.
    ///
    /// Digests would otherwise drop items that come after the change.
    private static let moment = "least($2::timestamptz, now())"

    /// Whether the row `n` is on a page of the inbox of $1, up to version $3; the newest first, as
    /// they may still be on screens.
    ///
    /// `+ 0` hides a second bound of `version` from the planner. With two it expects hardly any
    /// rows, and may sort all of the user's instead of stopping at the limit.
    ///
    /// - Parameters:
    ///   - condition: which rows `x` the page holds.
    ///   - limit: the most rows of the page.
    private static func page(where condition: String, limit: String) -> String {
        """
        n.id = ANY (ARRAY (
            SELECT x.id FROM carillon.notifications x
            WHERE x.user_id = $1 AND x.version + 0 <= $3 AND \(condition)
            ORDER BY x.id DESC LIMIT \(limit)
        ))
        """
    }

    /// A statement that changes rows of the inbox of $1, raises its version if there are any, and
    /// returns them.
    ///
    /// - Parameters:
    ///   - assignments: the new values of the rows `n`.
    ///   - condition: which rows `n` change.
    ///   - total: by how much the inbox's total changes: a number, `tally.n` for the rows, or
    ///     `tally.unread` for the unread among them.
    ///   - unread: likewise for the unread count.
    ///   - more: further common table expressions that read the rows `changed`.
    private static func change(
        set assignments: String,
        where condition: String,
        total: String = "0",
        unread: String,
        and more: String = ""
    ) -> String {
        """
        WITH changed AS (
            UPDATE carillon.notifications n SET \(assignments), version = \(EpochSQL.version(of: "b")) + 1
            FROM carillon.inboxes b
            WHERE b.user_id = $1 AND n.user_id = $1 AND \(condition)
            RETURNING \(EndpointColumns.source), n.read_at IS NULL AS is_unread
        )\(more), tally AS (
            SELECT count(*)::int4 AS n, count(*) FILTER (WHERE is_unread)::int4 AS unread FROM changed
        ), raised AS (
            UPDATE carillon.inboxes b
            SET version = \(EpochSQL.version(of: "b")) + 1, total = greatest(b.total + (\(total)), 0),
                unread = greatest(b.unread + (\(unread)), 0)
            FROM tally WHERE b.user_id = $1 AND tally.n > 0
            RETURNING b.version, b.unread
        )
        SELECT r.version, r.unread, \(EndpointColumns.list)
        FROM raised r CROSS JOIN changed n \(EndpointColumns.join)
        """
    }

    /// Locks the inbox, then changes it in a statement that sees what was committed while it
    /// waited.
    ///
    /// - Parameters:
    ///   - first: further statements of the transaction, before the lock.
    ///   - last: further statements of the transaction, after the change.
    private func change(
        _ user: String,
        _ statement: String,
        _ parameters: [PostgresValue],
        first: [PostgresStatement] = [],
        last: [PostgresStatement] = []
    ) async throws(PostgresError) -> Change {
        let change = [
            PostgresStatement(
                """
                SELECT \(EpochSQL.version(of: "b")), b.unread FROM carillon.inboxes b WHERE b.user_id = $1 FOR UPDATE
                """,
                [.text(user)]),
            PostgresStatement(statement, parameters),
        ]
        let results = Array(try await self.pool.run(first + change + last).dropFirst(first.count))
        let touched = try results[1].map { (row) throws(PostgresError) in try EndpointColumns.read(row, at: 2) }
        if let row = results[1].first {
            return Change(
                ids: touched.map(\.label.id), version: try row.int8(0), unread: try row.int4(1),
                labels: touched.map(\.label), endpoints: touched.map(\.endpoint))
        }
        guard let row = results[0].first else { return Change(ids: [], version: 0, unread: 0) }
        return Change(ids: [], version: try row.int8(0), unread: try row.int4(1))
    }
}
