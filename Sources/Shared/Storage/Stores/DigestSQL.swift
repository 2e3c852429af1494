// Carillon · DigestSQL.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The statements of ``DigestStore`` that gather items and take windows.
enum DigestSQL {
    /// The columns of items and of their details, as parameters of ``gatherItems``.
    static let gathered = NotificationColumns.gathered

    private static func parameter(_ offset: Int) -> String { "$\(Self.gathered.count + offset)" }

    /// Gathers items. One that is new here, but whose user has a notification of its job's id, is not
    /// gathered: it is a duplicate, or that notification itself, which needs no summary.
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
                FROM carillon.notifications o
                WHERE k.job_id IS NOT NULL AND o.user_id = k.user_id AND o.org_id = k.org_id AND o.job_id = k.job_id
                    AND NOT EXISTS (
                        SELECT FROM carillon.digest_items g WHERE g.user_id = k.user_id AND g.notification_id = k.id
                    )
                LIMIT 1
            ),
            carillon.gather_detailed(
                ROW(k.user_id, k.id, k.id, false, \(NotificationColumns.item.list(of: "k")),
                    \(Self.parameter(6)))::carillon.digest_items,
                ROW(k.user_id, k.id, \(NotificationColumns.detail.list(of: "k")), NULL)::carillon.digest_details,
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
    /// $1: organisation, $2: the job's id.
    static let hasItems = """
        SELECT EXISTS (SELECT FROM carillon.digest_items WHERE org_id = $1 AND job_id = $2)
        """

    /// $1: windows, $2 and $3: the last window and item, $4: how many.
    static let heldItems = """
        SELECT i.digest_id, i.notification_id, i.job_id, x.fate FROM carillon.digest_items i
        LEFT JOIN carillon.digest_details x ON x.user_id = i.user_id AND x.notification_id = i.notification_id
        WHERE i.digest_id = ANY ($1) AND NOT i.is_single AND (i.digest_id, i.notification_id) > ($2, $3)
        ORDER BY i.digest_id, i.notification_id LIMIT $4
        """

    /// The severities, the gravest first.
    private static let severities = Severity.allCases.map { "'\($0.rawValue)'" }.joined(separator: ", ")

    /// The columns of an item that comes alone.
    private static let alone = NotificationColumns.held.columns.map { column in
        "(array_agg(i.\(column.name)) FILTER (WHERE i.kept = 1))[1]"
    }.joined(separator: ", ")

    /// $1: now, $2: when they come up again, $3: how many, $4: how many lines.
    ///
    /// Every item's fate is written down, so that it is the same whoever takes the window again. The items of a window are
    /// ordered by their ids.
    static let takeDue = """
        WITH taken AS (
            UPDATE carillon.digests d SET state = 'closing', due_at = $2
            WHERE d.id IN (
                SELECT x.id FROM carillon.digests x WHERE x.due_at <= $1 ORDER BY x.due_at LIMIT $3
                FOR UPDATE SKIP LOCKED
            )
            RETURNING d.*
        ),
        held AS MATERIALIZED (
            SELECT h.digest_id, h.user_id, h.notification_id, h.gathered_at,
                \(NotificationColumns.held(item: "h", details: "x")), nullif(x.fate, '\(DigestStore.Fate.alone.rawValue)') AS known_fate
            FROM taken t JOIN carillon.digest_items h ON h.digest_id = t.id AND NOT h.is_single
            LEFT JOIN carillon.digest_details x ON x.user_id = h.user_id AND x.notification_id = h.notification_id
        ),
        judged AS MATERIALIZED (
            SELECT h.*, coalesce(h.known_fate, CASE
                WHEN EXISTS (SELECT FROM carillon.cancellations) AND \(CancellationSQL.isCancelled("h"))
                    THEN '\(DigestStore.Fate.cancelled.rawValue)'
                WHEN h.expires_at <= $1 OR h.keep_until <= $1 THEN '\(DigestStore.Fate.expired.rawValue)'
                WHEN h.entity_id IS NOT NULL AND EXISTS (
                    SELECT FROM carillon.notifications n
                    WHERE n.user_id = h.user_id AND n.entity_id = h.entity_id
                        AND n.entity_type IS NOT DISTINCT FROM h.entity_type
                        AND (n.read_at >= h.gathered_at OR n.deleted_at >= h.gathered_at)
                ) THEN '\(DigestStore.Fate.read.rawValue)'
            END) AS fate
            FROM held h
        ),
        counted AS MATERIALIZED (
            SELECT j.*, count(*) FILTER (WHERE j.fate IS NULL) OVER (PARTITION BY j.digest_id) AS kept,
                row_number() OVER (PARTITION BY j.digest_id, j.fate IS NULL ORDER BY j.notification_id) AS place
            FROM judged j
        ),
        noted AS (
            INSERT INTO carillon.digest_details AS x (user_id, notification_id, fate)
            SELECT c.user_id, c.notification_id, coalesce(c.fate, '\(DigestStore.Fate.alone.rawValue)') FROM counted c
            WHERE c.fate IS NOT NULL OR c.kept = 1
            ON CONFLICT (user_id, notification_id) DO UPDATE SET fate = excluded.fate
        )
        SELECT t.id, t.user_id, t.org_id, t.type, t.key, t.lane, count(i.notification_id)::int4,
            jsonb_agg(jsonb_build_object('id', i.notification_id, 'title', i.title, 'body', i.body, 'data', i.data)
                ORDER BY i.place) FILTER (WHERE i.place <= $4),
            (bit_or(coalesce(i.channels, \(Channels.all.rawValue)))
                FILTER (WHERE i.notification_id IS NOT NULL))::int4,
            max(i.delivery COLLATE "C"), min(array_position(ARRAY[\(Self.severities)], i.severity)),
            CASE WHEN count(i.expires_at) = count(i.notification_id) THEN max(i.expires_at) END,
            CASE WHEN count(i.keep_until) = count(i.notification_id) THEN max(i.keep_until) END,
            count(i.notification_id) = 1 AND count(i.type) = 1, \(Self.alone)
        FROM taken t LEFT JOIN counted i ON i.digest_id = t.id AND i.fate IS NULL
        GROUP BY t.id, t.user_id, t.org_id, t.type, t.key, t.lane
        """
}
