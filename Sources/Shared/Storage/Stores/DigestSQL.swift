// Carillon · DigestSQL.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The statements of ``DigestStore``.
///
/// The states of a window:
/// - `open`: it takes items;
/// - `closing`: it takes none, and no dispatcher has claimed it;
/// - `claimed`: a dispatcher has decided about its items, but its summary is not stored. If the
///   claim expires, the next one decides again;
/// - `stored`: its summary is stored, or it needs none, so the fates of its items are final.
enum DigestSQL {
    // MARK: Gathering

    /// The columns of items, as parameters of ``gatherItems``.
    static let gathered = NotificationColumns.gathered

    private static func parameter(_ offset: Int) -> String { "$\(Self.gathered.count + offset)" }

    /// Gathers items.
    ///
    /// A new item is not gathered if its user has a notification of the same job. Either the item
    /// is a duplicate, or the notification is the item itself, stored by a dispatcher whose catalog
    /// had no digest. Without a job id, only the second can be.
    ///
    /// Parameters after those of the columns: for each item key, span and longest span in
    /// microseconds, whether the window slides, and the number of single items; then now.
    static let gatherItems = """
        SELECT (k.n - 1)::int4, coalesce(
            (
                SELECT CASE
                    WHEN o.id = k.id THEN '\(DigestStore.Outcome.single.rawValue)'
                    WHEN (o.type, o.title, o.body, o.data) IS DISTINCT FROM (k.type, k.title, k.body, k.data)
                        THEN '\(DigestStore.Outcome.conflict.rawValue)'
                    ELSE '\(DigestStore.Outcome.duplicate.rawValue)' END
                FROM (
                    SELECT x.id, x.type, x.title, x.body, x.data FROM carillon.notifications x
                    WHERE x.user_id = k.user_id AND x.id = k.id
                    UNION ALL
                    SELECT x.id, x.type, x.title, x.body, x.data FROM carillon.notifications x
                    WHERE k.job_id IS NOT NULL AND x.user_id = k.user_id AND x.org_id = k.org_id AND x.job_id = k.job_id
                ) o
                WHERE NOT EXISTS (
                    SELECT FROM carillon.digest_items g WHERE g.user_id = k.user_id AND g.notification_id = k.id
                )
                LIMIT 1
            ),
            carillon.gather(
                ROW(k.user_id, k.id, k.id, false, \(Self.parameter(6)), NULL, \(NotificationColumns.item.list(of: "k"))
                    )::carillon.digest_items,
                k.key, k.lane, k.span * interval '1 microsecond', k.maximum * interval '1 microsecond', k.sliding,
                k.singles))
        FROM (
            SELECT * FROM unnest(\(Self.gathered.parameters), \(Self.parameter(1)), \(Self.parameter(2)),
                \(Self.parameter(3)), \(Self.parameter(4)), \(Self.parameter(5))) WITH ORDINALITY
                AS i (\(Self.gathered.names), key, span, maximum, sliding, singles, n)
            ORDER BY i.user_id COLLATE "C", i.org_id COLLATE "C", i.type COLLATE "C", i.key COLLATE "C", i.n
        ) k
        """

    /// Whether any item of a job was gathered.
    ///
    /// $1: organisation, $2: job id.
    static let hasItems = """
        SELECT EXISTS (SELECT FROM carillon.digest_items WHERE org_id = $1 AND job_id = $2)
        """

    /// A page of the items of windows, without single ones.
    ///
    /// $1: windows, $2 and $3: last window and item, $4: limit.
    static let heldItems = """
        SELECT i.digest_id, i.notification_id, i.job_id, i.category, i.fate FROM carillon.digest_items i
        WHERE i.digest_id = ANY ($1) AND NOT i.is_single AND (i.digest_id, i.notification_id) > ($2, $3)
        ORDER BY i.digest_id, i.notification_id LIMIT $4
        """

