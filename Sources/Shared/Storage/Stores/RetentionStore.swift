// Carillon · RetentionStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Deletes data past its retention in bounded steps, each of which is repeatable and safe to run
/// concurrently.
package struct RetentionStore: Sendable {
    /// Notifications removed from an inbox, and its state.
    package struct Removal: Sendable {
        package let user: String
        package let version: Int64
        package let unread: Int32
        package var ids: [NotificationID]
    }

    /// The result of a step.
    package struct Step: Sendable {
        /// The number of rows found; fewer than requested means that there are no more.
        package let found: Int
        package var removals: [Removal] = []
    }

    let pool: PostgresPool

    // MARK: Inboxes

    /// Deletes notifications stored before a moment: listed ones with a version, so that clients
    /// learn of it, others for good.
    ///
    /// Skips notifications that are kept for up to ``InboxStore/restoredDays`` more, as restored
    /// ones are; ``expireKept(now:limit:)`` deletes them.
    ///
    /// - Parameter now: the caller's time. It may be behind PostgreSQL's, which dates restores.
    package func expireInboxes(
        storedBefore moment: Timestamp,
        now: Timestamp,
        limit: Int
    ) async throws(PostgresError) -> Step {
        let found = try await self.pool.query(
            """
            SELECT n.user_id, n.id, n.version > 0, n.stored_at FROM carillon.notifications n
            WHERE n.stored_at >= (SELECT \(Self.watermark) FROM carillon.sweep)
                AND n.stored_at < $1 AND n.deleted_at IS NULL AND (n.keep_until IS NULL
                    OR n.keep_until NOT BETWEEN $3 AND now() + interval '\(InboxStore.restoredDays) days')
            ORDER BY n.stored_at LIMIT $2
            """,
            .timestamp(moment), .int4(clamping: limit), .timestamp(now)
        )
        let (listed, unlisted) = try Self.split(found)
        let step = try await self.delete(listed, found: found.count)
        if !unlisted.isEmpty { try await self.pool.run([Self.removal(unlisted)]) }
        // Everything stored before the last row is gone; if no more was found, everything before
        // the moment.
        if let last = found.count < limit ? moment : try found.last?.timestamp(3) {
            try await self.pool.query(
                "UPDATE carillon.sweep SET retained_from = greatest(\(Self.watermark), $1)",
                .timestamp(last)
            )
        }
        return step
    }

    /// The watermark; $1 instead of one in the future, which comes from a wrong clock.
    private static let watermark = "CASE WHEN retained_from > now() THEN $1 ELSE retained_from END"

    /// Deletes notifications whose `keep_until` has passed.
    ///
    /// Unlisted ones become tombstones too, so that their job ids stay known.
    package func expireKept(now: Timestamp, limit: Int) async throws(PostgresError) -> Step {
        let found = try await self.pool.query(
            """
            SELECT n.user_id, n.id, n.version > 0 FROM carillon.notifications n
            WHERE n.keep_until <= $1 AND n.keep_until IS NOT NULL AND n.deleted_at IS NULL
            ORDER BY n.keep_until LIMIT $2
            """,
            .timestamp(now), .int4(clamping: limit)
        )
        let (listed, unlisted) = try Self.split(found)
        if !unlisted.isEmpty {
            try await self.pool.run([
                PostgresStatement(
                    """
                    UPDATE carillon.notifications n SET deleted_at = now()
                    FROM unnest($1, $2) AS k (user_id, id)
                    WHERE n.user_id = k.user_id AND n.id = k.id AND n.deleted_at IS NULL AND n.version = 0
                    """,
                    .keys(unlisted)
                )
            ])
        }
        return try await self.delete(listed, found: found.count)
    }

    /// Splits rows of users, ids, and whether the notification is listed.
    private static func split(_ rows: PostgresResult) throws(PostgresError) -> (
        listed: [NotificationKey], unlisted: [NotificationKey]
    ) {
        var (listed, unlisted): ([NotificationKey], [NotificationKey]) = ([], [])
        for row in rows {
            let key = try row.key()
            if try row.bool(2) { listed.append(key) } else { unlisted.append(key) }
        }
        return (listed, unlisted)
    }

    private func delete(_ keys: [NotificationKey], found: Int) async throws(PostgresError) -> Step {
        var step = Step(found: found)
        guard !keys.isEmpty else { return step }
        let results = try await self.pool.run([
            Self.lock(keys),
            PostgresStatement(
                """
                WITH gone AS (
                    UPDATE carillon.notifications n SET deleted_at = now(), version = \(EpochSQL.version(of: "b")) + 1
                    FROM unnest($1, $2) AS k (user_id, id)
                    JOIN carillon.inboxes b ON b.user_id = k.user_id
                    WHERE n.user_id = k.user_id AND n.id = k.id AND n.deleted_at IS NULL AND n.version > 0
                    RETURNING n.user_id, n.id, n.read_at IS NULL AS was_unread
                ), tally AS (
                    SELECT user_id, count(*)::int4 AS n, count(*) FILTER (WHERE was_unread)::int4 AS unread
                    FROM gone GROUP BY user_id
                ), raised AS (
                    UPDATE carillon.inboxes b
                    SET version = \(EpochSQL.version(of: "b")) + 1, total = greatest(b.total - t.n, 0),
                        unread = greatest(b.unread - t.unread, 0)
                    FROM tally t WHERE b.user_id = t.user_id
                    RETURNING b.user_id, b.version, b.unread
                )
                SELECT r.user_id, r.version, r.unread, g.id FROM gone g JOIN raised r ON r.user_id = g.user_id
                ORDER BY r.user_id COLLATE "C", g.id
                """,
                .keys(keys)
            ),
        ])
        for row in results.last ?? results[0] {
            let user = try row.text(0)
            let id = try row.id(3)
            if let last = step.removals.indices.last, step.removals[last].user.utf8.elementsEqual(user.utf8) {
                step.removals[last].ids.append(id)
            } else {
                step.removals.append(
                    Removal(user: user, version: try row.int8(1), unread: try row.int4(2), ids: [id])
                )
            }
        }
        return step
    }

    /// Removes tombstones of notifications deleted before a moment and raises the floor of their
    /// inboxes: clients below it start over.
    ///
    /// - Returns: the number of rows removed.
    package func removeTombstones(deletedBefore moment: Timestamp, limit: Int) async throws(PostgresError) -> Int {
        let found = try await self.pool.query(
            """
            SELECT n.user_id, n.id FROM carillon.notifications n
            WHERE n.deleted_at < $1 AND n.deleted_at IS NOT NULL ORDER BY n.deleted_at LIMIT $2
            """,
            .timestamp(moment), .int4(clamping: limit)
        )
        let keys = try found.keys()
        guard !keys.isEmpty else { return 0 }
        try await self.pool.run([
            Self.lock(keys),
            PostgresStatement(
                """
                WITH gone AS (
                    DELETE FROM carillon.notifications n USING unnest($1, $2) AS k (user_id, id)
                    WHERE n.user_id = k.user_id AND n.id = k.id AND n.deleted_at IS NOT NULL
                    RETURNING n.user_id, n.id, n.version
                ), unarchived AS (
                    DELETE FROM carillon.archived a USING gone
                    WHERE a.user_id = gone.user_id AND a.notification_id = gone.id
                ), highest AS (SELECT user_id, max(version) AS version FROM gone GROUP BY user_id)
                UPDATE carillon.inboxes b SET floor = greatest(b.floor, h.version)
                FROM highest h WHERE b.user_id = h.user_id
                """,
                .keys(keys)
            ),
        ])
        return keys.count
    }

    /// Every writer locks the inboxes first, in this order.
    private static func lock(_ keys: [NotificationKey]) -> PostgresStatement {
        PostgresStatement(NotificationSQL.lockInboxes, [.texts(ExactText.distinct(keys.map(\.user)))])
    }

    private static func removal(_ keys: [NotificationKey]) -> PostgresStatement {
        PostgresStatement(
            """
            DELETE FROM carillon.notifications n USING unnest($1, $2) AS k (user_id, id)
            WHERE n.user_id = k.user_id AND n.id = k.id AND n.version = 0
            """,
            .keys(keys)
        )
    }

    // MARK: The rest

    /// Drops the oldest partition of the audit that ends before a day.
    ///
    /// - Parameter firstKept: a moment of the first day to keep.
    /// - Returns: the partition's name; nil if there is none.
    package func dropAttemptPartition(firstKept: Timestamp) async throws(PostgresError) -> String? {
        try await self.pool.query(
            "SELECT carillon.drop_attempt_partition(($1::timestamptz AT TIME ZONE 'UTC')::date)",
            .timestamp(firstKept)
        ).first?.optionalText(0)
    }

    /// Deletes rows of the audit from before a day that are in the default partition, because their
    /// days had no partition.
    ///
    /// - Parameter firstKept: a moment of the first day to keep.
    /// - Returns: the number of rows.
    package func dropStrayAttempts(firstKept: Timestamp, limit: Int) async throws(PostgresError) -> Int {
        try await self.pool.query(
            """
            DELETE FROM carillon.delivery_attempts_default WHERE ctid = ANY (ARRAY (
                SELECT ctid FROM carillon.delivery_attempts_default
                WHERE at < date_trunc('day', $1::timestamptz AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
                ORDER BY at LIMIT $2
            ))
            """,
            .timestamp(firstKept), .int4(clamping: limit)
        ).affectedRows
    }

    /// The devices not seen since a moment, oldest first.
    ///
    /// FCM topics and webhooks are registered once, so they are left alone. The literals let the
    /// index `devices_stale` serve it. $1: the moment, $2: limit.
    static let staleDevices = """
        SELECT o.id FROM carillon.devices o
        WHERE o.active AND o.last_used_at < $1 AND o.provider <> '\(Provider.webhook)'
            AND NOT starts_with(o.token, '\(Device.topicPrefix)')
        ORDER BY o.last_used_at LIMIT $2
        """

    /// Switches off devices not seen since a moment, each with an audit row.
    ///
    /// - Returns: the number of devices.
    package func deactivateDevices(
        unseenSince moment: Timestamp,
        now: Timestamp,
        limit: Int
    ) async throws(PostgresError) -> Int {
        try await self.pool.query(
            """
            WITH stale AS (\(Self.staleDevices)), changed AS (
                UPDATE carillon.devices d SET active = false, deactivated_reason = 'stale'
                FROM stale s WHERE d.id = s.id AND d.active AND d.last_used_at < $1
                RETURNING d.id, d.user_id, d.provider
            )
            INSERT INTO carillon.delivery_attempts (at, user_id, device_id, provider, kind, attempt, outcome, reason)
            SELECT $3, user_id, id, provider, 'token', 0, 'skipped', 'stale' FROM changed
            """,
            .timestamp(moment), .int4(clamping: limit), .timestamp(now)
        ).affectedRows
    }

    /// Deletes devices switched off before a moment; the audit keeps when and why.
    ///
    /// - Returns: the number of devices.
    package func dropDevices(switchedOffBefore moment: Timestamp, limit: Int) async throws(PostgresError) -> Int {
        try await self.pool.query(
            """
            DELETE FROM carillon.devices d WHERE d.id IN (
                SELECT x.id FROM carillon.devices x WHERE x.inactive_since < $1 ORDER BY x.inactive_since LIMIT $2
            ) AND NOT d.active
            """,
            .timestamp(moment), .int4(clamping: limit)
        ).affectedRows
    }

    /// Whether a digest that has not ended holds an item of the cancellation `c`.
    ///
    /// - Parameters:
    ///   - name: the column that the cancellation may name.
    ///   - collation: the column's, without which its index is not used.
    static func isHeld(_ name: String, _ collation: String) -> String {
        """
        EXISTS (
            SELECT FROM carillon.digest_items i
            WHERE i.org_id = c.org_id AND i.\(name) = c.job_id COLLATE "\(collation)" AND NOT i.is_single
                AND EXISTS (SELECT FROM carillon.digests d WHERE d.id = i.digest_id)
        )
        """
    }

    /// Deletes cancellations from before a moment, except those of items that a digest holds.
    ///
    /// - Returns: the number of cancellations.
    package func dropCancellations(before moment: Timestamp, limit: Int) async throws(PostgresError) -> Int {
        try await self.pool.query(
            """
            DELETE FROM carillon.cancellations WHERE (org_id, job_id) IN (
                SELECT c.org_id, c.job_id FROM carillon.cancellations c
                WHERE c.at < $1 AND NOT \(Self.isHeld("job_id", "C")) AND NOT \(Self.isHeld("job_entry", "default"))
                ORDER BY c.at LIMIT $2
            )
            """,
            .timestamp(moment), .int4(clamping: limit)
        ).affectedRows
    }

    /// Deletes dead letters older than a moment, except those with a scheduled replay.
    ///
    /// - Returns: the number of dead letters; below the limit, none is left.
    package func dropDeadLetters(before moment: Timestamp, limit: Int) async throws(PostgresError) -> Int {
        try await self.pool.query(
            """
            DELETE FROM carillon.dead_letters WHERE id IN (
                SELECT id FROM carillon.dead_letters WHERE at < $1 AND replay_at IS NULL ORDER BY at LIMIT $2
            )
            """,
            .timestamp(moment), .int4(clamping: limit)
        ).affectedRows
    }

    /// Deletes the oldest dead letters beyond a number, except those with a scheduled replay.
    ///
    /// - Returns: the number of dead letters; below the limit, none is left.
    package func dropDeadLetters(keeping most: Int, limit: Int) async throws(PostgresError) -> Int {
        try await self.pool.query(
            """
            DELETE FROM carillon.dead_letters WHERE id IN (
                SELECT id FROM carillon.dead_letters WHERE id <= (
                    SELECT id FROM carillon.dead_letters ORDER BY id DESC OFFSET $1 LIMIT 1
                ) AND replay_at IS NULL ORDER BY id LIMIT $2
            )
            """,
            .int4(clamping: most), .int4(clamping: limit)
        ).affectedRows
    }
}