    /// Records that the summaries of windows were suppressed.
    ///
    /// A lone item keeps its fate, because it has a notification of its own.
    ///
    /// $1: windows.
    static let suppress = """
        UPDATE carillon.digest_items SET fate = '\(DigestStore.Fate.suppressed.rawValue)'
        WHERE digest_id = ANY ($1) AND NOT is_single AND fate IS NULL
        """

    // MARK: Claiming

    /// Whether no summary of a window is stored.
    static func isWaiting(_ row: String) -> String { "\(row).state <> 'stored'" }

    /// Whether a dispatcher may be storing the summary of a window.
    static func isClaimed(_ row: String) -> String { "\(row).state = 'claimed'" }

    /// When the window `d` ended; a claim moves only its `due_at` on.
    private static let end = "least(d.last_at, d.due_at)"

    /// Claims windows that have ended, so that they take no more items.
    ///
    /// $1: now, $2: end of the claim, $3: limit.
    static let claimDue = """
        UPDATE carillon.digests d
        SET state = CASE d.state WHEN 'stored' THEN d.state ELSE 'claimed' END, due_at = $2, last_at = \(Self.end)
        WHERE d.id IN (
            SELECT x.id FROM carillon.digests x WHERE x.due_at <= $1 ORDER BY x.due_at LIMIT $3
            FOR UPDATE SKIP LOCKED
        )
        """

    /// Marks the windows of a claim: their summaries are stored in the same transaction, or they
    /// have no items left.
    ///
    /// $1: windows, $2: end of the claim.
    static let markStored = "UPDATE carillon.digests SET state = 'stored' WHERE id = ANY ($1) AND due_at = $2"

    /// Fails with ``NotificationSQL/notStored`` unless the claim still has all of its windows.
    ///
    /// Another dispatcher may have claimed a window since, or removed it, or its user was erased.
    /// Runs after ``markStored``, which waits for such a transaction, so that it sees its changes.
    ///
    /// $1, $2: as in ``markStored``.
    static let requireClaim = """
        SELECT 1 / (count(*) = cardinality($1))::int FROM carillon.digests WHERE id = ANY ($1) AND due_at = $2
        """

    /// Puts off the window that ended first, which takes no more items.
    ///
    /// $1: now, $2: next due time.
    static let putOff = """
        UPDATE carillon.digests d
        SET state = CASE d.state WHEN 'open' THEN 'closing' ELSE d.state END, due_at = $2, last_at = \(Self.end)
        WHERE d.id = (SELECT x.id FROM carillon.digests x WHERE x.due_at <= $1 ORDER BY x.due_at LIMIT 1)
            AND d.due_at <= $1
        RETURNING d.id
        """

    /// Decides about the items of the windows that ``claimDue`` claimed in the same transaction,
    /// stores their fates, and returns the windows with the items that are left.
    ///
    /// A separate statement, because it must see the items that were committed before their windows
    /// were locked.
    ///
    /// $1: now, $2: end of the claim, $3: number of lines.
    static let readClaimed = """
        WITH \(Self.stages.joined(separator: ",\n"))
        SELECT c.id, c.user_id, c.org_id, c.type, c.lane, coalesce(s.count, 0), s.lines, s.channels, s.delivery,
            s.severity, s.expires_at, s.keep_until, coalesce(s.count = 1, false), w.notification_id, \(Self.loneNames)
        FROM claimed c LEFT JOIN newest w ON w.digest_id = c.id LEFT JOIN summed s ON s.digest_id = c.id
        """

    /// The stages of ``readClaimed``; each may read those before it.
    private static let stages = [
        Self.claimed, Self.held, Self.newest, Self.about, Self.snoozed, Self.touched, Self.seen, Self.judged,
        Self.counted, Self.recorded, Self.summed,
    ]

    /// The claimed windows.
    private static let claimed = """
        claimed AS MATERIALIZED (
            SELECT d.* FROM carillon.digests d
            WHERE d.due_at = $2 AND d.state <> 'open' AND d.xmin = pg_current_xact_id()::xid
        )
        """

    /// Their items, with the fates from an earlier claim.
    private static let held = """
        held AS MATERIALIZED (
            SELECT h.digest_id, h.user_id, h.notification_id, h.gathered_at, c.state = 'stored' AS is_final,
                \(NotificationColumns.item.list(of: "h")), h.fate AS last_fate
            FROM claimed c JOIN carillon.digest_items h ON h.digest_id = ANY (ARRAY[c.id]) AND NOT h.is_single
        )
        """

    /// The newest item of each window, which gives the summary its id.
    private static let newest = """
        newest AS MATERIALIZED (
            SELECT DISTINCT ON (h.digest_id) h.digest_id, h.notification_id FROM held h
            ORDER BY h.digest_id, h.notification_id DESC
        )
        """

    /// The newest notifications of a user that are compared with the items.
    private static let mostNotifications = 10_000

    /// Whether a user deleted the notification `n` by $1.
    ///
    /// Cancellations, replacements and retention delete without the user.
    private static let isDeletedByUser = """
        n.deleted_at <= $1 AND n.replaced_by IS NULL AND n.status <> 'cancelled'
            AND n.status_reason IS DISTINCT FROM 'cancelled_too_late'
            AND (n.keep_until IS NULL OR n.deleted_at < n.keep_until)
            AND n.stored_at >= (SELECT s.retained_from FROM carillon.sweep s)
        """

    /// The notifications of the same users about the same entities.
    ///
    /// Reads the newest notifications of each user once, because a lookup for each item would be
    /// quadratic. So would a join; `IS TRUE` keeps the set of entities from becoming one.
    private static let about = """
        about AS MATERIALIZED (
            SELECT n.user_id, n.id, n.job_id, n.org_id, n.entity_type, n.entity_id,
                greatest(n.read_at, (
                    SELECT a.archived_at FROM carillon.archived a
                    WHERE a.user_id = n.user_id AND a.notification_id = n.id
                )) AS read_at,
                CASE WHEN \(Self.isDeletedByUser) THEN n.deleted_at END AS deleted_at
            FROM (SELECT DISTINCT h.user_id FROM held h WHERE h.entity_id IS NOT NULL) u
            CROSS JOIN LATERAL (
                SELECT x.* FROM carillon.notifications x WHERE x.user_id = u.user_id
                ORDER BY x.id DESC LIMIT \(Self.mostNotifications)
            ) n
            WHERE n.entity_id IS NOT NULL
                AND ((n.user_id, n.org_id, n.entity_id)
                    IN (SELECT h.user_id, h.org_id, h.entity_id FROM held h)) IS TRUE
        )
        """

    /// The notifications that were snoozed.
    ///
    /// A snooze deletes a notification, but its user has not finished with it: a schedule brings it
    /// back, or already has, as a notification whose job id names it.
    private static let snoozed = """
        snoozed AS MATERIALIZED (
            SELECT j.user_id, split_part(j.job_id, ':', 2) AS id FROM (
                SELECT s.user_id, s.job_id
                FROM (SELECT DISTINCT a.user_id FROM about a WHERE a.deleted_at IS NOT NULL) u
                JOIN carillon.schedules s ON s.user_id = ANY (ARRAY[u.user_id])
                UNION ALL
                SELECT a.user_id, a.job_id FROM about a
            ) j
            WHERE starts_with(j.job_id, 'snooze:')
        )
        """

    /// When each user last read or deleted a notification about an entity.
    private static let touched = """
        touched AS MATERIALIZED (
            SELECT a.user_id, a.org_id, a.entity_type, a.entity_id,
                greatest(max(a.read_at), max(a.deleted_at) FILTER (
                    WHERE (a.user_id, a.id::text) NOT IN (SELECT z.user_id, z.id FROM snoozed z)
                )) AS at
            FROM about a GROUP BY a.user_id, a.org_id, a.entity_type, a.entity_id
        )
        """

    /// The items whose entity was touched since they were gathered; compared by sorting, because a
    /// join could be quadratic.
    private static let seen = """
        seen AS MATERIALIZED (
            SELECT w.user_id, w.notification_id FROM (
                SELECT x.*, max(x.at) OVER (PARTITION BY x.user_id, x.org_id, x.entity_type, x.entity_id) AS last
                FROM (
                    SELECT h.user_id, h.org_id, h.entity_type, h.entity_id, h.notification_id, h.gathered_at,
                        NULL::timestamptz AS at
                    FROM held h WHERE h.entity_id IS NOT NULL
                    UNION ALL
                    SELECT t.user_id, t.org_id, t.entity_type, t.entity_id, NULL, NULL, t.at FROM touched t
                ) x
            ) w
            WHERE w.last >= w.gathered_at
        )
        """

    /// The items with the fates that drop them; null for those that are left.
    private static let judged = """
        judged AS MATERIALIZED (
            SELECT h.*, CASE
                WHEN h.is_final THEN nullif(h.last_fate, '\(DigestStore.Fate.alone.rawValue)')
                WHEN EXISTS (SELECT FROM carillon.cancellations) AND \(CancellationSQL.isCancelled("h"))
                    THEN '\(DigestStore.Fate.cancelled.rawValue)'
                WHEN h.expires_at <= $1 OR h.keep_until <= $1 THEN '\(DigestStore.Fate.expired.rawValue)'
                WHEN (h.user_id, h.notification_id) IN (SELECT s.user_id, s.notification_id FROM seen s)
                    THEN '\(DigestStore.Fate.read.rawValue)'
            END AS fate
            FROM held h
        )
        """

    /// The items, each with the count of those left in its window and its ordinal among them.
    private static let counted = """
        counted AS MATERIALIZED (
            SELECT j.*, count(*) FILTER (WHERE j.fate IS NULL) OVER (PARTITION BY j.digest_id) AS kept,
                row_number() OVER (PARTITION BY j.digest_id, j.fate IS NULL ORDER BY j.notification_id) AS ordinal
            FROM judged j
        )
        """

    /// Stores the fates that differ from those of an earlier claim.
    private static let recorded = """
        recorded AS (
            UPDATE carillon.digest_items x SET fate = c.next_fate
            FROM (
                SELECT c.user_id, c.notification_id, c.last_fate, coalesce(
                    c.fate, CASE WHEN c.kept = 1 THEN '\(DigestStore.Fate.alone.rawValue)' END) AS next_fate
                FROM counted c
            ) c
            WHERE x.user_id = c.user_id AND x.notification_id = c.notification_id
                AND c.next_fate IS DISTINCT FROM c.last_fate
        )
        """

    /// The severities, highest first.
    private static let severities = Severity.allCases.map { "'\($0.rawValue)'" }.joined(separator: ", ")

    /// The columns of a lone item.
    private static let lone = NotificationColumns.item.columns.map { column in
        "(array_agg(i.\(column.name)) FILTER (WHERE i.kept = 1))[1] AS lone_\(column.name)"
    }.joined(separator: ", ")
    private static let loneNames = NotificationColumns.item.columns.map { "s.lone_\($0.name)" }
        .joined(separator: ", ")

    /// The summary of each window with items left: their number, the lines of the first, and the
    /// values that follow from all.
    private static let summed = """
        summed AS MATERIALIZED (
            SELECT i.digest_id, count(*)::int4 AS count,
                jsonb_agg(jsonb_build_object('id', i.notification_id, 'title', i.title, 'body', i.body, 'data', i.data)
                    ORDER BY i.ordinal) FILTER (WHERE i.ordinal <= $3) AS lines,
                bit_or(i.channels)::int4 AS channels, max(i.delivery COLLATE "C") AS delivery,
                min(array_position(ARRAY[\(Self.severities)], i.severity)) AS severity,
                CASE WHEN count(i.expires_at) = count(*) THEN max(i.expires_at) END AS expires_at,
                CASE WHEN count(i.keep_until) = count(*) THEN max(i.keep_until) END AS keep_until,
                \(Self.lone)
            FROM counted i WHERE i.fate IS NULL GROUP BY i.digest_id
        )
        """
}
